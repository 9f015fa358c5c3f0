"""Files of records by index: TFRecord, and ArrayRecord by its own library.

A TFRecord file is a row of records, each a length of 8 bytes, a checksum of it, the record, and a checksum of that
(tensorflow/core/lib/io/record_writer.h). The checksums are not compared: an image that is damaged does not decode.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Int64

from vitral.data.stored import Handles, open_binary
from vitral.errors import DataError, ImageError, one_line

LENGTH = 8  # bytes of a record's length
CHECKSUM = 4  # bytes


class Records(Protocol):
    """The records of a file; safe to use in several processes."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def read(self, index: int) -> bytes:
        """Return a record.

        Raises:
            ImageError: it cannot be read.
        """
        ...


class TFRecords:
    """The records of a TFRecord file.

    Args:
        path: the file.

    Raises:
        DataError: it cannot be read, or is cut short.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets, self._lengths = _index(path)
        self._handles = Handles(open_binary)

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, index: int) -> bytes:
        """See `Records`."""
        try:
            data = self._handles.bytes_at(self._path, int(self._offsets[index]), int(self._lengths[index]))
        except OSError as error:
            raise ImageError(f"'{self._path}', record {index}, cannot be read ({one_line(error)}).") from error
        if data is None:
            raise ImageError(f"'{self._path}', record {index}, is cut short; prepare the dataset again.")
        return data


class ArrayRecords:
    """The records of an ArrayRecord file.

    Args:
        path: the file.

    Raises:
        DataError: it cannot be read, or the library is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handles = Handles(_open_array)
        self._count = _count(path)

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> bytes:
        """See `Records`."""
        try:
            (data,) = self._handles.get(str(self._path)).read([index])
        except Exception as error:  # the library raises several types
            raise ImageError(f"'{self._path}', record {index}, cannot be read ({one_line(error)}).") from error
        return bytes(data)


KINDS: dict[str, Callable[[Path], Records]] = {"tfrecord": TFRecords, "array_record": ArrayRecords}


def _index(path: Path) -> tuple[Int64[np.ndarray, " records"], Int64[np.ndarray, " records"]]:
    """Return where each record of a TFRecord file begins, and how long it is."""
    offsets, lengths = [], []
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            offset = 0
            while offset < size:
                header = file.read(LENGTH + CHECKSUM)
                length = struct.unpack("<Q", header[:LENGTH])[0] if len(header) == LENGTH + CHECKSUM else size
                begin, offset = offset + LENGTH + CHECKSUM, offset + LENGTH + 2 * CHECKSUM + length
                if offset > size:
                    raise DataError(f"'{path}' is cut short or no TFRecord file; prepare the dataset again.")
                offsets.append(begin)
                lengths.append(length)
                file.seek(offset)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read ({one_line(error)}).") from error
    return np.array(offsets, dtype=np.int64), np.array(lengths, dtype=np.int64)


def _open_array(path: str) -> Any:  # noqa: ANN401
    try:
        from array_record.python.array_record_module import ArrayRecordReader  # only for files of this kind
    except ImportError as error:
        raise DataError(
            f"'{path}' is an ArrayRecord file, which takes a package more: pip install 'vitral[tfds]'. TFDS also prepares "
            "datasets as TFRecord files (file_format='tfrecord')."
        ) from error
    return ArrayRecordReader(path)


def _count(path: Path) -> int:
    reader = _open_array(str(path))
    try:
        return int(reader.num_records())
    except Exception as error:  # the library raises several types
        raise DataError(f"'{path}' is cut short or no ArrayRecord file; prepare the dataset again.") from error
    finally:
        reader.close()
