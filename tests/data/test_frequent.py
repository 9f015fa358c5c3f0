"""frequent:COUNT:SOURCE: the classes of many images, the first of each held out."""

from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.written import WRITERS, encode
from vitral.data.open import is_data_name, open_data, path_in, seen_from_here
from vitral.errors import DataError


def photos(folder: Path) -> Path:
    for name, count in {"ant": 31, "bee": 30, "cat": 29, "dog": 12}.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"{number}.png").write_bytes(encode(ord(name[0]), number))
    return folder


def names(source: str, split: str) -> list[str]:
    images = open_data(source).splits[split]
    return [str(Path(images.describe(index)).relative_to(path_in(source))) for index in range(len(images))]


def test_classes_of_more_images_than_the_count_are_kept(tmp_path: Path) -> None:
    source = f"frequent:29:{photos(tmp_path / 'photos')}"
    data = open_data(source)
    assert data.class_names == ("ant", "bee")
    assert {split: len(images) for split, images in data.splits.items()} == {"train": 57, "validation": 4}
    # By their numbers, 2 before 10.
    assert names(source, "validation") == ["ant/0.png", "ant/1.png", "bee/0.png", "bee/1.png"]
    assert "ant/10.png" in names(source, "train")
    note = next(note for note in data.notes if "classes have more than" in note)
    assert note.startswith("2 of 4 classes have more than 29 images and are kept; the others' 41 are left out.")


def test_a_tenth_of_the_count_is_held_out_of_each(tmp_path: Path) -> None:
    data = open_data(f"frequent:10:{photos(tmp_path)}")
    assert len(data.class_names) == 4
    assert len(data.splits["validation"]) == 4


@every_case(
    ("spec", "said"),
    [
        ("frequent:500", "does not name the frequent classes"),
        ("frequent:many:photos", "does not name the frequent classes"),
        ("frequent:9:photos", "with a count of at least 10"),
        ("frequent:500:", "does not name the frequent classes"),
        ("frequent:500:digits", "'digits' is opened as it is"),
        ("frequent:500:nowhere", "no folder 'nowhere'"),
    ],
)
def test_what_is_refused(spec: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        open_data(spec)


def test_too_few_frequent_classes_and_data_with_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 1 classes of more than 30 images; take a lower count"):
        open_data(f"frequent:30:{photos(tmp_path / 'photos')}")
    with pytest.raises(DataError, match="has splits of its own"):
        open_data(f"frequent:10:{WRITERS['folder'](tmp_path)}")


def test_the_name_holds_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "here" / "photos")
    assert is_data_name("frequent:10:photos")
    assert path_in("frequent:10:photos") == "photos"
    monkeypatch.chdir(tmp_path)
    assert seen_from_here("frequent:10:photos", "here") == "frequent:10:here/photos"
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    assert len(open_data("frequent:10:~/photos").class_names) == 4
    assert path_in("frequent:10:~/photos") == str(tmp_path / "here" / "photos")
