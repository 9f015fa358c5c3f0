"""The 19 tasks of VTAB-1k, each from a dataset in TFDS's own form: which images, in which order, with which label."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from tests.data.vtab.written import Values, example, png, write_split
from vitral.data.listing import Opening
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.data.vtab.task_data import open_task, read_spec, source_of
from vitral.data.vtab.tasks import GROUPS, TASKS
from vitral.errors import DataError

# As google-research/task_adaptation has them: task, dataset, group, classes, training images, validation images, images to
# score on.
PUBLISHED = """
caltech101 caltech101/3.0.2 natural 102 train[:800] train[2754:2954] test
cifar100 cifar100/3.0.2 natural 100 train[:800] train[45000:45200] test
dtd dtd/3.0.1 natural 47 train[:800] validation[:200] test
flowers oxford_flowers102/2.1.1 natural 102 train[:800] validation[:200] test
pets oxford_iiit_pet/3.2.0 natural 37 train[:800] train[2944:3144] test
sun397 sun397/tfds/4.0.0 natural 397 train[:800] validation[:200] test
svhn svhn_cropped/3.1.0 natural 10 train[:800] train[65931:66131] test
camelyon patch_camelyon/2.0.0 specialised 2 train[:800] validation[:200] test
eurosat eurosat/rgb/2.0.0 specialised 10 train[:800] train[16200:16400] train[21600:]
resisc45 resisc45/3.0.0 specialised 45 train[:800] train[18900:19100] train[25200:]
retinopathy diabetic_retinopathy_detection/btgraham-300/3.0.0 specialised 5 train[:800] validation[:200] test
clevr-count clevr/3.1.0 structured 8 train[:800] train[63000:63200] validation
clevr-distance clevr/3.1.0 structured 6 train[:800] train[63000:63200] validation
dmlab dmlab/2.0.1 structured 6 train[:800] validation[:200] test
dsprites-location dsprites/2.1.0 structured 16 train[:800] train[589824:590024] train[663552:]
dsprites-orientation dsprites/2.1.0 structured 16 train[:800] train[589824:590024] train[663552:]
kitti-distance kitti/3.1.0 structured 4 train[:800] validation[:200] test
smallnorb-azimuth smallnorb/2.1.0 structured 18 train[:800] test[:200] test[50%:]
smallnorb-elevation smallnorb/2.1.0 structured 9 train[:800] test[:200] test[50%:]
"""
ROWS = [line.split() for line in PUBLISHED.strip().splitlines()]
SCORED = 6  # images to score on
HOW = Opening(verify=False)


def features(task: str, number: int) -> tuple[dict[str, Values], int]:
    """Return the features of a task's image, and the class that task_adaptation makes of them."""
    if task == "clevr-count":
        objects = 3 + number % 8
        return {"objects/pixel_coords": [1.0, 2.0, 9.0] * objects}, objects - 3
    if task == "clevr-distance":
        depth, label = [(7.9, 0), (8.0, 0), (8.2, 1), (8.9, 2), (9.5, 3), (9.75, 4), (10.5, 5), (99.0, 5)][number % 8]
        return {"objects/pixel_coords": [1.0, 2.0, 120.0, 0.5, 0.5, depth, 3.0, 3.0, 101.5]}, label
    if task == "dsprites-location":
        return {"label_x_position": [number % 32], "label_orientation": [39]}, number % 32 // 2
    if task == "dsprites-orientation":
        position = number % 40
        return {"label_x_position": [31], "label_orientation": [position]}, position * 2 // 5
    if task == "kitti-distance":
        depth, kinds, label = [
            (7.5, [0, 4, 3], 0),  # the pedestrian nearer than the car does not count
            (8.0, [1, 4, 3], 0),
            (19.9, [2, 4, 3], 1),
            (20.5, [0, 3, 4], 2),
            (7.5, [4, 4, 3], 3),
            (-3.0, [0, 3, 3], 0),
        ][number % 6]
        return {"objects/location": [0.0, 1.0, depth, 0.0, 0.0, 2.0, 5.0, 5.0, 5.0], "objects/type": kinds}, label
    if task.startswith("smallnorb"):
        found: dict[str, Values] = {
            "label_azimuth": [number % 18],
            "label_elevation": [number % 9],
            "image2": [png(200, channels=1)],
        }
        return found, number % 18 if task.endswith("azimuth") else number % 9
    classes = next(int(row[3]) for row in ROWS if row[0] == task)
    return {"label": [number % classes]}, number % classes


