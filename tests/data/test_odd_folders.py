"""Folders as they are: links that lead back or nowhere, nested classes, and what Vitral itself wrote among the images."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.data.classes import READINGS, Reading
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import DataError, ImageError
from vitral.paths import walk

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write the given number of images into each folder below photos/."""

    def write(counts: dict[str, int], root: str = "photos") -> Path:
        return write_images(tmp_path / root, counts)

    return write


def write_images(root: Path, counts: dict[str, int]) -> Path:
    rng = np.random.default_rng(len(counts))
    for name, count in counts.items():
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    return root


def count(data: DataSet) -> int:
    return sum(len(source) for source in data.splits.values())


def notes(data: DataSet) -> str:
    return "\n".join(data.notes)


def test_a_broken_link_is_one_line_or_left_out(make: Make) -> None:
    root = make({"a": 5, "b": 5})
    (root / "a" / "gone.png").symlink_to("nowhere.png")
    (root / "b" / "self.png").symlink_to("self.png")
    (root / "b" / "note.txt").symlink_to("nowhere.txt")
    (root / "lost").symlink_to("nowhere")
    with pytest.raises(ImageError, match=r"2 of 12 .*gone.png' .*link .*`skip_bad_images=True`"):
        open_data(root, skip_bad_images=False)
    data = open_data(root)
    assert count(data) == 10
    assert sorted(Path(bad.path).name for bad in data.bad_images) == ["gone.png", "self.png"]
    assert "2 links" in notes(data)


def test_each_real_folder_is_read_once(make: Make) -> None:
    root = make({"a": 6, "b": 6})
    (root / "a" / "loop").symlink_to("..")
    (root / "b" / "other").symlink_to("../a")
    (root / "A-again").symlink_to("a")  # sorts before the folder that it leads to
    data = open_data(root)
    assert data.class_names == ("a", "b")
    assert count(data) == 12
    assert "3 links" in notes(data)


def test_links_to_folders_elsewhere_are_followed(make: Make) -> None:
    elsewhere = make({"cats": 4, "dogs": 4}, "pool")
    root = make({"mice": 4})
    (root / "cats").symlink_to(elsewhere / "cats")
    (root / "dogs").symlink_to(elsewhere / "dogs")
    data = open_data(root)
    assert data.class_names == ("cats", "dogs", "mice")
    assert count(data) == 12


def test_a_pipe_in_a_class_is_a_bad_image(make: Make) -> None:
    root = make({"a": 5, "b": 5})
    os.mkfifo(root / "a" / "pipe.png")
    with pytest.raises(ImageError, match=r"1 of 11 .*pipe.png' is not a regular file"):
        open_data(root, skip_bad_images=False)


def run_folder(root: Path) -> None:
    """Write what a run leaves, an image among it."""
    (root / "images").mkdir(parents=True)
    (root / "run.json").write_text(json.dumps({"kind": "fine-tune", "data_fingerprint": "0"}))
    Image.new("RGB", (8, 8)).save(root / "images" / "training.png")


