"""Rows of predictions as files: JSON lines, CSV and Parquet with the same values."""

import csv
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vitral.classifier.prediction import Prediction
from vitral.errors import StorageError, did_you_mean

SUFFIXES = (".parquet", ".csv", ".jsonl")
ROWS_AT_ONCE = 10_000  # in memory while a file is written

Row = dict[str, Any]
Columns = dict[str, Any]  # pyarrow's types by name


def check_suffix(path: Path) -> None:
    """Refuse a file of an unknown form.

    Raises:
        StorageError: the name ends in none of `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        near = did_you_mean(path.suffix.lower(), SUFFIXES)
        raise StorageError(f"Predictions are written to a file that ends in {', '.join(SUFFIXES)}, not '{path}'.{near}")


def row_of(prediction: Prediction) -> Row:
    """Return a prediction as one flat row."""
    row: Row = {"source": _text(prediction.source)}
    for number, (label, probability) in enumerate(prediction.top, 1):
        row |= {_column("label", number): _text(label), _column("probability", number): probability}
    if prediction.sure is not None:
        row["sure"] = prediction.sure
    return row


def error_row(name: str, error: str) -> Row:
    """Return the row of an image that cannot be read."""
    return {"source": _text(name), "error": _text(error)}


def _column(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _text(text: str) -> str:
    """Return text that any file can hold: what is not UTF-8 of a file's name is written as an escape."""
    return text.encode(errors="backslashreplace").decode()


def columns(top: int, *, sure: bool) -> Columns:
    """Return the columns and their types: source, the most probable classes with their probabilities, and the error.

    Args:
        top: classes that are named.
        sure: whether the classifier tells what it is not sure of.
    """
    named = {"source": pa.string()}
    for number in range(1, top + 1):
        named |= {_column("label", number): pa.string(), _column("probability", number): pa.float32()}
    return {**named, **({"sure": pa.bool_()} if sure else {}), "error": pa.string()}


def write_rows(path: Path, suffix: str, rows: Iterable[Row], schema: Columns, facts: dict[str, Any]) -> None:
    """Write rows to a file, a few at a time in memory.

    Args:
        path: the file.
        suffix: one of `SUFFIXES`, which tells the form: the file's own name may be a temporary one.
        rows: values by column; a missing one is empty.
        schema: the columns.
        facts: what computed them, which a Parquet file keeps among its metadata.
    """
    if suffix == ".parquet":
        described, waiting = pa.schema(list(schema.items()), metadata={"vitral": json.dumps(facts)}), iter(rows)
        with pq.ParquetWriter(path, described) as table:
            while some := list(islice(waiting, ROWS_AT_ONCE)):
                table.write_table(pa.Table.from_pylist(some, schema=described))
        return
    with open(path, "w", newline="" if suffix == ".csv" else None, encoding="utf-8") as file:
        if suffix == ".csv":
            writer = csv.DictWriter(file, list(schema), restval="")
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(line_of({name: row.get(name) for name in schema}) for row in rows)


def line_of(row: Row) -> str:
    """Return a row as a line of JSON."""
    return f"{json.dumps(row, ensure_ascii=False)}\n"
