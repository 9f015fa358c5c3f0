"""Images with several labels each, from every kind of source that can say them."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.cases import every_case
from tests.data.written import encode, shard_bytes
from vitral.data.loader import TrainingBatches
from vitral.data.open import open_data
from vitral.images.augment import Augmentation

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


@every_case(
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
