"""Files of records by index, TFRecord and ArrayRecord, and the message that TFDS puts into a record, tf.train.Example.

A TFRecord file is a row of records, each a length of 8 bytes, a checksum of it, the record, and a checksum of that
(tensorflow/core/lib/io/record_writer.h). The checksums are not compared: an image that is damaged does not decode.
The message is described in tensorflow/core/example/example.proto.
"""

import functools
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from vitral.data.stored import Handles, open_binary
from vitral.errors import DataError, ImageError, extra_module, one_line

Example = Mapping[str, Sequence[Any]]  # bytes, floats or integers by the feature's name
PACKAGE = "vitral.examples"
EXTRA = "tfds"  # which installs what reads them
LISTS = {"bytes_list": "TYPE_BYTES", "float_list": "TYPE_FLOAT", "int64_list": "TYPE_INT64"}
LENGTH = 8  # bytes of a record's length
CHECKSUM = 4  # bytes


class TFRecords:
    """The records of a TFRecord file; a DataError says that it cannot be read, or is cut short."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets, self._lengths = _index(path)
        self._handles = Handles(open_binary)

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, index: int) -> bytes:
        """Return a record, or raise ImageError if it cannot be read."""
        try:
            data = self._handles.bytes_at(self.path, int(self._offsets[index]), int(self._lengths[index]))
        except OSError as error:
            raise ImageError(f"'{self.path}', record {index}, cannot be read ({one_line(error)}).") from error
        if data is None:
            raise ImageError(f"'{self.path}', record {index}, is cut short; prepare the dataset again.")
        return data


class ArrayRecords:
    """The records of an ArrayRecord file; a DataError says that it cannot be read, or that the library is not installed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handles = Handles(_open_array)
        reader = _open_array(str(path))
        try:
            self._count = int(reader.num_records())
        except Exception as error:  # the library raises several types
            raise DataError(f"'{path}' is cut short or no ArrayRecord file; prepare the dataset again.") from error
        finally:
            reader.close()

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> bytes:
        """Return a record, or raise ImageError if it cannot be read."""
        try:
            (data,) = self._handles.get(str(self.path)).read([index])
        except Exception as error:  # the library raises several types
            raise ImageError(f"'{self.path}', record {index}, cannot be read ({one_line(error)}).") from error
        return bytes(data)


Records = TFRecords | ArrayRecords
KINDS: dict[str, type[Records]] = {"tfrecord": TFRecords, "array_record": ArrayRecords}


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
    return extra_module("array_record.python.array_record_module", EXTRA, f"'{path}'").ArrayRecordReader(path)


def _protobuf(name: str) -> Any:  # noqa: ANN401  # a module
    return extra_module(f"google.protobuf.{name}", EXTRA, "A dataset that TFDS prepared")


@functools.cache
def _message() -> Any:  # noqa: ANN401  # a class that is made at run time
    """Return the message's class, from a description of the parts that are read."""
    descriptor_pb2 = _protobuf("descriptor_pb2")
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{PACKAGE}.proto", package=PACKAGE, syntax="proto3")
    feature = descriptor_pb2.DescriptorProto(name="Feature")
    for number, (name, kind) in enumerate(LISTS.items(), 1):
        values = file.message_type.add(name=name)
        values.field.add(name="value", number=1, type=getattr(field, kind), label=field.LABEL_REPEATED)
        _add(feature, name, number, name, field.LABEL_OPTIONAL)
    file.message_type.append(feature)
    entry = file.message_type.add(name="Entry")  # on the wire a map is a list of these
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    _add(entry, "value", 2, "Feature", field.LABEL_OPTIONAL)
    _add(file.message_type.add(name="Features"), "feature", 1, "Entry", field.LABEL_REPEATED)
    _add(file.message_type.add(name="Example"), "features", 1, "Features", field.LABEL_OPTIONAL)
    pool = _protobuf("descriptor_pool").DescriptorPool()
    pool.Add(file)
    return _protobuf("message_factory").GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Example"))


def _add(message: Any, name: str, number: int, kind: str, label: int) -> None:  # noqa: ANN401  # a DescriptorProto
    what = _protobuf("descriptor_pb2").FieldDescriptorProto.TYPE_MESSAGE
    message.field.add(name=name, number=number, type=what, label=label, type_name=f".{PACKAGE}.{kind}")


def parse(data: bytes) -> Example:
    """Return the features of an example by name, or raise DataError if the bytes are not of one."""
    try:
        entries = _message().FromString(data).features.feature
    except _protobuf("message").DecodeError as error:
        raise DataError("a record is not a tf.train.Example, or damaged") from error
    return {entry.key: _values(entry.value) for entry in entries}


def _values(feature: Any) -> Sequence[Any]:  # noqa: ANN401
    given = next((name for name in LISTS if feature.HasField(name)), None)
    return [] if given is None else getattr(feature, given).value
