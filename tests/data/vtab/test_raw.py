"""VTAB's datasets in their authors' files: every split in TFDS's order, with the labels of the tasks."""

import hashlib
import math
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.cases import every_case
from tests.data.vtab.raw_written import NORB, SUN_LISTS, WRITERS, matrix, smallnorb, table, write
from tests.data.vtab.written import example, png, write_records, write_split
from vitral.data.listing import Opening
from vitral.data.open import open_data
from vitral.data.vtab.task_data import open_task, read_spec, source_of
from vitral.data.vtab.tasks import TASKS
from vitral.errors import DataError, ImageError
from vitral.images.decode import read_image
from vitral_vtab.listing import FORMS, images_of, whole_split

HOW = Opening(verify=False)


def tfds_order(split: str, keys: list[str]) -> list[str]:
    """Return keys in TFDS's order, by the numbers that their md5 stands for."""
    return sorted(keys, key=lambda key: int(hashlib.md5(f"{split}{key}".encode()).hexdigest(), 16))


@every_case("name", WRITERS)
def test_raw_files_are_listed_in_tfds_order_with_the_labels_of_the_tasks(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    expected = WRITERS[name](folder)
    data = FORMS[name].read(folder)
    tasks = [task for task in TASKS if task.dataset.partition("/")[0] == name]
    assert set(FORMS[name].published) == set(expected)
    store = images_of(data, tasks[0])
    for split, made in expected.items():
        images, by_key = data.splits[split], {one.key: one for one in made}
        numbers = whole_split(data, split, folder)
        keys = [images.keys[number] for number in numbers]
        texts = [key.decode() if isinstance(key, bytes) else str(key) for key in keys]
        assert texts == tfds_order(split, list(by_key))
        for number, text in zip(numbers, texts, strict=True):
            for task in tasks:
                assert task.label(images.features(number)) == by_key[text].labels[task.name], (task.name, text)
            pixels = read_image(store.read(images.indices[number]))
            assert set(pixels.reshape(-1).tolist()) == {by_key[text].value * tasks[0].scale}, text


def test_every_task_has_a_reader_or_says_that_it_has_none(tmp_path: Path) -> None:
    assert {task.dataset.partition("/")[0] for task in TASKS} - set(FORMS) == {"caltech101"}
    assert all(task.marks for task in TASKS)
    write(tmp_path / "caltech101/caltech-101/101_ObjectCategories.tar.gz", b"")
    with pytest.raises(DataError, match=r"caltech101' cannot be read .*TFDS \(version 3\)"):
        open_data(f"vtab:{tmp_path}:caltech101")
    assert source_of(read_spec(f"vtab:{tmp_path}:caltech101")) == ""  # so that a table of all tasks goes on without it


def test_a_task_is_cut_from_raw_files_as_from_those_of_tfds(tmp_path: Path) -> None:
    made = smallnorb(tmp_path / "smallnorb", train=900, test=410)
    spec = read_spec(f"vtab:{tmp_path}:smallnorb-azimuth")
    data = open_task(spec, HOW, most_test=None)
    azimuth = {split: {one.key: one.labels["smallnorb-azimuth"] for one in made[split]} for split in made}
    train, test = (tfds_order(split, list(azimuth[split])) for split in ("train", "test"))
    expected = {"train": train[:800], "validation": test[:200], "test": test[205:]}
    for split, keys in expected.items():
        labels = azimuth["train" if split == "train" else "test"]
        assert data.splits[split].labels().tolist() == [labels[key] for key in keys]
    assert int(data.splits["train"].image(3)[0, 0, 0]) == int(train[3]) % 200 + 1
    facts = (
        ("smallnorb-azimuth", "authors", "TFDS's rule"),
        ("900 train images", "smallNORB has 24,300"),
        ("410 test images", "smallNORB has 24,300"),
        ("smallnorb-azimuth", "12,150 images", "205"),
    )
    for note, stated in zip(data.notes, facts, strict=False):
        assert all(fact in note for fact in stated), note
    assert len(data.notes) >= len(facts)
    assert all(fact in source_of(spec) for fact in ("authors' files", "not compared with TFDS"))
    few = open_task(spec, HOW, most_test=7)
    assert len(few.splits["test"]) == 7
    assert few.notes[3] == data.notes[3]  # of all that are there


def abbeys(root: Path) -> None:
    for split, name in SUN_LISTS.items():
        write(root / name, f"/a/abbey/{split}.jpg\n")
        _, content = cv2.imencode(".png", np.full((300, 800, 3), (10, 120, 200), np.uint8))
        write(root / f"SUN397/a/abbey/{split}.jpg", content.tobytes())


def test_large_images_of_sun397_are_made_as_small_as_tfds_makes_them(tmp_path: Path) -> None:
    abbeys(tmp_path)
    data = FORMS["sun397"].read(tmp_path)
    pixels = read_image(data.store.read(data.splits["train"].indices[0]))
    assert pixels.shape == (212, 566, 3)  # sqrt(1/2) of each side
    assert np.abs(pixels.astype(int) - [200, 120, 10]).max() <= 3


def eye(radius: int, *, spot: int) -> bytes:
    pixels = np.zeros((2 * radius + 21, 2 * radius + 81, 3), np.uint8)
    middle = (pixels.shape[1] // 2, pixels.shape[0] // 2)
    cv2.circle(pixels, middle, radius, (60, 60, 60), thickness=-1)
    cv2.circle(pixels, middle, 4, (spot, spot, spot), thickness=-1)
    return cv2.imencode(".png", pixels)[1].tobytes()


def retinopathy(root: Path) -> None:
    for folder, names in (("train", ("4_left", "4_right")), ("test", ("1_left", "1_right", "3_left"))):
        for name in names:
            write(root / folder / f"{name}.jpeg", eye(60, spot=75))
    table(root / "trainLabels.csv", [["image", "level"], ["4_left", "0"], ["4_right", "4"]])
    rows = [["1_left", "2", "Private"], ["1_right", "1", "Public"], ["3_left", "3", "Private"]]
    table(root / "retinopathy_solution.csv", [["image", "level", "Usage"], *rows])


def test_eyes_are_scaled_sharpened_and_cut_as_tfds_does(tmp_path: Path) -> None:
    retinopathy(tmp_path)
    data = FORMS["diabetic_retinopathy_detection"].read(tmp_path)
    labels = {
        split: {str(key): images.features(number)["label"][0] for number, key in enumerate(images.keys)}
        for split, images in data.splits.items()
    }
    assert labels == {
        "train": {"4_left": 0, "4_right": 4},
        "validation": {"1_right": 1},
        "test": {"1_left": 2, "3_left": 3},
    }
    pixels = read_image(data.store.read(data.splits["train"].indices[0])).astype(int)
    assert pixels.shape == (540, 540, 3)  # nine tenths of a radius of 300 to each side
    assert np.abs(pixels[:20, :20] - 128).max() <= 2  # outside of the circle
    assert np.abs(pixels[270, 120:160] - 128).max() <= 3  # an even part is its own average
    spot = 4 * 15 * math.exp(-(20**2) / (2 * 10**2))  # of 20 pixels, 15 brighter, less its average by a Gaussian of 10
    assert np.abs(pixels[270, 270] - (128 + spot)).max() <= 3


@every_case(
    ("name", "image", "content", "said"),
    [
        ("diabetic_retinopathy_detection", "train/4_left.jpeg", b"no image", r"4_left\.jpeg' is not a readable image"),
        ("diabetic_retinopathy_detection", "train/4_left.jpeg", b"", r"4_left\.jpeg' is not a readable image"),
        ("sun397", "SUN397/a/abbey/train.jpg", b"no image", r"abbey/train\.jpg' is not a readable image"),
        ("sun397", "SUN397/a/abbey/train.jpg", b"", r"abbey/train\.jpg' is empty"),
    ],
)
def test_an_image_that_cannot_be_converted_is_named(
    tmp_path: Path, name: str, image: str, content: bytes, said: str
) -> None:
    retinopathy(tmp_path) if name.startswith("diabetic") else abbeys(tmp_path)
    write(tmp_path / image, content)
    data = FORMS[name].read(tmp_path)
    with pytest.raises(ImageError, match=said):
        data.store.read(data.splits["train"].indices[0])


def used(name: str, folder: Path) -> None:
    """List a dataset's training images, then open its first task."""
    whole_split(FORMS[name].read(folder), "train", folder)
    task = next(task for task in TASKS if task.dataset.partition("/")[0] == name)
    open_task(read_spec(f"vtab:{folder.parent}:{task.name}"), HOW)


def norb_of(azimuth: int) -> Callable[[Path], None]:
    """Write smallNORB with one azimuth, which the files count in steps of two."""

    def written(root: Path) -> None:
        smallnorb(root / "smallnorb", train=900, test=410)
        info = np.tile(np.array([[0, 0, 2 * azimuth, 0]], "<i4"), (900, 1))
        matrix(root / f"smallnorb/{NORB['train']}-info.mat", info)

    return written


def dmlab_of(label: list[bytes] | list[int]) -> Callable[[Path], None]:
    def written(root: Path) -> None:
        (root / "dmlab").mkdir()
        for split, count in (("train", 800), ("validation", 200), ("test", 3)):
            records = [
                example({"image": [png(1)], "filename": [f"{split} {number}".encode()], "label": label})
                for number in range(count)
            ]
            write_records(root / f"dmlab/dmlab-{split}.tfrecord-00000-of-00001", records)

    return written


@every_case(
    ("task", "written", "said"),
    [
        (
            "smallnorb-azimuth",
            norb_of(18),
            r"-dat\.mat\[\d+\]' has the class 18; VTAB's smallnorb-azimuth has 18; fetch",
        ),
        ("smallnorb-azimuth", norb_of(-1), r"-dat\.mat\[\d+\]' has the class -1; VTAB's"),
        (
            "dmlab",
            dmlab_of([b"x"]),
            r"dmlab-train.*\]': its features give no label \(invalid literal.*; fetch the dataset",
        ),
        ("dmlab", dmlab_of([6]), r"dmlab-train.*\]' has the class 6; VTAB's dmlab has 6; fetch the dataset again"),
    ],
)
def test_a_label_that_no_class_has_is_refused_with_the_image(
    tmp_path: Path, task: str, written: Callable[[Path], None], said: str
) -> None:
    written(tmp_path)
    with pytest.raises(DataError, match=said) as caught:
        open_data(f"vtab:{tmp_path}:{task}")
    assert "\n" not in str(caught.value)


def shorter(name: str, columns: int) -> Callable[[Path], None]:
    return lambda folder: matrix(folder / name, np.zeros((3, columns), "<i4"))


@every_case(
    ("name", "damage", "said"),
    [
        (
            "dtd",
            lambda folder: (folder / "dtd/labels/val1.txt").unlink(),
            "complete DTD: it has no 'labels/val1.txt'; unpack",
        ),
        (
            "dtd",
            lambda folder: (folder / "dtd/images/banded/banded_0001.jpg").unlink(),
            r"has no banded/banded_0001\.jpg, named in the lists; unpack dtd-r1",
        ),
        ("smallnorb", shorter(f"{NORB['test']}-info.mat", 4), r"-info\.mat' has 3 labels for 9 images"),
        ("smallnorb", lambda folder: (folder / f"{NORB['test']}-dat.mat").write_bytes(b"short"), "or damaged; fetch"),
        (
            "smallnorb",
            lambda folder: (folder / f"{NORB['train']}-info.mat").unlink(),
            r"has no 'smallnorb-5x46789x9x18x6x2x96x96-training-info\.mat'; gunzip",
        ),
        (
            "clevr",
            lambda folder: (folder / "CLEVR_v1.0/images/val/CLEVR_val_000003.png").unlink(),
            r"CLEVR_val_scenes\.json' has 7 scenes for 6 images; unpack",
        ),
        (
            "clevr",
            lambda folder: write(folder / "CLEVR_v1.0/scenes/CLEVR_val_scenes.json", "{}"),
            "holds no scenes of CLEVR",
        ),
        (
            "kitti",
            lambda folder: (folder / "data_object_label_2.zip").unlink(),
            r"has no label 000000, 000001.*; put data_object_l",
        ),
        (
            "dmlab",
            lambda folder: [path.unlink() for path in folder.glob("*test*")],
            r"has no 'dmlab-test\.tfrecord\.\.\.'",
        ),
        (
            "eurosat",
            lambda folder: write(folder / "copy/2750/Forest/Forest_1.jpg", png(1)),
            "has two train images 'Forest_",
        ),
        (
            "patch_camelyon",
            lambda folder: (folder / "camelyonpatch_level_2_split_test_y.h5").write_bytes(b"none"),
            "cannot be read as an HDF5 file",
        ),
        ("svhn_cropped", lambda folder: None, r"has 12 train images, and 'train\[:800\]' takes more"),
        ("sun397", lambda folder: (folder / "sun397_tfds_te.txt").unlink(), "copy it from TFDS's repository"),
    ],
)
def test_incomplete_raw_files_are_refused_in_one_line(
    tmp_path: Path, name: str, damage: Callable[[Path], object], said: str
) -> None:
    folder = tmp_path / name
    WRITERS[name](folder)
    damage(folder)
    with pytest.raises(DataError, match=said) as caught:
        used(name, folder)
    assert "\n" not in str(caught.value)


def test_without_the_package_raw_files_are_refused_in_one_line_and_prepared_ones_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("smallnorb", "svhn_cropped"):
        WRITERS[name](tmp_path / name)
    (tmp_path / "wds_vtab-svhn").mkdir()  # others are not drawn where the official ones are
    records = [example({"image": [png(1)], "filename": [b"a.jpg"], "label": [i % 6]}) for i in range(1_010)]
    for split, count in (("train", 810), ("validation", 200), ("test", 9)):
        write_split(tmp_path / "dmlab" / "2.0.1", "dmlab", split, [records[:count]])
    raw, prepared = (read_spec(f"vtab:{tmp_path}:{name}") for name in ("svhn", "dmlab"))
    assert "authors' files" in source_of(raw)
    monkeypatch.setitem(sys.modules, "vitral_vtab", None)  # as where it is not installed
    with pytest.raises(DataError) as caught:
        open_task(raw, HOW)
    message = str(caught.value)
    assert "\n" not in message
    assert all(fact in message for fact in (str(tmp_path), "svhn_cropped, smallnorb", "authors", "vitral-vtab"))
    assert all(f"pip install {name}" in message for name in ("vitral-vtab", "./packages/vitral-vtab"))
    assert source_of(raw) == ""
    assert len(open_task(prepared, HOW).splits["train"]) == 800
    assert "official" in source_of(prepared)
