"""Raw rows as Parquet: they open again with what was written."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vitral.errors import StorageError
from vitral.report.written import write_rows_parquet


def test_rows_open_again_in_order_with_what_is_missing_as_null(tmp_path: Path) -> None:
    rows: list[dict[str, str | float | int | None]] = [
        {"arm": "vit", "seed": 0, "top1": 0.5},
        {"seed": 1, "arm": "bit", "top1": None, "error": "out of memory"},
        {"arm": "bit", "seed": None, "top1": 1, "seconds": math.inf},
    ]
    write_rows_parquet(rows, tmp_path / "new" / "rows.parquet")
    table = pq.read_table(tmp_path / "new" / "rows.parquet")
    assert table.column_names == ["arm", "seed", "top1", "error", "seconds"]
    assert table.schema.types == [pa.string(), pa.int64(), pa.float64(), pa.string(), pa.float64()]
    assert table.to_pylist() == [{name: row.get(name) for name in table.column_names} for row in rows]


def test_columns_of_several_kinds_of_values_and_large_seeds_are_kept(tmp_path: Path) -> None:
    rows: list[dict[str, str | float | int | None]] = [
        {"patch": 16, "seed": 2**63, "position": None},
        {"patch": "16, overlapping", "seed": 1, "position": None},
    ]
    write_rows_parquet(rows, tmp_path / "rows.parquet")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.column("patch").to_pylist() == ["16", "16, overlapping"]
    assert table.column("seed").to_pylist() == [float(2**63), 1.0]
    assert table.column("position").to_pylist() == [None, None]


def test_no_rows_are_a_table_without_any(tmp_path: Path) -> None:
    write_rows_parquet([], tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 0


def test_nothing_is_left_where_they_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").mkdir()
    with pytest.raises(StorageError, match=r"rows\.parquet"):
        write_rows_parquet([{"arm": "vit"}], tmp_path / "rows.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
