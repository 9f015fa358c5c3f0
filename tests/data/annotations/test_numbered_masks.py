"""Masks whose values number the objects of each photo are read as objects; those of classes, however many, stay classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.tasks.regions import VOID, Regions

SIZE = (60, 80)
SIDE = 8  # of the squares that objects stand in, pixels
SQUARES = [(top, left) for top in range(0, SIZE[0] - SIDE, SIDE) for left in range(0, SIZE[1], SIDE)]
NUMBERS = (12, 15, 9, 20, 31, 17)  # of objects in each photo
FEW = (1, 2, 3, 1, 4, 2, 5, 8, 2, 1, 3, 7)
Map = np.ndarray


def drawn(values: Sequence[int], seed: int, *, parts: int = 1) -> Map:
    """Return a mask where each value has a square, or several that do not touch; neighbours of one value would."""
    squares = np.random.default_rng(seed).permutation(len(SQUARES))[: parts * len(values)]
    mask = np.zeros(SIZE, dtype=np.int64)
    for place, number in enumerate(squares.tolist()):
        top, left = SQUARES[number]
        mask[top : top + SIDE - (parts > 1), left : left + SIDE - (parts > 1)] = values[place % len(values)]
    return mask


def numbered(counts: Sequence[int] = NUMBERS) -> list[Map]:
    return [drawn(range(1, count + 1), seed) for seed, count in enumerate(counts)]


def write(
    folder: Path,
    masks: Sequence[Map],
    photo: str = "images/{}.png",
    mask: str = "masks/{}.png",
    kind: type[np.generic] = np.uint16,
) -> dict[str, Map]:
    """Write grey photos and their masks, and return the masks by the photos' paths."""
    written = {}
    for number, values in enumerate(masks):
        noise = np.random.default_rng(number).integers(0, 99, values.shape, dtype=np.uint8)
        for path, pixels in ((photo, noise + 120 * (values > 0).astype(np.uint8)), (mask, values.astype(kind))):
            file = folder / path.format(f"im{number}")
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
        written[photo.format(f"im{number}")] = values
    return written


def labels(data: DataSet, folder: Path) -> dict[str, Regions]:
    every = [(source, index) for source in data.splits.values() for index in range(len(source))]
    return {str(Path(source.describe(n)).relative_to(folder)): source.label(n) for source, n in every}  # type: ignore[misc]


def assert_objects(folder: Path, masks: dict[str, Map], spec: str = "{}") -> DataSet:
    data = open_data(spec.format(folder), near=False, verify=False)
    assert (data.task.name, data.class_names) == ("instances", ("object",))
    found = labels(data, folder)
    assert found.keys() == masks.keys()
    for photo, mask in masks.items():
        wanted = [value for value in np.unique(mask).tolist() if value]
        assert len(found[photo].classes) == len(wanted)
        assert all(
            np.array_equal(own, mask == value) for own, value in zip(found[photo].bitmaps(), wanted, strict=True)
        )
    return data


WRITTEN: dict[str, tuple[str, str, type[np.generic]]] = {
    "16-bit TIFF, as StarDist": ("images/{}.tif", "masks/{}.tif", np.uint16),
    "32-bit TIFF": ("images/{}.tif", "masks/{}.tif", np.int32),
    "floats, as ImageJ": ("images/{}.tif", "labels/{}.tif", np.float32),
    "Cellpose's window": ("{}.png", "{}_cp_masks.png", np.uint16),
    "Cellpose's data": ("{}_img.png", "{}_masks.png", np.uint16),
    "another word": ("{}.jpg", "{}_seg.png", np.uint8),
    "a point": ("{}.tif", "{}.labels.tif", np.uint16),
    "both": ("train/images/{}.tif", "train/masks/{}_cp_masks.tif", np.uint16),
    "Penn-Fudan": ("PNGImages/{}.png", "PedMasks/{}_mask.png", np.uint8),
}


@every_case("kind", list(WRITTEN))
def test_numbers_of_objects_are_an_object_each(tmp_path: Path, kind: str) -> None:
    data = assert_objects(tmp_path, write(tmp_path, numbered(), *WRITTEN[kind]))
    (note,) = [note for note in data.notes if "number the objects" in note]
    assert "31 in '" in note
    assert "classes.txt" in note


def test_few_objects_a_photo_and_hundreds(tmp_path: Path) -> None:
    assert_objects(tmp_path / "few", write(tmp_path / "few", numbered(FEW)))
    grid = np.arange(1, 401).reshape(20, 20)
    hundreds = [np.kron(grid[: 20 - less], np.ones((4, 4), dtype=np.int64)) for less in range(3)]
    assert_objects(tmp_path / "hundreds", write(tmp_path / "hundreds", hundreds))


