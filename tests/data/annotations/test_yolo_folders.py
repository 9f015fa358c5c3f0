"""YOLO's folders, lists and names as users have them: splits are those that data.yaml says, classes those that it names."""

from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import VitralError
from vitral.tasks.regions import Regions

SCENES = dict(list(drawn.SCENES.items())[:8])
TRAIN, HELD = list(SCENES)[:5], list(SCENES)[5:]
NAMES = "names: [cell, platelet]\n"


def write(folder: Path, images: str = "images", labels: str = "labels", names: list[str] | None = None) -> None:
    for name in SCENES if names is None else names:
        drawn.draw(folder / images / f"{name}.png", SCENES[name])
        path = folder / labels / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(drawn.yolo_text(SCENES[name]))


def listed(folder: Path, where: str, train: str = "train.txt", held: str = "val.txt") -> None:
    for file, names in ((train, TRAIN), (held, HELD)):
        (folder / file).write_text("\r\n".join(where.format(name) for name in names))


def splits(data: DataSet) -> dict[str, list[str]]:
    return {
        split: sorted(Path(source.describe(index)).stem for index in range(len(source)))
        for split, source in data.splits.items()
    }


@every_case(
    ("where", "description"),
    [
        ("./images/train/{}.png", "train: train.txt\nval: val.txt\n"),
        ("C:\\Users\\me\\set\\images\\train\\{}.png", "train: C:\\Users\\me\\set\\train.txt\nval: D:\\old\\val.txt\n"),
        ("/home/pi/images/train/{}.png", "path: /home/pi\ntrain: /home/pi/train.txt\nval: /home/pi/val.txt\n"),
    ],
)
def test_lists_divide_photos_of_one_folder(tmp_path: Path, where: str, description: str) -> None:
    write(tmp_path, "images/train", "labels/train")
    listed(tmp_path, where)
    (tmp_path / "data.yaml").write_text(NAMES + description)
    data = open_data(tmp_path, near=False)
    assert splits(data) == {"train": TRAIN, "validation": HELD}


@every_case(
    "description",
    ["train: images/train\nval: images/held\n", "train: C:\\me\\images\\train\nval: C:\\me\\images\\held\n"],
)
def test_folders_of_any_name_are_the_splits_that_the_description_says(tmp_path: Path, description: str) -> None:
    write(tmp_path, "images/train", "labels/train", TRAIN)
    write(tmp_path, "images/held", "labels/held", HELD)
    (tmp_path / "data.yaml").write_text(NAMES + description)
    assert splits(open_data(tmp_path, near=False)) == {"train": TRAIN, "validation": HELD}


def test_photos_that_are_said_to_be_of_both_splits_are_divided(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "data.yaml").write_text(f"{NAMES}train: images\nval: images\n")
    found = splits(open_data(tmp_path, near=False))
    assert sorted(name for names in found.values() for name in names) == list(SCENES)
    assert len(found["train"]) > len(found["validation"]) > 0
    (tmp_path / "val.txt").write_text(f"images/{HELD[0]}.png\n")  # of which the other split has all
    (tmp_path / "data.yaml").write_text(f"{NAMES}train: images\nval: val.txt\n")
    assert splits(open_data(tmp_path, near=False))["validation"] == HELD[:1]


def test_darknets_files_say_names_and_lists(tmp_path: Path) -> None:
    write(tmp_path, "data/obj", "data/obj")
    (tmp_path / "data" / "own.names").write_text("cell\nplatelet\n")
    (tmp_path / "data" / "obj.data").write_text(
        "classes = 2\ntrain = data/train.txt\nvalid = data/held.txt\nbackup = b/\n"
    )
    listed(tmp_path / "data", "data/obj/{}.png", held="held.txt")
    data = open_data(tmp_path, near=False)
    assert data.class_names == drawn.NAMES
    assert splits(data) == {"train": TRAIN, "validation": HELD}


@every_case(("images", "labels"), [("Images", "Labels"), ("a/IMAGES/b", "a/labels/b"), ("images", "images")])
def test_folders_are_found_in_whatever_case(tmp_path: Path, images: str, labels: str) -> None:
    write(tmp_path, images, labels)
    (tmp_path / labels / f"{TRAIN[0]}.txt").unlink()  # nothing is marked there
    data = open_data(tmp_path, near=False)
    assert sum(map(len, splits(data).values())) == len(SCENES)


def test_roundings_of_both_edges_are_no_mistake(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "labels" / f"{TRAIN[0]}.txt").write_text("0 -0.0003 0.5 0.2 0.5\n")
    data = open_data(tmp_path, near=False)
    assert not data.bad_images
    found = {
        Path(source.describe(n)).stem: source.label(n) for source in data.splits.values() for n in range(len(source))
    }
    label = found[TRAIN[0]]
    assert isinstance(label, Regions)
    assert label.boxes[0].tolist() == pytest.approx([0, 15, 0.0997 * drawn.WIDTH, 45])


def test_of_several_descriptions_the_one_that_is_called_so_counts(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "coco.yaml").write_text("names: [person, bicycle, car]\n")
    (tmp_path / "data.yaml").write_text(NAMES)
    assert open_data(tmp_path, near=False).class_names == drawn.NAMES


@every_case("names", ["cell, platelet", "{cell: 0, platelet: 1}"])
def test_names_that_are_not_understood_are_one_line(tmp_path: Path, names: str) -> None:
    write(tmp_path)
    (tmp_path / "data.yaml").write_text(f"names: {names}\n")
    with pytest.raises(VitralError, match="'names' is to be a list"):
        open_data(tmp_path)
