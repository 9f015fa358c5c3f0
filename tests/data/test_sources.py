"""Every kind of source gives the same images, classes and splits; and every kind of damage one line."""

import csv
import io
import json
import multiprocessing
import os
import pickle
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from vitral.data import shards as shards_module
from vitral.data.loader import TrainingBatches, load_training
from vitral.data.open import _expand, open_data
from vitral.data.source import DataSet
from vitral.data.table import ParquetImages
from vitral.errors import DataError, ImageError, VitralError
from vitral.images.augment import Augmentation
from vitral.images.decode import read_image

CLASSES = ("1", "2", "10")
EACH = 8


def encode(label: int, number: int) -> bytes:
    rng = np.random.default_rng(100 * label + number)
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


IMAGES = {
    f"{split}/{name}/{number}.png": encode(label, number + 10 * place)
    for place, split in enumerate(("train", "val", "test"))
    for label, name in enumerate(CLASSES)
    for number in range(EACH if split == "train" else 2)
}


def split_of(path: str) -> str:
    return {"val": "validation"}.get(path.split("/")[0], path.split("/")[0])


def write_folder(root: Path) -> Path:
    for name, content in IMAGES.items():
        path = root / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root / "folder"


def write_zip(root: Path) -> Path:
    with zipfile.ZipFile(root / "photos.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("photos/notes.txt", "not an image")
        archive.writestr("__MACOSX/photos/train/1/._0.png", "no image either")
        for name, content in IMAGES.items():
            archive.writestr(f"photos/{name}", content)
    return root / "photos.zip"


def write_tar(root: Path, name: str = "photos.tar", mode: str = "w") -> Path:
    with tarfile.open(root / name, mode) as archive:  # type: ignore[call-overload]
        for path, content in IMAGES.items():
            info = tarfile.TarInfo(path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return root / name


def write_csv(root: Path, name: str = "photos.csv", delimiter: str = ",") -> Path:
    write_folder(root)
    with open(root / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["image", "label", "split"])
        writer.writerows([f"folder/{path}", path.split("/")[1], path.split("/")[0]] for path in IMAGES)
    return root / name


def write_csv_folder(root: Path) -> Path:
    write_folder(root)
    tables = root / "tables"
    tables.mkdir()
    for split in ("train", "val", "test"):
        rows = [f"../folder/{path},{path.split('/')[1]}" for path in IMAGES if path.startswith(split)]
        (tables / f"{split}.csv").write_text("\n".join(["file_name,class", *rows]) + "\n")
    return tables


def features() -> datasets.Features:
    return datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})


def rows(split: str) -> dict[str, list[object]]:
    chosen = [path for path in IMAGES if split_of(path) == split]
    return {
        "img": [{"bytes": IMAGES[path], "path": path} for path in chosen],
        "label": [CLASSES.index(path.split("/")[1]) for path in chosen],
    }


def write_parquet(root: Path) -> Path:
    folder = root / "parquet"
    folder.mkdir()
    for split, name in (("train", "train-00000-of-00001"), ("validation", "validation"), ("test", "test")):
        schema = features().arrow_schema
        table = pa.table(rows(split), schema=schema)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=5)
    return folder


def write_parquet_paths(root: Path) -> Path:
    write_folder(root)
    table = {
        "path": [f"folder/{path}" for path in IMAGES],
        "class": [path.split("/")[1] for path in IMAGES],
        "split": [path.split("/")[0] for path in IMAGES],
    }
    pq.write_table(pa.table(table), root / "paths.parquet")
    return root / "paths.parquet"


def write_saved(root: Path) -> Path:
    parts = {
        split: datasets.Dataset.from_dict(rows(split), features=features()) for split in ("train", "validation", "test")
    }
    datasets.DatasetDict(parts).save_to_disk(root / "saved")
    return root / "saved"


