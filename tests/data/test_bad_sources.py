"""Every kind of damage to a source is one line, and what is no image is left."""

import io
import math
import os
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import every_case
from tests.data.written import EXPECTED, contents, encode, shard_bytes, write_folder, write_shards, write_tar, write_zip
from vitral.data.open import open_data
from vitral.errors import DataError, ImageError, VitralError


def damaged_zip(root: Path) -> Path:
    path = write_zip(root)
    path.write_bytes(path.read_bytes()[:-200])
    return path


def encrypted_zip(root: Path) -> Path:
    path = write_zip(root)
    data = bytearray(path.read_bytes())
    place = 0
    while (place := data.find(b"PK\x01\x02", place)) >= 0:
        data[place + 8] |= 1
        place += 4
    path.write_bytes(bytes(data))
    return path


def bomb(root: Path) -> Path:
    with zipfile.ZipFile(root / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/0.png", b"\0" * 50_000_000)
    return root / "bomb.zip"


def short_tar(root: Path) -> Path:
    path = write_tar(root)
    path.write_bytes(path.read_bytes()[:3000])
    return path


def short_gzip(root: Path) -> Path:
    path = write_tar(root, "photos.tar.gz", "w:gz")
    path.write_bytes(path.read_bytes()[:3000])
    return path


def backward_tar(root: Path, name: str = "back.tar") -> Path:
    """A member whose size leads back to its own header: read on, it never ends."""
    header = bytearray(tarfile.TarInfo("cat/0.png").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (-512 & (1 << 96) - 1).to_bytes(12, "big")
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    (root / name).write_bytes(bytes(header) + bytes(1024))
    return root / name


def lzma_zip(root: Path) -> Path:
    with zipfile.ZipFile(root / "packed.zip", "w", zipfile.ZIP_LZMA) as archive:
        for place in range(4):
            archive.writestr(f"{'ab'[place % 2]}/{place}.png", encode(0, place) * 4)
    data = bytearray((root / "packed.zip").read_bytes())
    data[60:120] = bytes(60)
    (root / "packed.zip").write_bytes(bytes(data))
    return root / "packed.zip"


def pipe(name: str) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        os.mkfifo(root / name)
        return root / name

    return write


def piped_names(root: Path) -> Path:
    folder = write_shards(root)
    (folder / "classes.txt").unlink()
    os.mkfifo(folder / "classes.txt")
    return folder


def long_numbers(root: Path) -> Path:
    """Names and labels of more digits than Python turns into a number."""
    with zipfile.ZipFile(root / "long.zip", "w") as archive:
        for number in range(3):
            archive.writestr(f"a/{'1' * 5000}{number}.png", encode(0, number))
    return root / "long.zip"


def text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        write_folder(root)
        path = root / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def table(**columns: list[object]) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        pq.write_table(pa.table(columns), root / "t.parquet")
        return root / "t.parquet"

    return write


def shard(sidecars: dict[str, str]) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        (root / "shards").mkdir()
        good = shard_bytes([("0", encode(0, 0), {"cls": "0"})])
        (root / "shards" / "train-0.tar").write_bytes(good)
        (root / "shards" / "train-1.tar").write_bytes(shard_bytes([("1", encode(0, 1), sidecars)]))
        return root / "shards"

    return write


BAD: list[tuple[Callable[[Path], Path | str], str]] = [
    (damaged_zip, "cannot be read as a zip file"),
    (encrypted_zip, "is encrypted"),
    (bomb, "no image is so large"),
    (short_tar, "tar"),
    (short_gzip, "cannot be read as a tar file"),
    (text("photos.tar", "no tar at all"), "cannot be read as a tar file"),
    (text("photos.zip", ""), "cannot be read as a zip file"),
    (text("photos.csv", ""), "no column of images (its columns: none)"),
    (text("photos.csv", "a,b\n1,2\n"), "no column of images (its columns: a, b)"),
    (text("photos.csv", "image,b\n1,2\n"), "no column of classes"),
    (text("photos.csv", "image,label\n,cat\n"), "line 2, names no image"),
    (text("photos.csv", "image,label\nx.png,\n"), "class for none"),
    (text("photos.csv", "image,label\nfolder/train/1/0.png,cat\ngone.png,dog\n"), "line 3) does not exist"),
    (text("photos.csv", "image,label,split\nfolder/train/1/0.png,cat,holdout\n"), "line 2, has the split 'holdout'"),
    (
        text("photos.csv", "image,label,split\nfolder/train/1/0.png,cat,test\nfolder/train/1/1.png,cat\n"),
        "line 3, has the split ''",
    ),
    (text("photos.csv", "image,label,split\nfolder/train/1/0.png,cat,\n"), "line 2, has the split ''"),
    (text("photos.csv", b"image,label\ncaf\x8e,cat\n"), "table of text in UTF-8"),
    (text("photos.parquet", "no parquet"), "cannot be read as a Parquet file"),
    (text("photos.docx", "no data"), "is a file; give the folder"),
    (table(other=["x"], label=["a"]), "no column of images"),
    (table(image=[b""] * 20, label=["a", "b"] * 10), "is empty; remove the row"),
    (table(image=[b"no image"] * 20, label=["a", "b"] * 10), "is not a readable image"),
    (table(image=[b"x"], label=[None]), "has no class"),
    (table(image=[b"x"] * 2, label=["a"] * 2, split=["train", None]), "row 1, has the split ''"),
    (table(image=[b"x"], label=["a"], split=[None]), "row 0, has the split ''"),
    (table(image=[b"x"], label=["a"], split=[math.nan]), "row 0, has the split ''"),
    (table(image=[b"x"], label=["a"], split=[1]), "row 0, has the split '1'"),
    (shard({"cls": "one"}), "hold numbers, such as 0, and names, such as 'one'"),
    (shard({"cls": "[1, 2]"}), "'[1, 2]'"),
    (shard({"cls": ""}), "cannot be read"),
    (shard({"cls": "-2"}), "must hold the number of a class"),
    (shard({"json": '{"x": 1}'}), 'neither "label" nor "labels"'),
    (shard({"json": '{"labels": [["a"], {"b": 1}]}'}), 'neither "label" nor "labels"'),
    (shard({"cls": "1000000000"}), "class of the number 1,000,000,000"),
    (shard({}), "an image without a class"),
    (shard({"cls": "9" * 5000}), "cannot be read"),
    (shard({"json": "[" * 100_000}), "cannot be read"),
    (text("photos.csv", f"image,label\n{'x' * 300}.png,cat\n"), "None of the 1 images"),
    (backward_tar, "claims a size of -512 bytes"),
    (lzma_zip, "is damaged in the archive"),
    (long_numbers, "only one class"),
    (pipe("data"), "is a pipe or a device"),
    (pipe("photos.csv"), "is a pipe or a device"),
    (pipe("photos.parquet"), "is a pipe or a device"),
    (pipe("photos.zip"), "is a pipe or a device"),
    (pipe("photos.tar"), "is a pipe or a device"),
    (pipe("photos.tar.gz"), "is a pipe or a device"),
    (lambda root: pipe("photos.csv")(root).parent, "is a pipe or a device"),
    (piped_names, "is a pipe or a device"),
    (lambda root: "/dev/zero", "is a pipe or a device"),
    (lambda root: "x" * 300, "There is no folder"),
    (lambda root: "zero\0byte", "There is no folder"),
    (lambda root: str(root / ("{0..999999}" * 2)), "too many"),
    (lambda root: str(root / f"{{0..{'9' * 5000}}}.tar"), "too many"),
    (lambda root: "memory://nowhere", "has no Parquet files"),
    (lambda root: "nothing://x", "cannot be reached"),
    (lambda root: "", "Name the data"),
]


@every_case("place", range(len(BAD)))
def test_bad_sources_are_refused_in_one_line(tmp_path: Path, place: int, memory: fsspec.AbstractFileSystem) -> None:
    write, message = BAD[place]
    with pytest.raises(VitralError) as refused:
        open_data(write(tmp_path), skip_bad_images=False)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@every_case(
    ("address", "package"),
    [
        ("s3://bucket/train.tar", "s3fs"),
        ("gs://bucket/photos.parquet", "gcsfs"),
        ("https://example.org/train-{000..009}.tar", "aiohttp"),
        ("s3://bucket/folder", "s3fs"),
    ],
)
def test_an_address_without_its_package_names_it(address: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"s3fs": "s3fs", "gcsfs": "gcsfs", "aiohttp": "fsspec.implementations.http"}[package]
    monkeypatch.setitem(sys.modules, module, None)  # an import of it fails
    monkeypatch.setattr(sys.modules["fsspec.registry"], "_registry", {})
    with pytest.raises(DataError) as refused:
        open_data(address)
    assert f"{package}: pip install 'vitral[remote]'" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.requirement(id="R17")
def test_members_that_are_not_regular_files_are_skipped(tmp_path: Path) -> None:
    """Thirty attacks by name and kind: nothing is ever written, and no name is used as a path (R17)."""
    before = sorted(path for path in tmp_path.rglob("*"))
    names = ["../../evil.png", "/etc/evil.png", "a/../../evil.png", "C:\\evil.png", "a/b\nc.png", "a/.hidden.png"]
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.REGTYPE]
    with tarfile.open(tmp_path / "attack.tar", "w") as archive:
        for kind in kinds:
            for name in names:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, "/etc/passwd"
                archive.addfile(info, io.BytesIO() if kind == tarfile.REGTYPE else None)
        for path in ("cat", "dog"):
            for number in range(10):
                info = tarfile.TarInfo(f"{path}/{number}.png")
                info.size = len(encode(0, number))
                archive.addfile(info, io.BytesIO(encode(0, number)))
    data = open_data(tmp_path / "attack.tar", skip_bad_images=True)
    assert {"cat", "dog"} <= set(data.class_names)
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "attack.tar") == before


