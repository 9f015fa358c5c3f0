"""Datasets as their authors publish them: labels and splits in lists beside the images, in MATLAB's files, in XML."""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.test_foreign_tables import by_name, sizes, write
from tests.data.test_labels import notes
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import DataError, ImageError

BIRDS = ("001.Albatross", "002.Auklet")
EACH = 12


def lines(path: Path, rows: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))


def write_cub(folder: Path, names: Mapping[str, str]) -> None:
    """Write the three lists of CUB-200-2011: of each twelve images of a class the first eight are to train on."""
    images = [f"{name}/{number}.png" for name in BIRDS for number in range(EACH)]
    write(folder / "images", images)
    lines(folder / "images.txt", (f"{number} {image}" for number, image in enumerate(images, 1)))
    lines(folder / "image_class_labels.txt", (f"{n} {1 + (n > EACH)}" for n in range(1, 2 * EACH + 1)))
    lines(folder / "train_test_split.txt", (f"{n} {int((n - 1) % EACH < 8)}" for n in range(1, 2 * EACH + 1)))
    lines(folder / "bounding_boxes.txt", (f"{n} 1.0 2.0 3.0 4.0" for n in range(1, 2 * EACH + 1)))
    lines(folder / "classes.txt", (f"{number} {name}" for number, name in names.items()))


def splits(data: DataSet) -> dict[str, Counter[str]]:
    """Return how many images each split has of each class."""
    classes = by_name(data)
    return {
        split: Counter(name for index in range(len(source)) for name in classes[source.describe(index)])
        for split, source in data.splits.items()
    }


@every_case(
    ("names", "expected"),
    [
        ({"1": BIRDS[0], "2": BIRDS[1]}, BIRDS),
        ({"0": "Birds", "1": "Oak Titmouse (Adult)", "2": "Wood Duck"}, ("Oak Titmouse (Adult)", "Wood Duck")),
        ({"1": "Duck", "2": "Duck"}, ("1", "2")),
        ({}, ("1", "2")),
    ],
)
@every_case("inside", ["", "CUB_200_2011"])
def test_cubs_lists_are_joined_by_the_images_ids(
    tmp_path: Path, names: dict[str, str], expected: tuple[str, ...], inside: str
) -> None:
    write_cub(tmp_path / inside, names)
    data = open_data(tmp_path)
    assert data.class_names == expected
    assert splits(data)["test"] == dict.fromkeys(expected, 4)
    assert sizes(data) == {"train": 14, "validation": 2, "test": 8}
    assert all(classes == (expected[BIRDS[1] in path],) for path, classes in by_name(data).items())


def test_an_image_that_one_of_cubs_lists_lacks_is_left_out(tmp_path: Path) -> None:
    write_cub(tmp_path, {})
    path = tmp_path / "train_test_split.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    (tmp_path / "images" / BIRDS[0] / "1.png").unlink()
    assert ["image 1," in bad.reason or "1.png" in bad.reason for bad in open_data(tmp_path).bad_images] == [True] * 2
    with pytest.raises(ImageError, match=f"2 of {2 * EACH} images"):
        open_data(tmp_path, skip_bad_images=False)


def write_voc(folder: Path, objects: Mapping[str, Iterable[str]], sets: Mapping[str, Iterable[str]]) -> None:
    write(folder / "JPEGImages", (f"{name}.png" for name in objects))
    for name, inside in objects.items():
        items = (f"<object><name>{each}</name><difficult>1</difficult></object>" for each in inside)
        lines(folder / "Annotations" / f"{name}.xml", ["<annotation>", *items, "</annotation>"])
    for split, names in sets.items():
        lines(folder / "ImageSets" / "Main" / f"{split}.txt", names)
        lines(folder / "ImageSets" / "Main" / f"cat_{split}.txt", (f"{name} -1" for name in names))


