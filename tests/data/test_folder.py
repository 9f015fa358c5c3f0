"""Folders of images: classes by name, correct splits, nothing skipped silently."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.checks.check_data import check_data
from vitral.data.bad_images import check_few
from vitral.data.listing import Opening
from vitral.data.loader import TrainingBatches
from vitral.data.names import natural_key
from vitral.data.open import list_data, open_data
from vitral.data.source import BadImage
from vitral.errors import DataError, ImageError, UnreadableImagesError
from vitral.events import ignore
from vitral.images import decode

Make = Callable[[str, int], None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "photos"


@pytest.fixture
def make(root: Path) -> Make:
    def write(folder: str, count: int) -> None:
        (root / folder).mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(len(folder))
        for number in range(count):
            pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / folder / f"{number}.png")

    return write


def test_numbers_are_in_order_and_every_class_is_in_every_split(root: Path, make: Make) -> None:
    for name in ("1", "2", "10"):
        make(name, 10)
    data = open_data(root)
    assert data.class_names == ("1", "2", "10")
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 24, "validation": 3, "test": 3}
    for source in data.splits.values():
        assert set(source.labels().tolist()) == {0, 1, 2}
        for index in range(len(source)):
            assert Path(source.describe(index)).parent.name == data.class_names[int(source.labels()[index])]


def test_a_class_missing_from_a_split_shifts_nothing(root: Path, make: Make) -> None:
    for name in ("a", "b", "c"):
        make(f"train/{name}", 4)
    for name in ("a", "c"):
        make(f"val/{name}", 2)
        make(f"test/{name}", 2)
    data = open_data(root)
    assert data.splits["test"].labels().tolist() == [0, 0, 2, 2]
    assert any("No test images of 1 of the 3 classes: b" in note for note in data.notes)


def test_classes_are_matched_to_the_classifiers_by_name(root: Path, make: Make) -> None:
    make("cat", 3)
    make("ant", 3)
    data = open_data(root, class_names=["dog", "cat", "ant"], trained_on="")
    assert set(data.splits["test"].labels().tolist()) == {1, 2}
    assert len(data.splits["test"]) == 6
    with pytest.raises(DataError, match="does not know the class 'cat'.*Did you mean 'cats'"):
        open_data(root, class_names=["cats", "ant"])


def test_a_folder_trained_on_is_scored_on_what_was_left_out(root: Path, make: Make) -> None:
    make("cat", 10)
    make("ant", 10)
    trained = open_data(root)
    again = open_data(root, class_names=trained.class_names, trained_on=trained.fingerprint)
    tests = [
        {data.splits["test"].describe(index) for index in range(len(data.splits["test"]))} for data in (trained, again)
    ]
    assert tests[0] == tests[1]
    make("cat", 11)
    assert len(open_data(root, trained_on=trained.fingerprint).splits["test"]) == 21


def test_it_is_split_alike_whatever_else_a_classifier_knows(root: Path, make: Make) -> None:
    for name in ("ant", "bee", "cat"):
        make(name, 20)
    trained = open_data(root)
    wider = open_data(root, class_names=("aardvark", *trained.class_names), trained_on=trained.fingerprint)
    for split, source in trained.splits.items():
        other = wider.splits[split]
        assert [source.describe(index) for index in range(len(source))] == [
            other.describe(index) for index in range(len(other))
        ]
        assert (other.labels() == source.labels() + 1).all()


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ({}, "There is no folder"),
        ({"only": 3}, r"only one class \('only'\)"),
        ({"a": 0, "b": 0}, "no classes"),
        ({"train/a": 2, "train/b": 2, "val/c": 1}, "'c' is in validation but has no training images"),
    ],
)
def test_what_is_not_a_dataset_is_refused(root: Path, make: Make, folders: dict[str, int], message: str) -> None:
    for name, count in folders.items():
        make(name, count)
    with pytest.raises(DataError, match=message):
        open_data(root)


def test_files_and_unknown_names_are_refused(root: Path, make: Make) -> None:
    make("a", 1)
    with pytest.raises(DataError, match="is a file"):
        open_data(root / "a" / "0.png")
    with pytest.raises(DataError, match="Did you mean 'digits'"):
        open_data("digit")


@pytest.mark.requirement(id="R9")
def test_bad_images_stop_or_are_listed(root: Path, make: Make) -> None:
    for name in ("a", "b"):
        make(name, 20)
    clean = open_data(root)
    before = {path: path.read_bytes() for path in root.rglob("*.png")}
    bad = [root / "a" / "x0.jpg", root / "b" / "x1.png", root / "b" / "sub" / "x2.gif"]
    bad[2].parent.mkdir()
    for path, content in zip(bad, (b"", b"\x89PNG\r\n\x1a\n", b"GIF89a"), strict=True):
        path.write_bytes(content)
    with pytest.raises(ImageError, match=r"3 of 43 .*x0.jpg.*`skip_bad_images=True`"):
        open_data(root, skip_bad_images=False)
    data = open_data(root)
    (note,) = [note for note in data.notes if "x0.jpg" in note]
    assert note.startswith("3 images")
    assert all(path.name in note for path in bad)
    assert sorted(image.path for image in data.bad_images) == sorted(map(str, bad))
    # Training continues as if the bad ones had never been there, bit for bit (R9).
    one, other = (
        TrainingBatches(
            opened.splits["train"], batch_size=8, image_size=(8, 8), augmentation=opened.augmentation, seed=0
        ).batch(3)
        for opened in (clean, data)
    )
    assert np.array_equal(one.images.numpy(), other.images.numpy())
    assert {path: path.read_bytes() for path in before} == before


def test_so_many_images_are_decoded_beforehand_as_the_time_has_room_for(root: Path, make: Make) -> None:
    for name in ("a", "b"):
        make(name, 20)
    (root / "b" / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    data = open_data(root, checking_seconds=0.0)
    (note,) = [note for note in data.notes if "decoded beforehand" in note]
    assert note.startswith("Only 1 of the 41 images were decoded beforehand, for which `time` has room;")
    assert sum(len(split) for split in data.splits.values()) == 41
    with pytest.raises(ImageError, match="1 of 41 images cannot be read"):
        open_data(root, checking_seconds=60.0, skip_bad_images=False)
    # Who wants unreadable images left out has all of them looked at.
    left = open_data(root, checking_seconds=0.0, skip_bad_images=True)
    assert [Path(image.path).name for image in left.bad_images] == ["x.png"]
    assert not any("decoded beforehand" in note for note in left.notes)


def test_what_is_left_out_does_not_depend_on_how_far_a_check_came(root: Path, make: Make) -> None:
    for name in ("a", "b"):
        make(name, 20)
    (root / "b" / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    first = np.random.default_rng(0).permutation(41)[0]  # the only image that a check without time looks at
    listing = list_data(str(root), Opening())
    Path(listing.store.name(listing.entries["all"][first].store_index)).write_bytes(b"\x89PNG\r\n\x1a\n")
    late, whole = open_data(root, checking_seconds=0.0), open_data(root)
    assert late.fingerprint == whole.fingerprint
    assert len(late.bad_images) == len(whole.bad_images) == 2


@every_case(
    ("damaged", "good", "is_refused"),
    [(3, 2, False), (4, 30, True), (4, 36, False), (6, 54, False), (6, 53, True)],
)
def test_up_to_a_tenth_or_three_images_are_left_out(tmp_path: Path, damaged: int, good: int, is_refused: bool) -> None:
    bad = [BadImage(f"{number}.jpg", "it is damaged") for number in range(damaged)]
    refusing = pytest.raises(UnreadableImagesError, match=f"{damaged} of {damaged + good} ")
    with refusing if is_refused else contextlib.nullcontext():
        check_few(bad, damaged + good, (), skip=None)
    check_few(bad, damaged + good, ("dog",), skip=True)
    with pytest.raises(UnreadableImagesError, match="class dog"):
        check_few(bad[:1], 1000, ("dog",), skip=None)


def test_a_class_is_never_left_out_as_a_whole(root: Path, make: Make) -> None:
    for name in ("a", "b"):
        make(name, 20)
    (root / "c").mkdir()
    (root / "c" / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(UnreadableImagesError, match="class c"):
        open_data(root)
    assert open_data(root, skip_bad_images=True).class_names == ("a", "b")


def test_photos_that_lack_their_reader_are_no_damage(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "formats", lambda: decode.FORMATS)
    for name in ("a", "b"):
        make(name, 20)
    for number in range(9):
        (root / "a" / f"{number}.HEIC").write_bytes((Path(__file__).parents[1] / "images" / "turned.heic").read_bytes())
    data = open_data(root)
    assert len(data.bad_images) == 9
    (note,) = [note for note in data.notes if "HEIC" in note]
    assert note.startswith("9 HEIC photos")
    assert "pip install pi-heif" in note
    assert any("9 HEIC photos" in problem and "pip install" in problem for problem in check_data(root).problems())


def test_other_files_are_reported_and_hidden_ones_ignored(root: Path, make: Make) -> None:
    make("a", 3)
    make("b", 3)
    make(".thumbnails", 3)
    (root / "a" / "notes.txt").write_text("x")
    (root / "a" / ".hidden.png").write_bytes(b"")
    data = open_data(root)
    assert data.class_names == ("a", "b")
    assert any("1 file " in note and "not named like images" in note and "a/notes.txt" in note for note in data.notes)


def test_names_of_classes_that_may_be_mistakes_are_said(root: Path, make: Make) -> None:
    for name in ("Cat", "cat", "red fox", "Red_Fox", "test", "dog"):
        make(name, 3)
    data = open_data(root)
    assert set(data.class_names) == {"Cat", "cat", "red fox", "Red_Fox", "test", "dog"}
    alike = next(note for note in data.notes if "capitals" in note)
    assert "'Cat' and 'cat'" in alike
    assert "'Red_Fox' and 'red fox'" in alike
    assert "dog" not in alike
    assert any("'test'" in note and "'train'" in note for note in data.notes)
    assert "2 classes under several names" in check_data(root, listener=ignore).problems()
    plain = root.parent / "plain"
    for name in ("Cat", "dog"):
        (plain / name).mkdir(parents=True)
        (root / name / "0.png").rename(plain / name / "0.png")
        (root / name / "1.png").rename(plain / name / "1.png")
    assert not any("capitals" in note or "'train'" in note for note in open_data(plain).notes)


def test_names_may_be_anything(root: Path, make: Make) -> None:
    make("Füchse 🦊 & co", 3)
    make("two words\nand a line", 3)
    data = open_data(root)
    assert data.splits["train"].image(0).shape == (12, 16, 3)


def test_natural_order() -> None:
    names = ["x10", "x9", "x", "a2b10", "a2b9", "10", "9"]
    assert sorted(names, key=natural_key) == ["9", "10", "a2b9", "a2b10", "x", "x9", "x10"]


def test_where_the_only_class_folder_has_folders_of_its_own_that_one_is_proposed(root: Path, make: Make) -> None:
    for name, count in {"photos/hat": 2, "photos/dress": 2, "photos": 3}.items():
        make(name, count)
    with pytest.raises(DataError, match="only one class") as refused:
        open_data(root)
    assert all(fact in str(refused.value) for fact in (f"'{root / 'photos'}'", "2 classes: dress, hat"))
    assert open_data(root / "photos").class_names == ("dress", "hat")