def test_what_vitral_wrote_is_not_data(make: Make) -> None:
    root = make({"a": 5, "b": 5})
    before = open_data(root)
    run_folder(root / "runs" / "photos")
    run_folder(root / "a" / "run")
    (root / "kept").mkdir()
    (root / "kept" / "classifier.json").write_text('{"format": "vitral-classifier"}')
    Image.new("RGB", (8, 8)).save(root / "kept" / "drawing.png")
    (root / "lost" / "checkpoints").mkdir(parents=True)
    (root / "lost" / "recipe.toml").write_text("")
    Image.new("RGB", (8, 8)).save(root / "lost" / "image.png")
    after = open_data(root)
    assert after.class_names == before.class_names
    assert after.fingerprint == before.fingerprint
    assert "4 folders" in notes(after)
    assert "runs/photos" in notes(after)
    with pytest.raises(DataError, match="that Vitral wrote"):
        open_data(root / "runs" / "photos")


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar"])
def test_what_vitral_wrote_is_not_data_in_an_archive(make: Make, kind: str) -> None:
    root = make({"a": 5, "b": 5})
    before = open_data(shutil.make_archive(str(root.parent / "before"), kind, root.parent, "photos"))
    run_folder(root / "runs" / "x")
    (root / "runs" / "x" / "recipe.toml").write_text("")
    (root / "runs" / "x" / "classifier").mkdir()
    (root / "runs" / "x" / "classifier" / "classifier.json").write_text('{"format": "vitral-classifier"}')
    shutil.copytree(root / "runs" / "x" / "classifier", root / "kept")
    (root / "kept" / "weights.safetensors").write_bytes(b"")
    Image.new("RGB", (8, 8)).save(root / "kept" / "drawing.png")
    shutil.copytree(root / "runs" / "x", root / "a" / "run")
    (root / "lost" / "checkpoints" / "step-1").mkdir(parents=True)
    (root / "lost" / "checkpoints" / "step-1" / "state.json").write_text("")
    (root / "lost" / "recipe.toml").write_text("")
    Image.new("RGB", (8, 8)).save(root / "lost" / "image.png")
    archive = shutil.make_archive(str(root.parent / "after"), kind, root.parent, "photos")
    after = open_data(archive)
    assert after.class_names == before.class_names == ("a", "b")
    assert count(after) == 10
    assert "4 folders" in notes(after)
    assert "photos/runs/x" in notes(after)
    assert "no images in class folders" not in notes(after)
    assert [image.name.split(":")[1] for image in list_unlabelled(archive)] == [
        f"photos/{name}/{number}.png" for name in "ab" for number in range(5)
    ]
    alone = shutil.make_archive(str(root.parent / "alone"), kind, root / "runs" / "x", ".")
    for read in (open_data, list_unlabelled):
        with pytest.raises(DataError, match="that Vitral wrote"):
            read(alone)


def test_an_archive_of_nothing_but_runs_has_no_images_to_predict(tmp_path: Path) -> None:
    run_folder(tmp_path / "all" / "runs" / "x")
    (tmp_path / "all" / "note.txt").write_text("")
    archive = shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path / "all")
    with pytest.raises(ImageError, match="all.zip' holds no images"):
        list_unlabelled(archive)


@every_case(
    "system",
    [
        *("@eaDir/IMG_1.jpg", "#recycle/cats", "#snapshot/GMT-1/photos/cats", "@Recycle", "@Recently-Snapshot/x"),
        *("$RECYCLE.BIN/S-1-5-21", "System Volume Information", "lost+found", "LOST.DIR", "FOUND.000"),
    ],
)
@every_case("parent", ["", "a/"])
def test_what_a_system_left_is_not_data_and_is_named(tmp_path: Path, system: str, parent: str) -> None:
    root, hidden = tmp_path / "photos", (".@__thumb", ".Trash-1000/files", ".thumbnails", "__MACOSX/a")
    write_images(root, {"a": 6, "b": 6, parent + system: 3, **dict.fromkeys(hidden, 2)})
    (root / "a" / "Thumbs.db").write_bytes(b"no image")
    (root / "a" / "._1.png").write_bytes(b"no image")
    for data in (open_data(root), open_data(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "photos"))):
        assert data.class_names == ("a", "b")
        assert count(data) == 12
        assert (parent + system).rsplit("/", system.count("/"))[0] in notes(data)
        assert "2 folders" not in notes(data)
        assert "not named like images" not in notes(data)
    assert len(list_unlabelled(str(root))) == 12


