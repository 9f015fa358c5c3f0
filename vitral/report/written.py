"""The files of results: JSON and Parquet for programs, Markdown for people."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitral.advice import printable, printable_json
from vitral.errors import extra_module
from vitral.files import new_file, write_file

Cell = str | float | int | None
LARGEST = 2**63  # what a column of integers holds less than


def write_result(values: Mapping[str, Any], markdown: str, folder: Path, *, json_file: str, table_file: str) -> None:
    """Write a result's JSON values, and its Markdown.

    Raises:
        StorageError: A file cannot be written.
    """
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    write_file(folder / json_file, printable_json(text))
    write_file(folder / table_file, printable(markdown, lines=True))


def markdown_lines(heading: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[str] = ()) -> list[str]:
    """Return a table in Markdown; columns after the first are right-aligned, but for those named in `texts`."""
    rule = ["---" if index == 0 or name in texts else "---:" for index, name in enumerate(heading)]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (heading, rule, *rows)]


def write_rows_parquet(rows: Sequence[Mapping[str, Cell]], path: Path) -> None:
    """Write rows as one Parquet file.

    The columns stand in the order in which the rows first name them. What a row lacks, or has as None, is null. A column with
    any text in it is one of texts; one with any number that is no integer of 64 bits is one of floats.

    Raises:
        StorageError: It cannot be written.
        PackageError: pyarrow is not installed.
    """
    pa, pq = (extra_module(name, "tables", f"'{path}'") for name in ("pyarrow", "pyarrow.parquet"))
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [_column(pa, [row.get(name) for row in rows]) for name in names]
    with new_file(path) as partial:
        pq.write_table(pa.table(columns, names=names), partial)


def _column(pa: Any, cells: Sequence[Cell]) -> Any:  # noqa: ANN401  # pyarrow and its array
    known = [cell for cell in cells if cell is not None]
    if any(isinstance(cell, str) for cell in known):
        return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    if all(isinstance(cell, int) and -LARGEST <= cell < LARGEST for cell in known) and known:
        return pa.array(cells, pa.int64())
    return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