def shard_bytes(examples: list[tuple[str, bytes, dict[str, str]]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for key, pixels, sidecars in examples:
            files = {"png": pixels, **{kind: text.encode() for kind, text in sidecars.items()}}
            for extension, content in files.items():
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def shard_files() -> dict[str, bytes]:
    found = {"classes.txt": "\n".join(CLASSES).encode()}
    for split in ("train", "val", "test"):
        paths = [path for path in IMAGES if path.startswith(split)]
        for number, start in enumerate(range(0, len(paths), 5)):
            examples = [
                (f"{start + place:06d}", IMAGES[path], {"cls": str(CLASSES.index(path.split("/")[1]))})
                for place, path in enumerate(paths[start : start + 5])
            ]
            found[f"{split}-{number:03d}.tar"] = shard_bytes(examples)
    return found


def write_shards(root: Path) -> Path:
    (root / "shards").mkdir()
    for name, content in shard_files().items():
        (root / "shards" / name).write_bytes(content)
    return root / "shards"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """A file system that is not this machine's, reached by address."""
    monkeypatch.setattr(shards_module, "CACHE", tmp_path / "cache")
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def write_remote_shards(root: Path) -> str:
    filesystem = fsspec.filesystem("memory")
    for name, content in shard_files().items():
        filesystem.pipe(f"/bucket/{name}", content)
    return "memory://bucket"


def write_remote_parquet(root: Path) -> str:
    folder = write_parquet(root)
    filesystem = fsspec.filesystem("memory")
    for path in folder.iterdir():
        split = path.name.split("-")[0].split(".")[0]
        filesystem.pipe(f"/tables/{split}/0000.parquet", path.read_bytes())
    return "memory://tables"


WRITERS: dict[str, Callable[[Path], Path | str]] = {
    "folder": write_folder,
    "zip": write_zip,
    "tar": write_tar,
    "tar.gz": lambda root: write_tar(root, "photos.tar.gz", "w:gz"),
    "tar.bz2": lambda root: write_tar(root, "photos.tar.bz2", "w:bz2"),
    "tar.xz": lambda root: write_tar(root, "photos.tar.xz", "w:xz"),
    "csv": write_csv,
    "tsv": lambda root: write_csv(root, "photos.tsv", "\t"),
    "folder of csv": write_csv_folder,
    "parquet": write_parquet,
    "parquet of paths": write_parquet_paths,
    "saved": write_saved,
    "shards": write_shards,
    "remote shards": write_remote_shards,
    "remote parquet": write_remote_parquet,
}


def contents(data: DataSet) -> dict[str, list[tuple[bytes, str]]]:
    return {
        split: sorted(
            (source.image(index).tobytes(), data.class_names[int(source.labels()[index])])
            for index in range(len(source))
        )
        for split, source in data.splits.items()
    }


EXPECTED = {
    split: sorted(
        (read_image(content).tobytes(), path.split("/")[1])
        for path, content in IMAGES.items()
        if split_of(path) == split
    )
    for split in ("train", "validation", "test")
}


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("kind", WRITERS)
def test_every_source_gives_the_same_images_classes_and_splits(tmp_path: Path, kind: str) -> None:
    data = open_data(WRITERS[kind](tmp_path))
    assert data.class_names == CLASSES
    assert contents(data) == EXPECTED
    assert data.fingerprint
    assert not data.multi_label
    for source in data.splits.values():
        assert all(source.label(index) == source.labels()[index] for index in range(len(source)))
        sent = pickle.loads(pickle.dumps(source))  # to a worker that is not forked
        assert np.array_equal(sent.image(0), source.image(0))


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("kind", WRITERS)
def test_workers_and_a_late_start_change_nothing(tmp_path: Path, kind: str) -> None:
    source = open_data(WRITERS[kind](tmp_path)).splits["train"]
    batches = TrainingBatches(source, batch_size=7, image_size=(8, 8), augmentation=Augmentation(), seed=5)
    alone = [batches.batch(step) for step in range(4, 9)]
    shared = list(load_training(batches, first_step=4, last_step=9, workers=2))
    for one, other in zip(alone, shared, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)


@pytest.mark.parametrize("kind", ["remote shards", "remote parquet"])
def test_remote_data_are_read_shard_by_shard(tmp_path: Path, kind: str, memory: fsspec.AbstractFileSystem) -> None:
    source = open_data(WRITERS[kind](tmp_path)).splits["train"]
    assert source.shards == (5, 10, 15, 20, 24)
    batches = TrainingBatches(source, batch_size=24, image_size=(8, 8), augmentation=Augmentation(), seed=0)
    for epoch in range(3):
        assert sorted(batches.indices(epoch).tolist()) == list(range(24))


def test_an_index_is_read_once(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    spec = write_remote_shards(tmp_path)
    first = open_data(spec)
    assert list((tmp_path / "cache").glob("*.json"))
    assert contents(open_data(spec)) == contents(first)


def test_a_range_of_shards(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    data = open_data(f"{folder}/train-{{000..004}}.tar")
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 21, "validation": 3}
    with pytest.raises(DataError, match="not a range of shards"):
        open_data(f"{folder}/train-{{004..000}}.tar")
    with pytest.raises(DataError, match=r"train-005.tar'.*cannot be read as a tar file"):
        open_data(f"{folder}/train-{{000..005}}.tar")


def test_text_and_json_name_the_class(tmp_path: Path) -> None:
    examples = [(f"a/{n}", encode(0, n), {"txt": ("cat", "dog")[n % 2]}) for n in range(20)]
    (tmp_path / "t.tar").write_bytes(shard_bytes(examples))
    assert open_data(tmp_path / "t.tar").class_names == ("cat", "dog")
    examples = [(str(n), encode(0, n), {"json": json.dumps({"label": ("cat", "dog")[n % 2]})}) for n in range(20)]
    (tmp_path / "j.tar").write_bytes(shard_bytes(examples))
    assert open_data(tmp_path / "j.tar").class_names == ("cat", "dog")


LABELS = [("red",), ("red", "round"), (), ("round",), ("blue", "round"), ("blue",)] * 4


def write_labels_csv(root: Path) -> Path:
    for number in range(len(LABELS)):
        (root / f"{number}.png").write_bytes(encode(0, number))
    lines = [f"{number}.png,{'|'.join(labels)}" for number, labels in enumerate(LABELS)]
    (root / "labels.csv").write_text("\n".join(["image,labels", *lines]))
    return root / "labels.csv"


def labels_parquet(kind: pa.DataType) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        table = {
            "image": [encode(0, number) for number in range(len(LABELS))],
            "labels": pa.array([list(labels) for labels in LABELS], kind),
        }
        pq.write_table(pa.table(table), root / "labels.parquet")
        return root / "labels.parquet"

    return write


def write_labels_shard(root: Path) -> Path:
    examples = [
        (str(number), encode(0, number), {"json": json.dumps({"labels": list(labels)})})
        for number, labels in enumerate(LABELS)
    ]
    (root / "labels.tar").write_bytes(shard_bytes(examples))
    return root / "labels.tar"


@pytest.mark.parametrize(
    "write",
    [
        write_labels_csv,
        labels_parquet(pa.list_(pa.string())),
        labels_parquet(pa.large_list(pa.string())),
        write_labels_shard,
    ],
)
def test_images_with_several_labels(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    data = open_data(write(tmp_path))
    assert data.multi_label
    assert data.class_names == ("blue", "red", "round")
    every = [source.label(index) for source in data.splits.values() for index in range(len(source))]
    expected = [tuple(data.class_names.index(name) for name in sorted(labels)) for labels in LABELS]
    assert sorted(map(str, every)) == sorted(map(str, expected))
    batches = TrainingBatches(
        data.splits["train"],
        batch_size=8,
        image_size=(8, 8),
        augmentation=Augmentation(),
        seed=0,
        task=data.task,
        num_classes=3,
    )
    batch = batches.batch(0)
    assert batch.labels.shape == (8, 3)
    for row, index in enumerate(batch.indices.tolist()):
        label = data.splits["train"].label(index)
        assert tuple(batch.labels[row].nonzero().flatten().tolist()) == label


def test_lists_of_one_length_are_several_labels(tmp_path: Path) -> None:
    pairs = [["red", "round"], ["blue", "round"], ["blue", "flat"]] * 8
    table = {
        "image": [encode(0, number) for number in range(len(pairs))],
        "labels": pa.array(pairs, pa.list_(pa.string(), 2)),
    }
    pq.write_table(pa.table(table), tmp_path / "pairs.parquet")
    data = open_data(tmp_path / "pairs.parquet")
    assert data.multi_label
    assert data.class_names == ("blue", "flat", "red", "round")
    assert len(data.splits["train"].label(0)) == 2  # type: ignore[arg-type]


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
    (text("photos.csv", "image,label\nx.png,\n"), "no class"),
    (text("photos.csv", "image,label\nfolder/train/1/0.png,cat\ngone.png,dog\n"), "line 3) does not exist"),
    (text("photos.csv", "image,label,split\nfolder/train/1/0.png,cat,holdout\n"), "has the split 'holdout'"),
    (text("photos.csv", b"image,label\n\xff\xfe,cat\n"), "table of text in UTF-8"),
    (text("photos.parquet", "no parquet"), "cannot be read as a Parquet file"),
    (text("photos.docx", "no data"), "is a file; give the folder"),
    (table(other=["x"], label=["a"]), "no column of images"),
    (table(image=[b""] * 20, label=["a", "b"] * 10), "is empty; remove the row"),
    (table(image=[b"no image"] * 20, label=["a", "b"] * 10), "is not a readable image"),
    (table(image=[b"x"], label=[None]), "has no class"),
    (shard({"cls": "one"}), "cannot be read"),
    (shard({"cls": "-1"}), "must hold the number of a class"),
    (shard({"json": '{"x": 1}'}), 'neither "label" nor "labels"'),
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


@pytest.mark.parametrize("place", range(len(BAD)))
def test_bad_sources_are_refused_in_one_line(tmp_path: Path, place: int, memory: fsspec.AbstractFileSystem) -> None:
    write, message = BAD[place]
    with pytest.raises(VitralError) as refused:
        open_data(write(tmp_path))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
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


def test_ranges_multiply() -> None:
    assert _expand("a{08..10}-{0..1}.tar") == [f"a{one}-{two}.tar" for one in ("08", "09", "10") for two in (0, 1)]


def test_no_machine_starts_more_workers_than_it_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    data = open_data("digits")
    batches = TrainingBatches(
        data.splits["train"], batch_size=4, image_size=(8, 8), augmentation=Augmentation(), seed=0
    )
    loaded = load_training(batches, first_step=0, last_step=6, workers=3000)
    next(loaded)
    assert len(multiprocessing.active_children()) == 1
    assert len(list(loaded)) == 5


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
    with pytest.raises(ImageError, match=r"1 of 37 images cannot be read: '.*photos.zip:photos/train/1/bad.png'"):
        open_data(path)
    data = open_data(path, skip_bad_images=True)
    assert len(data.bad_images) == 1
    assert contents(data) == EXPECTED


def test_a_table_without_splits_is_shared_out(tmp_path: Path) -> None:
    write_folder(tmp_path)
    lines = [f"folder/{path},{path.split('/')[1]}" for path in IMAGES]
    (tmp_path / "all.csv").write_text("\n".join(["image,label", *lines]))
    data = open_data(tmp_path / "all.csv")
    assert set(data.splits) == {"train", "validation", "test"}
    again = open_data(tmp_path / "all.csv", class_names=data.class_names, trained_on=data.fingerprint)
    assert contents(again) == contents(data)


def test_row_groups_beyond_memory_are_dropped(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path)
    images = ParquetImages(
        [str(folder / "train-00000-of-00001.parquet")],
        [(0, group, 5 * group) for group in range(5)],
        "img",
        2,
        [str(n) for n in range(24)],
    )
    for place in range(24):
        assert images.read(place)
    assert images._group.cache_info().currsize == 2


def test_nothing_of_the_users_is_written(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    before = {path: (os.stat(path).st_mtime_ns, path.is_file() and path.read_bytes()) for path in folder.rglob("*")}
    open_data(folder)
    assert before == {
        path: (os.stat(path).st_mtime_ns, path.is_file() and path.read_bytes()) for path in folder.rglob("*")
    }