def test_gaps_where_objects_were_deleted_and_a_border_of_255(tmp_path: Path) -> None:
    masks = numbered((27, 30, 24, 20, 31, 17))
    for number, mask in enumerate(masks):
        mask[np.isin(mask, [3 + number, 9])] = 0
    assert_objects(tmp_path / "gaps", write(tmp_path / "gaps", masks))
    bordered = [mask.copy() for mask in numbered()]
    for mask in bordered:
        mask[-2:] = 255
    write(tmp_path / "border", bordered, kind=np.uint8)
    found = labels(open_data(tmp_path / "border", near=False), tmp_path / "border")
    assert [len(found[f"images/im{number}.png"].classes) for number in range(6)] == list(NUMBERS)
    assert all(
        regions.ignored_bitmap()[-2:].all() and not regions.ignored_bitmap()[:-2].any() for regions in found.values()
    )


@every_case("task", ["semantic", "boxes", "instances"])
def test_other_tasks_are_had_by_prefixes(tmp_path: Path, task: str) -> None:
    masks = write(tmp_path, [*numbered(), np.zeros(SIZE, dtype=np.int64)])
    data = open_data(f"{task}:{tmp_path}", near=False)
    assert data.class_names == (("background", "object") if task == "semantic" else ("object",))
    for photo, found in labels(data, tmp_path).items():
        if task == "semantic":
            assert np.array_equal(found.class_map(), masks[photo] > 0)
        else:
            assert len(found.classes) == masks[photo].max()


@every_case("spec", ["{}", "instances:{}"])
def test_few_photos_for_a_classifier_of_objects_are_read_as_those_it_learned_from(tmp_path: Path, spec: str) -> None:
    masks = write(tmp_path, numbered((4, 3)))
    for classes, kind in ((None, ("1", "2", "3", "4")), (["object"], ("object",))):
        data = open_data(spec.format(tmp_path), class_names=classes, trained_on="", near=False, verify=False)
        assert tuple(name for name in data.class_names if name != "0") == kind
    assert {photo: len(found.classes) for photo, found in labels(data, tmp_path).items()} == {
        photo: mask.max() for photo, mask in masks.items()
    }


def subsets(of: Sequence[int], most: int, *, parts: int = 1) -> list[Map]:
    rng = np.random.default_rng(1)
    chosen = [sorted(rng.choice(of, int(rng.integers(most // 2, most + 1)), replace=False).tolist()) for _ in range(12)]
    return [drawn(values, seed, parts=parts) for seed, values in enumerate(chosen)]


CLASSES: dict[str, list[Map]] = {
    "150 classes, few in each photo": subsets(range(1, 151), 12),
    "as many as have names of a byte": subsets(range(1, 251), 30),
    "of streets, most in each photo": [drawn(range(1, 12), seed, parts=3) for seed in range(10)],
    "of streets, some missing": subsets(range(1, 12), 10, parts=3),
    "of a face": [drawn(range(1, 11 - (seed == 3)), seed) for seed in range(8)],
    "of a body": subsets(range(1, 25), 20),
    "an organ, a tumour, a cyst": [drawn(range(1, 2 + seed % 3), seed) for seed in range(9)],
    "heights of several parts": [drawn(range(1, 4 + seed), seed, parts=3) for seed in range(10)],
    "three photos of organs": [drawn(range(1, 6 + seed), seed) for seed in range(3)],
    "one photo": [drawn(range(1, 30), 0)],
}


@every_case("kind", list(CLASSES))
def test_classes_stay_classes(tmp_path: Path, kind: str) -> None:
    masks = write(tmp_path, CLASSES[kind])
    data = open_data(tmp_path, near=False, verify=False)
    there = sorted({value for mask in masks.values() for value in np.unique(mask).tolist()})
    assert (data.task.name, data.class_names) == ("semantic", tuple(map(str, there)))


def test_where_a_list_names_the_values_they_are_classes(tmp_path: Path) -> None:
    masks = write(tmp_path, numbered())
    (tmp_path / "classes.txt").write_text("".join(f"class {number}\n" for number in range(32)))
    data = open_data(tmp_path, near=False)
    assert (data.task.name, len(data.class_names)) == ("semantic", 32)
    for photo, found in labels(data, tmp_path).items():
        assert np.array_equal(found.class_map(), masks[photo])
        assert VOID not in found.class_map()


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_grey_photos_of_one_name_are_no_masks_of_each_other(tmp_path: Path, suffix: str) -> None:
    for number in range(6):
        rng = np.random.default_rng(number)
        for kind in ("labels", "images"):
            path = tmp_path / kind / f"{number}{suffix}"
            path.parent.mkdir(exist_ok=True)
            small = Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8))
            small.resize((80, 60), Image.Resampling.BICUBIC).save(path)
    data = open_data(tmp_path, near=False)
    assert (data.task.name, data.class_names) == ("single-label", ("images", "labels"))
