"""Splits made by Vitral: every class in each, identical images in the same one, and the same splits if none are identical."""

import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitral.checks.check_data import check_data
from vitral.data import assemble, subset
from vitral.data.open import open_data
from vitral.data.source import DataSet


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of 20 images."""
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = np.random.default_rng([number, len(name), ord(name[0])]).integers(0, 256, (24, 24, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def images(data: DataSet) -> Iterator[tuple[str, bytes]]:
    """Yield split and pixels of every image."""
    for split, source in data.splits.items():
        for index in range(len(source)):
            yield split, source.image(index).tobytes()


def names(data: DataSet, split: str) -> list[str]:
    return [Path(data.splits[split].describe(index)).name for index in range(len(data.splits[split]))]


def test_identical_images_stay_in_one_split(photos: Path) -> None:
    for number in range(20):
        for copy in range(3):
            shutil.copy(photos / "cat" / f"{number}.png", photos / "cat" / f"{number}-{copy}.png")
    data = open_data(photos)
    sides: dict[bytes, set[str]] = defaultdict(set)
    for split, pixels in images(data):
        sides[pixels].add(split)
    assert all(len(splits) == 1 for splits in sides.values())
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 80, "validation": 10, "test": 10}
    assert any("20 groups" in note for note in data.notes)
    assert data.shared_out == ("train", "validation", "test")
    assert check_data(photos).leaks == 0


def test_images_that_are_all_the_same_are_noted_once(photos: Path) -> None:
    note = "nothing tells their 2 classes apart"
    assert not any(note in line for line in open_data(photos).notes)
    for path in photos.glob("*/*"):
        Image.new("RGB", (24, 24)).save(path)
    (line,) = (line for line in open_data(photos).notes if note in line)
    assert line.startswith("All 40 images are one and the same")


def test_a_class_of_nothing_but_another_ones_images_is_trained_on(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (photos / "dog" / f"{number}.png").unlink()
    for number in (3, 7):
        shutil.copy(photos / "cat" / f"{number}.png", photos / "dog" / f"same-{number}.png")
    for seed in range(8):
        monkeypatch.setattr(subset, "SPLIT_SEED", seed)
        data = open_data(photos)
        assert set(data.splits["train"].labels().tolist()) == {0, 1}
        sides: dict[bytes, set[str]] = defaultdict(set)
        for split, pixels in images(data):
            sides[pixels].add(split)
        assert all(len(splits) == 1 for splits in sides.values())
    assert "different classes" in "; ".join(check_data(photos).problems())


def test_without_identical_images_the_splits_are_unchanged(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = open_data(photos)
    assert not any("Identical images" in note for note in compared.notes)
    monkeypatch.setattr(assemble, "hash_contents", lambda *_, **__: {})
    plain = open_data(photos)
    for split in ("train", "validation", "test"):
        assert names(plain, split) == names(compared, split)


def write(folder: Path, classes: dict[str, int]) -> Path:
    """Write images of noise into class folders."""
    random = np.random.default_rng(3)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / name / f"{number}.png")
    return folder


def test_classes_of_too_few_images_to_be_scored_are_named(tmp_path: Path) -> None:
    small = {f"class {number}": 2 for number in range(12)}
    data = open_data(write(tmp_path / "photos", {"large": 30, **small}))
    split, few, _ = data.notes
    assert all(fact in split for fact in ("No train/", "80% train", "10% validation", "10% test")), split
    assert all(fact in few for fact in ("12 classes", "class 0, class 1, class 2, class 3, class 4, … (12 in all)")), (
        few
    )
    assert set(data.splits["test"].labels().tolist()) == {data.class_names.index("large")}
    data = open_data(write(tmp_path / "more" / "train", {"cat": 1, "dog": 20}).parent)
    split, judged, few, unequal = data.notes
    assert all(fact in unequal for fact in ("18 training images of dog", "1 of cat")), unequal
    assert all(fact in split for fact in ("No val/", "10% of the training images")), split
    assert all(fact in judged for fact in ("No test photos", "validation")), judged
    assert all(fact in few for fact in ("1 class ", ": cat.")), few


def test_where_all_classes_have_too_few_images_no_split_is_claimed(tmp_path: Path) -> None:
    data = open_data(write(tmp_path / "photos", {"cat": 2, "dog": 2}))
    assert list(data.splits) == ["train"]
    (note,) = data.notes
    assert all(fact in note for fact in ("No train/", "too few images of each class")), note
    data = open_data(write(tmp_path / "sorted" / "train", {"cat": 1, "dog": 1}).parent)
    assert list(data.splits) == ["train"]
    split, judged = data.notes
    assert all(fact in split for fact in ("No val/", "too few images of each class")), split
    assert all(fact in judged for fact in ("No test photos", "training")), judged


def test_classes_without_validation_images_are_scored_where_there_are_test_images(tmp_path: Path) -> None:
    write(tmp_path / "photos" / "train", {"cat": 1, "dog": 20})
    data = open_data(write(tmp_path / "photos" / "test", {"cat": 3, "dog": 3}).parent)
    note, unequal = data.notes
    assert all(fact in note for fact in ("No val/", "10% of the training images")), note
    assert "unequal" in unequal


def test_a_validation_split_drawn_from_changed_training_images_is_said_to_hold_learned_ones(tmp_path: Path) -> None:
    folder = write(tmp_path / "photos" / "train", {"cat": 20, "dog": 20}).parent
    learned = open_data(folder)
    assert subset.DRAWN_ANEW not in (*learned.notes, *open_data(folder, trained_on=learned.fingerprint).notes)
    Image.new("RGB", (8, 8), (200, 10, 10)).save(folder / "train" / "cat" / "new.png")
    assert subset.DRAWN_ANEW not in open_data(folder).notes
    assert subset.DRAWN_ANEW in open_data(folder, trained_on=learned.fingerprint).notes
    shutil.copytree(folder / "train", folder / "val")
    assert subset.DRAWN_ANEW not in open_data(folder, trained_on=learned.fingerprint).notes


def test_archives_are_split_like_folders(photos: Path) -> None:
    shutil.copy(photos / "cat" / "0.png", photos / "cat" / "again.png")
    archived = Path(shutil.make_archive(str(photos), "zip", photos))
    one, other = open_data(photos), open_data(archived)
    assert dict(images(one)).keys() == dict(images(other)).keys()
    assert sorted(images(one)) == sorted(images(other))


def test_a_check_names_what_it_finds(photos: Path) -> None:
    smooth = np.add.outer(np.arange(24) * 5, np.arange(24) * 5)
    for place, folder in enumerate(("cat", "dog")):
        pixels = np.stack([smooth + 2 * place, smooth, smooth + 7], axis=2).astype(np.uint8)
        for number in range(8):
            pixels[0, number] = 200
            Image.fromarray(pixels).save(photos / folder / f"like-{number}.png")
    ours = "; ".join(check_data(photos).problems())
    assert "several sides of the split" not in ours
    assert "groups of images that look alike have different classes" in ours
    assert "equal images" not in ours
    for split in ("train", "test"):
        shutil.copytree(photos, photos.parent / "split" / split)
    theirs = "; ".join(check_data(photos.parent / "split").problems())
    assert "groups of equal images stand in several splits" in theirs
