"""Archives and shards by what they hold, not by what they are called: compressed, with files of one name, with tables."""

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.test_foreign_tables import sizes
from tests.data.written import encode
from vitral.data.open import open_data
from vitral.errors import DataError, ImageError

NAMES = ("cat", "dog", "bird")
COUNT = 18
PHOTOS = [(f"{NAMES[number % 3]}/{number}.png", encode(0, number)) for number in range(COUNT)]
File = tuple[str, bytes]


def tar(path: Path, files: Iterable[File], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def packed(path: Path, files: Iterable[File]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path


def examples(label: Callable[[int], str], numbers: Iterable[int] = range(COUNT), kind: str = "cls") -> list[File]:
    return [
        file
        for number in numbers
        for file in ((f"{number:04d}.png", encode(0, number)), (f"{number:04d}.{kind}", label(number).encode()))
    ]


@every_case(
    ("name", "mode"),
    [
        ("photos.tar", "w:gz"),
        ("photos.tar", "w:xz"),
        ("photos.tar", "w:bz2"),
        ("photos.tgz", "w"),
        ("photos.tar.xz", "w:gz"),
    ],
)
def test_how_a_tar_is_compressed_is_told_by_its_bytes(tmp_path: Path, name: str, mode: str) -> None:
    assert set(open_data(tar(tmp_path / name, PHOTOS, mode)).class_names) == {*NAMES}


@every_case("name", ["train-0.tar", "train-0.tar.gz"])
def test_a_compressed_shard_is_to_be_unpacked(tmp_path: Path, name: str) -> None:
    shard = tar(tmp_path / name, examples(lambda number: str(number % 3)), "w:gz")
    for spec in (shard, str(tmp_path / name.replace("0", "{0..0}"))):
        with pytest.raises(DataError, match=r"is compressed \(gzip\).* unpack it"):
            open_data(spec)


@every_case("pack", [tar, packed], ids=lambda pack: pack.__name__)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_photos_of_one_name_in_an_archive_the_last_counts(tmp_path: Path, pack: Callable[..., Path]) -> None:
    again = [(name, encode(1, number)) for number, (name, _) in enumerate(PHOTOS[:6])]
    data = open_data(pack(tmp_path / f"all.{'zip' if pack is packed else 'tar'}", [*PHOTOS, *again]))
    assert sum(sizes(data).values()) == COUNT
    found = {source.encoded(index) for source in data.splits.values() for index in range(len(source))}
    assert {content for _, content in again} < found


def test_a_table_in_an_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    rows = "image,label\n" + "\n".join(f"{number}.png,{NAMES[number % 3]}" for number in range(COUNT))
    flat = [(f"images/{number}.png", encode(0, number)) for number in range(COUNT)]
    with pytest.raises(DataError, match=r"has a table, labels\.csv, .* unpack it"):
        open_data(packed(tmp_path / "all.zip", [*flat, ("labels.csv", rows.encode())]))
    beside = packed(tmp_path / "classes.zip", [*PHOTOS, ("labels.csv", rows.encode())])
    assert set(open_data(beside).class_names) == {*NAMES}


def test_a_packing_that_is_not_read_is_no_damage(tmp_path: Path) -> None:
    path = packed(tmp_path / "photos.zip", PHOTOS)
    content = path.read_bytes()
    for start, method in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        pieces = content.split(start)
        content = start.join(
            [pieces[0], *(each[: method - 4] + b"\x09\x00" + each[method - 2 :] for each in pieces[1:])]
        )
    path.write_bytes(content)  # as Windows packs large files: "deflate64"
    with pytest.raises(ImageError, match=r"packed in a way that is not read .* unpack '.*photos\.zip'"):
        open_data(path)


@every_case("file", ["classes.txt", "classnames.txt"])
def test_names_above_the_splits_of_shards_are_their_classes(tmp_path: Path, file: str) -> None:
    for split, numbers in (("train", range(15)), ("test", range(15, COUNT))):
        tar(tmp_path / split / "0.tar", examples(lambda number: str(number % 3), numbers))
    (tmp_path / file).write_text("\n".join(NAMES))
    assert open_data(tmp_path).class_names == NAMES


@every_case(
    ("label", "kind", "names"),
    [
        (lambda number: json.dumps({"label": float(number % 3)}), "json", ("0", "1", "2")),
        (lambda number: json.dumps({"label": NAMES[number % 3] + " " * (number % 2)}), "json", ("bird", "cat", "dog")),
    ],
)
def test_labels_of_shards_are_read_as_those_of_tables(
    tmp_path: Path, label: Callable[[int], str], kind: str, names: tuple[str, ...]
) -> None:
    assert open_data(tar(tmp_path / "train-0.tar", examples(label, kind=kind))).class_names == names


@every_case(("label", "kind"), [("-1", "cls"), ('{"label": -1}', "json")])
def test_shards_of_a_test_split_without_labels_are_to_predict(tmp_path: Path, label: str, kind: str) -> None:
    def numbered(number: int) -> str:
        return str(number % 3) if kind == "cls" else json.dumps({"label": number % 3})

    tar(tmp_path / "train-0.tar", examples(numbered, kind=kind))
    tar(tmp_path / "test-0.tar", examples(lambda _: label, range(COUNT, COUNT + 6), kind))
    data = open_data(tmp_path)
    assert data.class_names == ("0", "1", "2")
    assert sum(sizes(data).values()) == COUNT
    assert any("6 images of the test split" in note for note in data.notes)
