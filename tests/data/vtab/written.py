"""Write datasets as TFDS prepares them: examples by hand, byte for byte, in files that another library writes."""

import json
import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tensorboard.summary.writer.record_writer import RecordWriter

Values = Sequence[bytes] | Sequence[float] | Sequence[int]
STUB = b"never opened"


def varint(value: int) -> bytes:
    """Return an integer as protobuf writes it: seven bits a byte, the lowest first."""
    value &= (1 << 64) - 1
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def delimited(number: int, content: bytes) -> bytes:
    """Return a field whose length comes first."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: Mapping[str, Values]) -> bytes:
    """Return a tf.train.Example: bytes, floats (packed) and integers (packed)."""
    entries = b""
    for name, values in features.items():
        if all(isinstance(value, bytes) for value in values) and values:
            number, content = 1, b"".join(delimited(1, bytes(value)) for value in values)  # type: ignore[arg-type]
        elif values and isinstance(values[0], float):
            number, content = 2, delimited(1, struct.pack(f"<{len(values)}f", *values))
        else:
            number, content = 3, delimited(1, b"".join(varint(int(value)) for value in values))
        entries += delimited(1, delimited(1, name.encode()) + delimited(2, delimited(number, content)))
    return delimited(1, entries)


def png(value: int, *, side: int = 4, channels: int = 3) -> bytes:
    """Return an image of one value."""
    pixels = np.full((side, side, channels) if channels > 1 else (side, side), value, np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_records(path: Path, records: Sequence[bytes]) -> None:
    """Write a TFRecord file."""
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for record in records:
            writer.write(record)


def write_split(folder: Path, name: str, split: str, files: Sequence[Sequence[bytes] | int]) -> None:
    """Write a split's files, and what the dataset says of it; for a number, a file that nobody may open.

    Args:
        folder: of the version.
        name: of the dataset.
        split: its name.
        files: the records of each file, or how many it is said to have.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, records in enumerate(files):
        path = folder / f"{name}-{split}.tfrecord-{number:05}-of-{len(files):05}"
        if isinstance(records, int):
            path.write_bytes(STUB)
        else:
            write_records(path, records)
    info = folder / "dataset_info.json"
    said: dict[str, Any] = json.loads(info.read_text()) if info.is_file() else {"name": name, "splits": []}
    lengths = [str(one if isinstance(one, int) else len(one)) for one in files]
    said["splits"].append({"name": split, "shardLengths": lengths})
    info.write_text(json.dumps(said))