def bounds(part: str, total: int) -> tuple[str, int, int]:
    """Return split, first and last of a slice."""
    match = re.fullmatch(r"(\w+)(?:\[(\d+%?)?:(\d+%?)?\])?", part)
    assert match is not None
    first, last = (
        default if text is None else total * int(text[:-1]) // 100 if text.endswith("%") else int(text)
        for text, default in ((match[2], 0), (match[3], total))
    )
    return match[1], first, last


def written(root: Path, row: list[str]) -> dict[str, list[int]]:
    """Write a task's dataset, in which only the files that the task needs can be read; return each split's classes."""
    task, where, parts = row[0], row[1], row[4:7]
    expected: dict[str, list[int]] = {}
    totals = {"test": 2 * (200 + SCORED)} if "50%" in parts[2] else {}
    open_ended = re.fullmatch(r"(\w+)\[(\d+):\]", parts[2])
    if open_ended is not None:
        totals[open_ended[1]] = int(open_ended[2]) + SCORED
    for part in parts:
        split = part.partition("[")[0]
        last = max((bounds(one, 0)[2] for one in parts if one.partition("[")[0] == split and "%" not in one), default=0)
        totals.setdefault(split, last + SCORED if "[" in part else SCORED)
    for split, total in totals.items():
        wanted = sorted(bounds(part, total)[1:] for part in parts if part.partition("[")[0] == split)
        files: list[list[bytes] | int] = []
        done = 0
        for first, last in wanted:
            files += [first - done] if first > done else []
            numbers = range(first, last)
            files.append([made(task, number) for number in numbers])
            done = last
        files += [total - done] if total > done else []
        write_split(root / where, where.split("/")[0], split, files)
    for name, part in zip(("train", "validation", "test"), parts, strict=True):
        split, first, last = bounds(part, totals[part.partition("[")[0]])
        expected[name] = [features(task, number)[1] for number in range(first, last)]
    return expected


def made(task: str, number: int) -> bytes:
    """Return the record of an image whose pixels tell its number in the split."""
    scale = 1 if not task.startswith("dsprites") else 0
    value = number % 256 if scale else number % 2
    grey = task.startswith(("smallnorb", "dsprites"))
    return example({"image": [png(value, channels=1 if grey else 3)], **features(task, number)[0]})


