"""Datasets as TFDS prepares them: which version, which files, which records."""

from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.vtab.written import write_split
from vitral.data.vtab.prepared import find
from vitral.errors import DataError

TEN = [[b"a", b"b", b"c"], [b"d"], [b"e", b"f", b"g", b"h", b"i", b"j"]]


def records(root: Path, part: str) -> bytes:
    prepared = find(root, "things", 3)
    assert prepared is not None
    return b"".join(prepared.files[file].read(index) for file, index in prepared.locate(part))


@every_case("said", [True, False], ids=["lengths said", "counted"])
@every_case(
    ("part", "expected"),
    [
        ("train", b"abcdefghij"),
        ("train[:3]", b"abc"),
        ("train[2:5]", b"cde"),
        ("train[4:]", b"efghij"),
        ("train[50%:]", b"fghij"),
        ("train[:20%]", b"ab"),
        ("train[3:4]", b"d"),
    ],
)
def test_a_slice_counts_over_the_files_in_order(tmp_path: Path, part: str, expected: bytes, *, said: bool) -> None:
    write_split(tmp_path / "things" / "3.0.2", "things", "train", TEN)
    if not said:
        (tmp_path / "things" / "3.0.2" / "dataset_info.json").unlink()
    assert records(tmp_path, part) == expected


def test_files_that_a_slice_does_not_need_are_not_opened(tmp_path: Path) -> None:
    write_split(tmp_path / "things" / "3.0.2", "things", "train", [50_000, [b"x", b"y"], 1_000])
    assert records(tmp_path, "train[50000:50002]") == b"xy"


@every_case(
    ("there", "taken"),
    [
        (["3.0.2"], "3.0.2"),
        (["3.0.2", "3.1.0", "4.0.0"], "3.1.0"),
        (["3.9.0", "3.10.0"], "3.10.0"),
        (["2.0.0", "4.0.0"], "4.0.0"),
        (["incomplete.3.0.0"], None),
        ([], None),
    ],
)
def test_the_newest_of_the_wanted_version_is_taken(tmp_path: Path, there: list[str], taken: str | None) -> None:
    for version in there:
        (tmp_path / "things" / version).mkdir(parents=True)
    prepared = find(tmp_path, "things", 3)
    assert (None if prepared is None else prepared.version) == taken


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "things" / "3.0.2"
    write_split(folder, "things", "train", TEN)
    (folder / "things-train.tfrecord-00001-of-00003").unlink()
    with pytest.raises(DataError, match=r"lacks 1 of the 3 files of train \(the first is number 1\)"):
        records(tmp_path, "train[:2]")


def test_a_missing_split_is_named_beside_those_that_there_are(tmp_path: Path) -> None:
    write_split(tmp_path / "things" / "3.0.2", "things", "train", TEN)
    with pytest.raises(DataError, match=r"no files of the split 'validation' \(splits: train\)"):
        records(tmp_path, "validation[:2]")


def test_a_slice_beyond_the_end_is_refused(tmp_path: Path) -> None:
    write_split(tmp_path / "things" / "3.0.2", "things", "train", TEN)
    with pytest.raises(DataError, match=r"has 10 train images, and 'train\[:800\]' takes more"):
        records(tmp_path, "train[:800]")


def test_a_file_with_other_records_than_the_dataset_says_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "things" / "3.0.2"
    write_split(folder, "things", "train", TEN)
    path = folder / "things-train.tfrecord-00000-of-00003"
    path.write_bytes((folder / "things-train.tfrecord-00001-of-00003").read_bytes())
    with pytest.raises(DataError, match="has 1 records and should have 3; prepare it again"):
        records(tmp_path, "train[:2]")


@every_case("text", ["a\nb\n", "a\nb", "\na\n\nb\n"])
def test_class_names_are_the_lines_of_their_list(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "things" / "3.0.2"
    folder.mkdir(parents=True)
    (folder / "label.labels.txt").write_text(text)
    prepared = find(tmp_path, "things", 3)
    assert prepared is not None
    assert prepared.names() == ("a", "b")
    (folder / "label.labels.txt").write_text("a\na\n")
    with pytest.raises(DataError, match=r"label\.labels\.txt' names a class twice"):
        prepared.names()
