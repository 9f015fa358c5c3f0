"""tf.train.Example, the message that a TFRecord or an ArrayRecord of TFDS holds (tensorflow/core/example/example.proto)."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from vitral.errors import DataError

Example = Mapping[str, Sequence[Any]]  # bytes, floats or integers by the feature's name
PACKAGE = "vitral.examples"
Field = descriptor_pb2.FieldDescriptorProto
LISTS = {"bytes_list": Field.TYPE_BYTES, "float_list": Field.TYPE_FLOAT, "int64_list": Field.TYPE_INT64}


def _message() -> Any:  # noqa: ANN401  # a class that is made at run time
    """Return the message's class, from a description of the parts that are read."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{PACKAGE}.proto", package=PACKAGE, syntax="proto3")
    feature = descriptor_pb2.DescriptorProto(name="Feature")
    for number, (name, kind) in enumerate(LISTS.items(), 1):
        values = file.message_type.add(name=name)
        values.field.add(name="value", number=1, type=kind, label=Field.LABEL_REPEATED)
        feature.field.add(
            name=name,
            number=number,
            type=Field.TYPE_MESSAGE,
            label=Field.LABEL_OPTIONAL,
            type_name=f".{PACKAGE}.{name}",
        )
    file.message_type.append(feature)
    entry = file.message_type.add(name="Entry")  # on the wire a map is a list of these
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    _add(entry, "value", 2, "Feature", Field.LABEL_OPTIONAL)
    _add(file.message_type.add(name="Features"), "feature", 1, "Entry", Field.LABEL_REPEATED)
    _add(file.message_type.add(name="Example"), "features", 1, "Features", Field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Example"))


def _add(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, label: int) -> None:
    message.field.add(name=name, number=number, type=Field.TYPE_MESSAGE, label=label, type_name=f".{PACKAGE}.{kind}")


MESSAGE = _message()


def parse(data: bytes) -> Example:
    """Return the features of an example by name.

    Raises:
        DataError: the bytes are not of an example.
    """
    try:
        entries = MESSAGE.FromString(data).features.feature
    except DecodeError as error:
        raise DataError("a record is not a tf.train.Example, or damaged") from error
    return {entry.key: _values(entry.value) for entry in entries}


def _values(feature: Any) -> Sequence[Any]:  # noqa: ANN401
    given = next((name for name in LISTS if feature.HasField(name)), None)
    return [] if given is None else getattr(feature, given).value
