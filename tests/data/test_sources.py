"""Every kind of source gives the same images, classes and splits; and every kind of damage one line."""

import json
import multiprocessing
import os
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.data.written import (
    CLASSES,
    EXPECTED,
    IMAGES,
    WRITERS,
    contents,
    encode,
    shard_bytes,
    write_folder,
    write_parquet,
    write_remote_shards,
    write_shards,
)
from vitral.data.loader import TrainingBatches, load_training
from vitral.data.open import _expand, open_data
from vitral.data.tables import ParquetImages, column_of
from vitral.errors import DataError
from vitral.images.augment import Augmentation


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


def test_ranges_multiply() -> None:
    assert _expand("a{08..10}-{0..1}.tar") == [f"a{one}-{two}.tar" for one in ("08", "09", "10") for two in (0, 1)]


def test_no_machine_starts_more_workers_than_it_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    data = open_data("digits")
    batches = TrainingBatches(
        data.splits["train"], batch_size=4, image_size=(8, 8), augmentation=Augmentation(), seed=0
    )
    before = set(multiprocessing.active_children())
    loaded = load_training(batches, first_step=0, last_step=6, workers=3000)
    next(loaded)
    assert len(set(multiprocessing.active_children()) - before) == 1
    assert len(list(loaded)) == 5


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


def test_rows_are_named_by_their_place_in_the_file(tmp_path: Path) -> None:
    images = [encode(0, number) for number in range(12)]
    rows = {
        "image": images,
        "label": ["cat", "dog"] * 6,
        "camera": [f"camera {number}" for number in range(12)],
    }
    paths = [str(tmp_path / name) for name in ("train-0.parquet", "train-1.parquet")]
    for path, size in zip(paths, (5, 3), strict=True):
        pq.write_table(pa.table(rows), path, row_group_size=size)
    named = {f"{path}:{row}": images[row] for path in paths for row in range(12)}
    sources = open_data(tmp_path).splits.values()
    read = {source.describe(index): source.encoded(index) for source in sources for index in range(len(source))}
    assert read == named
    assert column_of(paths[0], "camera") == [(f"{paths[0]}:{row}", f"camera {row}") for row in range(12)]


def test_nothing_of_the_users_is_written(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    before = {path: (os.stat(path).st_mtime_ns, path.is_file() and path.read_bytes()) for path in folder.rglob("*")}
    open_data(folder)
    assert before == {
        path: (os.stat(path).st_mtime_ns, path.is_file() and path.read_bytes()) for path in folder.rglob("*")
    }


def test_folders_of_shards_are_splits(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    for path in folder.glob("val-*.tar"):  # "train" and "test" begin alike
        path.unlink()
    flat = contents(open_data(folder))
    for path in sorted(folder.glob("*.tar")):
        split, _, number = path.stem.rpartition("-")
        (folder / split).mkdir(exist_ok=True)
        (folder / split / "classes.txt").write_bytes((folder / "classes.txt").read_bytes())
        path.rename(folder / split / f"{number}.tar")
    assert contents(open_data(folder)) == flat