@pytest.mark.requirement(id="R17")
def test_links_in_a_zip_are_left(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "links.zip", "w") as archive:
        link = zipfile.ZipInfo("cat/link.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        for path in ("cat", "dog"):
            for number in range(10):
                archive.writestr(f"{path}/{number}.png", encode(0, number))
    data = open_data(tmp_path / "links.zip")
    assert sum(len(source) for source in data.splits.values()) == 20


def test_bad_images_in_an_archive_are_named_or_skipped(tmp_path: Path) -> None:
    path = write_zip(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("photos/train/1/bad.png", b"broken")
    with pytest.raises(ImageError, match=r"1 of 37 .*photos.zip:photos/train/1/bad.png'"):
        open_data(path, skip_bad_images=False)
    data = open_data(path)
    assert len(data.bad_images) == 1
    assert contents(data) == EXPECTED


@every_case(
    ("name", "said"),
    [
        ("t.xlsx", "save it as CSV"),
        ("t.XLS", "save it as CSV"),
        ("t.ods", "save it as CSV"),
        ("t.arrow", r"from_file\('.*t\.arrow'\)\.to_parquet\('.*t\.parquet'\)"),
        ("saved/t.arrow", "name its folder, '.*saved'"),
        ("t.feather", "read_feather"),
        ("t.xyz", "one sub-folder per class"),
    ],
)
def test_tables_that_are_not_read_are_named(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_info.json").write_text("{}")
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(DataError, match=said):
        open_data(str(tmp_path / name))


def test_a_folder_of_compressed_shards(tmp_path: Path) -> None:
    for number in range(2):
        with tarfile.open(tmp_path / f"train-{number}.tar.gz", "w:gz"):
            pass
    with pytest.raises(DataError, match=r"only to \.tar"):
        open_data(str(tmp_path))
