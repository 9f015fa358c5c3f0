"""Files of records by index, and the examples in them."""

import struct
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.vtab.written import Values, example, write_records
from vitral.data.vtab.records import ArrayRecords, TFRecords, parse
from vitral.errors import DataError, ImageError

RECORDS = [bytes([number]) * (number * 100) for number in range(7)]


def test_records_of_a_tfrecord_file_are_read_by_index(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    write_records(path, RECORDS)
    records = TFRecords(path)
    assert len(records) == 7
    assert [records.read(index) for index in (6, 0, 3)] == [RECORDS[6], RECORDS[0], RECORDS[3]]


def test_records_of_an_array_record_file_are_read_by_index(tmp_path: Path) -> None:
    module = pytest.importorskip("array_record.python.array_record_module")
    path = tmp_path / "x.array_record"
    writer = module.ArrayRecordWriter(str(path), "group_size:1")
    for record in RECORDS[1:]:
        writer.write(record)
    writer.close()
    records = ArrayRecords(path)
    assert len(records) == 6
    assert [records.read(index) for index in (5, 0)] == [RECORDS[6], RECORDS[1]]


@every_case("left", [3, 15, 500])
def test_a_tfrecord_file_that_is_cut_short_is_named(tmp_path: Path, left: int) -> None:
    path = tmp_path / "x.tfrecord"
    write_records(path, RECORDS)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DataError, match=r"x\.tfrecord' is cut short or no TFRecord file; prepare"):
        TFRecords(path)


def test_a_file_that_shrinks_later_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    write_records(path, RECORDS)
    records = TFRecords(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ImageError, match=r"x\.tfrecord', record 6, is cut short"):
        records.read(6)


def test_bytes_floats_and_integers_of_an_example_come_back() -> None:
    given: dict[str, Values] = {
        "image": [b"one", b"two"],
        "objects/location": [0.5, -2.25, 1e9],
        "label": [3],
        "id": [-1, 1 << 40],
        "nothing": [],
    }
    read = parse(example(given))
    assert {name: list(values) for name, values in read.items()} == given


def test_integers_that_are_not_packed_are_read_as_well() -> None:
    single = b"\x0a\x11\x0a\x0f\x0a\x05label\x12\x06\x1a\x04\x08\x05\x08\x06"  # features, entry, key, value, int64_list
    assert list(parse(single)["label"]) == [5, 6]


@every_case("data", [b"\xff\xff\xff", struct.pack("<Q", 12345678), b"\x0a\x05\x0a"])
def test_what_is_no_example_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"not a tf\.train\.Example"):
        parse(data)
