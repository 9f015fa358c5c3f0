"""The same labelled images written as every kind of source."""

import csv
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import datasets
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from vitral.data.source import DataSet
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