OBJECTS = {f"2007_{n:06d}": (("cat", "cat"), ("dog", "cat"), ("dog",), ())[n % 4] for n in range(24)}


def test_vocs_images_have_the_classes_of_their_objects_and_its_splits(tmp_path: Path) -> None:
    ids = list(OBJECTS)
    sets = {"train": ids[:8], "val": ids[8:16], "trainval": ids[:16], "test": ids[16:]}
    write_voc(tmp_path / "VOCdevkit" / "VOC2007", OBJECTS, sets)
    data = open_data(tmp_path)
    assert data.multi_label
    assert sizes(data) == {"train": 8, "validation": 8, "test": 8}
    assert data.class_names == ("cat", "dog")
    assert by_name(data).keys() == {str(tmp_path / "VOCdevkit/VOC2007/JPEGImages" / f"{name}.png") for name in ids}
    assert all(set(classes) == {*OBJECTS[Path(path).stem]} for path, classes in by_name(data).items())
    assert "boxes are not read" in notes(data)


def test_vocs_form_of_one_object_an_image_has_one_class_each_without_lists(tmp_path: Path) -> None:
    write_voc(tmp_path, {f"{n}": (("cat", "dog")[n % 2],) for n in range(20)}, {})
    data = open_data(tmp_path)
    assert not data.multi_label
    assert sum(splits(data).values(), Counter()) == {"cat": 10, "dog": 10}


def test_images_of_voc_without_annotations_are_to_predict_and_damaged_ones_are_bad(tmp_path: Path) -> None:
    ids = list(OBJECTS)
    write_voc(tmp_path, OBJECTS, {"trainval": ids[:16], "test": ids[16:]})
    for name in ids[16:]:
        (tmp_path / "Annotations" / f"{name}.xml").unlink()
    (tmp_path / "Annotations" / f"{ids[3]}.xml").write_text("<annotation>" * 100_000)
    data = open_data(tmp_path)
    assert "test" not in data.splits
    assert [ids[3] in bad.reason for bad in data.bad_images] == [True]


def test_two_years_of_voc_are_refused_by_their_names(tmp_path: Path) -> None:
    for year in ("VOC2007", "VOC2012"):
        write_voc(tmp_path / year, {"1": ("cat",), "2": ("dog",)}, {})
    with pytest.raises(DataError, match="VOC2007, VOC2012"):
        open_data(tmp_path)


def write_lists(folder: Path, lists: Mapping[str, Mapping[str, str]], images: str = "images") -> None:
    """Write lists, each given as images with what stands behind them, and the images."""
    write(folder / images, dict.fromkeys(image for rows in lists.values() for image in rows))
    for name, rows in lists.items():
        lines(folder / name, (f"{image.removesuffix('.png')} {label}".strip() for image, label in rows.items()))


def numbered(first: int, count: int, label: Mapping[int, str]) -> dict[str, str]:
    return {f"{number}.png": label[number % len(label)] for number in range(first, first + count)}


def test_of_lists_with_several_kinds_of_classes_the_finest_are_read(tmp_path: Path) -> None:
    kinds = {
        "manufacturer": {0: "Boeing", 1: "Boeing", 2: "Airbus"},
        "variant": {0: "707-320", 1: "Boeing 717", 2: "A300"},
    }
    lists = {
        f"data/images_{kind}_{split}.txt": numbered(first, 9, label)
        for kind, label in kinds.items()
        for first, split in ((0, "train"), (9, "val"), (18, "test"))
    }
    write_lists(tmp_path, lists, "data/images")
    lines(tmp_path / "data" / "images_train.txt", (str(number) for number in range(9)))
    data = open_data(tmp_path)
    assert set(data.class_names) == {"707-320", "Boeing 717", "A300"}
    assert sizes(data) == {"train": 9, "validation": 9, "test": 9}
    assert "images_manufacturer_train.txt" in notes(data)