def test_a_users_files_of_the_same_names_are_data_in_an_archive(make: Make) -> None:
    root = make({"soups": 5, "stews": 5})
    (root / "soups" / "recipe.toml").write_text("name = 'soup'")
    (root / "soups" / "run.json").write_text("{}")
    (root / "stews" / "classifier.json").mkdir()
    (root / "stews" / "classifier.json" / "note.txt").write_text('"vitral-classifier"')
    archive = shutil.make_archive(str(root.parent / "photos"), "zip", root)
    assert count(open_data(archive)) == 10
    assert len(list_unlabelled(archive)) == 10


def test_a_users_files_of_the_same_names_are_data(make: Make) -> None:
    root = make({"soups": 5, "stews": 5})
    (root / "soups" / "recipe.toml").write_text("name = 'soup'")
    (root / "soups" / "run.json").write_text("{}")
    (root / "stews" / "classifier.json").write_text("{}")
    assert count(open_data(root)) == 10


GROCERIES = {"Fruit/Apple/Golden": 4, "Fruit/Apple/Granny": 4, "Fruit/Pear": 4, "Packages/Juice": 4, "Packages/Milk": 4}
YEARS = {"cat/2023": 4, "cat/2024": 4, "dog/2023": 4, "dog/2024": 4}
PARTS = {"cat": 4, "cat/old": 2, "dog": 4, "mouse/new": 3}
SAME = {"fruit/apple": 4, "fruit/pear": 4, "fruit/other": 4, "milk/cream": 4, "milk/other": 4}


@pytest.mark.parametrize(
    ("folders", "reading", "expected"),
    [
        (GROCERIES, None, ("Golden", "Granny", "Juice", "Milk", "Pear")),
        (GROCERIES, "top", ("Fruit", "Packages")),
        (
            GROCERIES,
            "path",
            ("Fruit/Apple/Golden", "Fruit/Apple/Granny", "Fruit/Pear", "Packages/Juice", "Packages/Milk"),
        ),
        (YEARS, None, ("cat", "dog")),
        (YEARS, "leaf", ("2023", "2024")),
        (PARTS, None, ("cat", "dog", "mouse")),
        (SAME, None, ("fruit/apple", "fruit/other", "fruit/pear", "milk/cream", "milk/other")),
        ({"data/set/cat": 4, "data/set/dog": 4}, None, ("cat", "dog")),
        ({f"photos/Dataset/{digit}": 4 for digit in range(3)}, None, ("0", "1", "2")),
    ],
)
@pytest.mark.parametrize("archived", [False, True])
def test_nested_folders(
    make: Make, folders: dict[str, int], reading: Reading | None, expected: tuple[str, ...], archived: bool
) -> None:
    root = make(folders)
    spec = Path(shutil.make_archive(str(root), "zip", root)) if archived else root
    data = open_data(spec, classes=reading)
    assert data.class_names == expected
    assert count(data) == sum(folders.values())
    told = "`classes` leaf, top or path" in notes(data)
    assert told == (
        reading is None
        and any("/" in name for name in folders)
        and "photos/Dataset/0" not in folders
        and "data/set/cat" not in folders
    )


def of_classes(*splits: str) -> dict[str, int]:
    return {f"{split}/{name}": 4 for split in splits for name in ("cat", "dog")}


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (of_classes("training_set", "test_set"), ("train", "validation", "test")),
        (
            of_classes("seg_train/seg_train", "seg_test/seg_test") | {"seg_pred/seg_pred": 3},
            ("train", "validation", "test"),
        ),
        (of_classes("train", "my-val"), ("train", "validation")),
        (of_classes("train", "validate"), ("train", "validation")),
        (
            of_classes("photos/train", "photos/test") | {"docs": 0, "__MACOSX/photos/train/cat": 2},
            ("train", "validation", "test"),
        ),
    ],
)
def test_splits_of_other_names_are_splits(make: Make, folders: dict[str, int], splits: tuple[str, ...]) -> None:
    data = open_data(make(folders))
    assert data.class_names == ("cat", "dog")
    assert data.splits.keys() == {*splits}
    assert ("seg_pred" in notes(data)) == ("seg_pred/seg_pred" in folders)