@pytest.mark.long
@every_case("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_task_has_the_published_images_and_labels(tmp_path: Path, row: list[str]) -> None:
    expected = written(tmp_path, row)
    data = open_task(read_spec(f"vtab:{tmp_path}:{row[0]}"), HOW)
    assert {split: source.labels().tolist() for split, source in data.splits.items()} == expected
    scored = SCORED if row[6] != "test[50%:]" else 200 + SCORED
    assert [len(expected[split]) for split in ("train", "validation", "test")] == [800, 200, scored]
    assert len(data.class_names) == len(set(data.class_names)) == int(row[3])
    factor = 255 if row[0].startswith("dsprites") else 1
    first = int(re.findall(r"\d+", row[5])[0]) if row[5][-2].isdigit() and not row[5].endswith("[:200]") else 0
    for split, index, number in (("train", 0, 0), ("train", 799, 799), ("validation", 3, first + 3)):
        value = number % 2 * factor if factor > 1 else number % 256
        pixels = data.splits[split].image(index)
        assert pixels.shape == (4, 4, 3)
        assert set(pixels.reshape(-1).tolist()) == {value}, (split, index)


def test_the_table_of_tasks_is_the_published_one() -> None:
    ours = [(one.name, one.dataset, one.group, str(one.classes), one.train, one.validation, one.test) for one in TASKS]
    assert ours == [(row[0], row[1].rpartition("/")[0], *row[2:7]) for row in ROWS]
    assert [sum(one.group == group for one in TASKS) for group in GROUPS] == [7, 4, 8]
    versions = {one.name: one.version for one in TASKS}
    assert versions == {row[0]: int(row[1].rpartition("/")[2].split(".")[0]) for row in ROWS}


def test_images_are_mirrored_and_cropped_only_where_that_keeps_their_class() -> None:
    still = {"dsprites-location", "dsprites-orientation", "smallnorb-azimuth"}
    whole = {"clevr-count", "clevr-distance", "dmlab", "kitti-distance", "dsprites-location"}
    assert {one.name for one in TASKS if not one.flip} == still
    assert {one.name for one in TASKS if not one.crop} == whole


def opened(root: Path, task: str, **asked: Any) -> DataSet:  # noqa: ANN401
    return open_task(read_spec(f"vtab:{root}:{task}"), HOW, **asked)


def test_a_task_is_opened_by_name_like_any_dataset(tmp_path: Path) -> None:
    expected = written(tmp_path, ROWS[11])
    data = open_data(f"vtab:{tmp_path}:clevr-count")
    assert data.name == "vtab-clevr-count"
    assert data.counts() == {"train": "800", "validation": "200", "test": "6"}
    assert (data.augmentation.flip, data.augmentation.crop) == (True, "none")
    assert all(fact in data.notes[0] for fact in ("official", "clevr-count", "TFDS clevr 3.1.0")), data.notes
    assert data.class_names[0] == "3 objects"
    both = open_data(f"vtab:{tmp_path}:clevr-count:train800val200")
    assert both.splits["train"].labels().tolist() == expected["train"] + expected["validation"]
    assert set(both.splits) == {"train", "test"}


def test_some_of_the_test_images_are_spread_over_all(tmp_path: Path) -> None:
    expected = written(tmp_path, ROWS[11])["test"]
    data = opened(tmp_path, "clevr-count", most_test=3)
    assert data.splits["test"].labels().tolist() == [expected[index] for index in (0, 2, 5)]


def test_another_version_is_taken_with_a_note(tmp_path: Path) -> None:
    row = [*ROWS[4]]
    row[1] = "oxford_iiit_pet/4.0.0"
    written(tmp_path, row)
    notes = " ".join(opened(tmp_path, "pets").notes)
    assert "TFDS oxford_iiit_pet 4.0.0" in notes
    assert "version 3 of oxford_iiit_pet" in notes
    source = source_of(read_spec(f"vtab:{tmp_path}:pets"))
    assert source == "TFDS oxford_iiit_pet 4.0.0; VTAB is defined on version 3"


def without(name: str) -> Callable[[Mapping[str, Values]], dict[str, Values]]:
    return lambda given: {key: values for key, values in given.items() if key != name}


@every_case(
    ("change", "said"),
    [
        (without("label"), r"dmlab-train\.tfrecord-00000-of-00001\[0\]': a record has no feature 'label', but image"),
        (lambda given: {**given, "label": [6]}, "has the class 6; VTAB's dmlab has 6"),
        (lambda given: {**given, "label": []}, r"dmlab-train.*\[0\]': its feature 'label' is empty"),
        (
            lambda given: {**given, "label": [b"x"]},
            r"dmlab-train.*\[0\]': its features give no label \(invalid literal",
        ),
    ],
)
def test_records_of_another_form_are_refused(
    tmp_path: Path, change: Callable[[Mapping[str, Values]], dict[str, Values]], said: str
) -> None:
    folder = tmp_path / "dmlab" / "2.0.1"
    given = change({"image": [png(0)], "label": [1]})
    for split, count in (("train", 800), ("validation", 200), ("test", 3)):
        write_split(folder, "dmlab", split, [[example(given)] * count])
    with pytest.raises(DataError, match=said):
        opened(tmp_path, "dmlab")


@every_case(
    ("spec", "said"),
    [
        ("vtab:clevr", r"'vtab:clevr' is not of the form vtab:FOLDER:TASK, such as"),
        ("vtab:{root}:clevr-counts", r"VTAB has no task 'clevr-counts'.*Did you mean 'clevr-count'"),
        ("vtab:{root}/nowhere:dtd", "There is no folder '.*nowhere'"),
        ("vtab:{root}:dtd", r"has no data of VTAB's dtd: neither 'dtd' as TFDS prepares it \(version 3\)"),
    ],
)
def test_what_cannot_be_opened_is_told(tmp_path: Path, spec: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        open_data(spec.format(root=tmp_path))
