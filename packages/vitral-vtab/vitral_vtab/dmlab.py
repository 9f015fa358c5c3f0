"""DMLab: TFRecord files of examples with image, file name and label."""

from pathlib import Path
from typing import Any

from vitral.data.vtab.prepared import RecordPlace
from vitral.data.vtab.records import TFRecords, parse
from vitral.data.vtab.tfds import ExampleImages
from vitral.errors import DataError
from vitral_vtab.dataset import RawDataset, RawSplit, labelled

SPLITS = ("train", "validation", "test")


def read_dmlab(folder: Path) -> RawDataset:
    """Return DMLab; keys are the file names that the records tell."""
    files: list[TFRecords] = []
    located: list[RecordPlace] = []
    splits: dict[str, RawSplit] = {}
    for split in SPLITS:
        mine = sorted(folder.rglob(f"dmlab-{split}.tfrecord*"))
        if not mine:
            raise DataError(
                f"'{folder}' is not a complete DMLab: it has no 'dmlab-{split}.tfrecord...'; unpack dmlab.tar.gz there."
            )
        first = len(located)
        keys: list[bytes] = []
        labels: list[Any] = []
        for path in mine:
            files.append(TFRecords(path))
            for index in range(len(files[-1])):
                key, label = _key_and_label(path, files[-1], index)
                keys.append(key)
                labels.append(label)
                located.append((len(files) - 1, index))
        splits[split] = labelled(keys, range(first, len(located)), labels)
    return RawDataset(store=ExampleImages(files, located), splits=splits)


def _key_and_label(path: Path, file: TFRecords, index: int) -> tuple[bytes, Any]:
    """Return an image's key and its label, which may be anything."""
    try:
        example = parse(file.read(index))
    except DataError as error:
        raise DataError(f"'{path}', record {index}: {error}; unpack dmlab.tar.gz again.") from error
    key, label = example.get("filename", ()), example.get("label", ())
    if len(key) != 1 or len(label) != 1 or not isinstance(key[0], bytes):
        raise DataError(f"'{path}', record {index}, has no file name with a label; unpack dmlab.tar.gz again.")
    return key[0], label[0]