def test_of_several_splits_the_first_is_read(tmp_path: Path) -> None:
    each = [f"{name}/{name}_{number}.png" for name in ("banded", "dotted") for number in range(9)]
    write(tmp_path / "images", each)
    for number in (1, 2, 10):
        for place, split in enumerate(("train", "val", "test")):
            lines(tmp_path / "labels" / f"{split}{number}.txt", each[(place + number) % 3 :: 3])
    data = open_data(tmp_path)
    assert {Path(path).relative_to(tmp_path / "images").as_posix() for path in by_name(data)} == {*each}
    assert sizes(data) == {"train": 6, "validation": 6, "test": 6}
    there = {data.splits["train"].describe(index) for index in range(6)}
    assert there == {str(tmp_path / "images" / name) for name in each[1::3]}
    assert "train2.txt" in notes(data)


@every_case(("train", "test", "suffix"), [("TrainImages", "TestImages", ".png"), ("meta/train", "meta/test", "")])
def test_lists_whose_folders_are_the_classes_and_what_they_leave_out(
    tmp_path: Path, train: str, test: str, suffix: str
) -> None:
    each = [f"{name}/{number}" for name in ("bakery", "bar") for number in range(14)]
    write(tmp_path / "images", (f"{name}.png" for name in each))
    chosen = {train: [name for name in each if int(Path(name).name) < 8], test: [each[12], each[26]]}
    for name, listed in chosen.items():
        lines(tmp_path / f"{name}.txt", (f"{image}{suffix}" for image in listed))
    data = open_data(tmp_path)
    assert splits(data)["test"] == {"bakery": 1, "bar": 1}
    assert sum(sizes(data).values()) == 18
    assert "10 images" in notes(data)


@every_case("file", ["train_list.mat", "devkit/cars_train_annos.mat"])
@every_case("packed", [False, True])
def test_splits_in_matlabs_files_are_refused_until_lists_say_them(tmp_path: Path, file: str, packed: bool) -> None:
    each = [f"{name}/{number}.png" for name in ("n1-beagle", "n2-collie") for number in range(8)]
    write(tmp_path / "Images", each)
    lines(tmp_path / file, ["MATLAB 5.0"])
    data = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path) if packed else str(tmp_path)
    with pytest.raises(DataError, match=f"Stanford .*{Path(file).name}.*train.txt"):
        open_data(data)
    assert sum(sizes(open_data(tmp_path / "Images")).values()) == 16
    lines(tmp_path / "train.txt", (f"{name} {name[:2]}" for name in each))
    assert open_data(tmp_path).class_names == ("n1", "n2")


@every_case("form", ["cub", "voc"])
def test_lists_of_labels_in_an_archive_are_to_be_unpacked(tmp_path: Path, form: str) -> None:
    if form == "cub":
        write_cub(tmp_path / "set", {})
    else:
        write_voc(tmp_path / "set", OBJECTS, {})
    with pytest.raises(DataError, match="unpack"):
        open_data(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "set"))


@every_case("file", ["annotations/instances_train2017.json", "train/_annotations.coco.json", "data.yaml"])
def test_boxes_of_other_forms_are_named(tmp_path: Path, file: str) -> None:
    write(tmp_path / "images", (f"{number}.png" for number in range(8)))
    lines(tmp_path / file, ["{}"])
    with pytest.raises(DataError, match=f"Boxes.*{Path(file).name}"):
        open_data(tmp_path)


@every_case("file", ["legend.csv", "classes.csv", "labels.csv"])
def test_other_names_of_numbered_folders_are_not_taken_and_said(tmp_path: Path, file: str) -> None:
    write(tmp_path, (f"{name}/{number}.png" for name in range(3) for number in range(8)))
    lines(tmp_path / file, ["ClassId,Name", "0,stop", "1,yield", "2,priority"])
    data = open_data(tmp_path)
    assert data.class_names == ("0", "1", "2")
    assert file in notes(data)