@pytest.mark.parametrize(
    ("folders", "classes"),
    [
        ({"bus": 4, "car": 4, "train": 4}, ("bus", "car", "train")),  # the vehicle
        (
            {"bus station/day": 4, "train station/day": 4, "test track/day": 4},
            ("bus station", "test track", "train station"),
        ),
        ({"training shoes": 4, "test tubes": 4}, ("test tubes", "training shoes")),
        ({"1": 4, "01": 4, "2": 4}, ("01", "1", "2")),
    ],
)
def test_classes_whose_names_are_like_splits_or_each_other_are_classes(
    make: Make, folders: dict[str, int], classes: tuple[str, ...]
) -> None:
    assert open_data(make(folders)).class_names == classes


def test_folders_beside_the_splits_are_named(make: Make) -> None:
    data = open_data(make({**of_classes("train", "val"), "later": 3, "extra/cat": 2}))
    assert "beside train/, val/ are left out: extra, later." in notes(data)
    assert "5 images" in notes(data)


def test_a_refusal_says_what_was_left_out(make: Make) -> None:
    root = make({"cats": 0, "dogs": 0})
    for name in ("cats/1.psd", "dogs/license plate.psd"):
        (root / name).write_bytes(b"no matter")
    (root / "README.dataset.txt").write_text("which nobody takes for an image")
    with pytest.raises(
        DataError, match=r"no classes.*2 files in .* are not named like images, and left out: cats/1.psd, "
    ):
        open_data(root)
    alone = make({"images": 4}, "labelled")
    (alone / "labels.csv").write_text("image,label\nimages/0.png,cat\nimages/1.png,dog\n")
    for data in (alone, alone / "labels.csv"):
        assert open_data(data).class_names == ("cat", "dog")


@pytest.mark.parametrize(
    "tables", [["train/labels.csv"], ["test/predictions.csv"], ["train/a/notes.csv", "test/b/train.csv", "notes.csv"]]
)
@pytest.mark.parametrize("parent", ["", "shop/"])
def test_tables_in_the_folders_of_splits_and_classes_are_not_read(make: Make, tables: list[str], parent: str) -> None:
    root = make({f"{parent}{split}/{name}": 3 for split in ("train", "test") for name in ("a", "b")})
    for name in tables:
        (root / parent / name).write_text("image,label\n0.png,c\n" if "labels" in name else "source,label\n")
    data = open_data(root)
    assert data.class_names == ("a", "b")
    assert count(data) == 12
    said = f"{tables[0]}' is not read: " if len(tables) == 1 else "' and 2 more tables are not read: "
    assert f"{said}folders name the classes" in notes(data)


def test_tables_in_a_folder_of_a_class_are_not_read(make: Make) -> None:
    root = make({"a": 5, "b": 5})
    (root / "a" / "train-notes.csv").write_text("text\n")
    assert open_data(root).class_names == ("a", "b")


@pytest.mark.parametrize("where", ["", "lists"])
def test_tables_of_splits_beside_the_folders_are_read(make: Make, where: str) -> None:
    root = make({"train/a": 4, "train/b": 4, "test/a": 2, "test/b": 2})
    (root / where).mkdir(exist_ok=True)
    for split in ("train", "test"):
        rows = [f"{root}/{split}/{name}/{number}.png,{label}" for name, label in ("ac", "bd") for number in range(2)]
        (root / where / f"{split}.csv").write_text("\n".join(["image,label", *rows]))
    (root / "test" / "predictions.csv").write_text("source,label\n")
    data = open_data(root)
    assert data.class_names == ("c", "d")
    assert count(data) == 8


def test_tables_in_splits_whose_images_are_in_one_folder_are_read(make: Make) -> None:
    root = make({"train/images": 4, "test/images": 4})
    for split in ("train", "test"):
        rows = [f"images/{number}.png,{'cd'[number % 2]}" for number in range(4)]
        (root / split / "labels.csv").write_text("\n".join(["image,label", *rows]))
    data = open_data(root)
    assert data.class_names == ("c", "d")
    assert count(data) == 8


def test_nested_folders_below_splits_are_read_one_way(make: Make) -> None:
    root = make({f"shop/{split}/{name}": 3 for split in ("train", "val", "test") for name in GROCERIES})
    data = open_data(root)
    assert len(data.class_names) == 5
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 15, "validation": 15, "test": 15}


def test_a_class_that_lies_elsewhere_in_another_split_is_the_same_class(make: Make) -> None:
    root = make(
        {
            "train/Fruit/Apple/Golden": 3,
            "train/Fruit/Pear/Anjou": 3,
            "train/Vegetables/Mushroom": 3,
            "test/Fruit/Apple/Golden": 2,
            "test/Fruit/Pear/Anjou": 2,
            "test/Vegetables/Brown/Mushroom": 2,
        }
    )
    data = open_data(root)
    assert data.class_names == ("Anjou", "Golden", "Mushroom")
    assert np.bincount(data.splits["test"].labels()).tolist() == [2, 2, 2]


def test_a_classifiers_names_choose_the_reading(make: Make) -> None:
    root = make(GROCERIES)
    for reading in READINGS:
        names = open_data(root, classes=reading).class_names
        again = open_data(root, class_names=names, trained_on="")
        assert count(again) == 20
        assert set(again.splits["test"].labels().tolist()) == set(range(len(names)))


def test_an_unknown_reading_is_refused(make: Make) -> None:
    with pytest.raises(DataError, match="Did you mean 'leaf'"):
        open_data(make({"a": 3, "b": 3}), classes="leafs")  # type: ignore[arg-type]


def test_what_is_missing_is_counted(make: Make) -> None:
    names = [f"class-{number}" for number in range(12)]
    root = make({f"train/{name}": 2 for name in names} | {"val/class-3": 1})
    assert "No validation images of 11 of the 12 classes" in notes(open_data(root))
    with pytest.raises(DataError, match=r"'class-0' \(and 9 more of the 12\)"):
        open_data(root, class_names=["class-2", "class-11"])


def test_a_walk_ends_on_any_tree(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for target in ("..", "../a", "../b", "../c", "."):
            (tmp_path / name / f"to{target.replace('/', '-')}").symlink_to(target)
    found = walk(tmp_path)
    assert found.folders == ["", "a", "b", "c"]
    assert len(found.again) == 15


def test_photos_that_icloud_has_not_brought_are_counted(make: Make) -> None:
    root = make({"a": 5, "b": 5, "c": 0})
    for name in ("a/.IMG_1.HEIC.icloud", "c/.IMG_2.JPG.icloud"):
        (root / name).write_bytes(b"bplist00")
    data = open_data(root)
    assert data.class_names == ("a", "b")
    assert "2 files in" in notes(data)
    assert "iCloud has not brought to this machine, left out: a/.IMG_1.HEIC.icloud, c/.IMG_2.JPG.icloud" in notes(data)


def test_folders_named_like_columns_are_noted(make: Make) -> None:
    data = open_data(make({"label=cat": 3, "label=dog": 3}))
    assert data.class_names == ("label=cat", "label=dog")
    assert any("'label='" in note for note in data.notes)
    assert not any("=" in note for note in open_data(make({"a=b": 3, "c": 3}, "other")).notes)


def test_one_is_no_plural(make: Make) -> None:
    photos = make({"cat": 3, "dog": 3})
    (photos / "gone.txt").symlink_to(photos / "nowhere")
    shutil.copy(photos / "cat" / "0.png", photos / "loose.png")
    notes = " ".join(open_data(photos).notes)
    assert "1 link " in notes
    assert "1 image " in notes
