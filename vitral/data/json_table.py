"""Lines of JSON as a table of paths, an object a line, such as metadata.jsonl in a folder of Hugging Face's ImageFolder.

File names are relative to the folder of the file; a folder that is a split may have one of its own.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitral.data.columns import CLASSES, DataType, arrow, find_columns, find_image, known_column
from vitral.data.find_images import ImageFinder
from vitral.data.names import ALL
from vitral.data.path_table import PathTable, bad_row
from vitral.data.source import BadImage
from vitral.errors import DataError, one_line
from vitral.paths import refuse_endless


def json_table(path: Path, split: str = ALL) -> PathTable:
    """Return the table that lines of JSON are; lines that are no objects are bad rows.

    Raises:
        DataError: it cannot be read, or no line is an object.
    """
    lines, bad = _rows(path)
    cells = {
        name: [row.get(name) for _, row in lines] for name in dict.fromkeys(key for _, row in lines for key in row)
    }
    schema = arrow().schema([(name, _type(column)) for name, column in cells.items()])
    places = [f"line {number}" for number, _ in lines]
    return PathTable(path, split, schema.names, cells.__getitem__, places, schema, ImageFinder(path, split), bad)


def holds_classes(table: PathTable) -> bool:
    """Tell whether a column of a table could hold the classes, or several one label each.

    Raises:
        DataError: it is unclear which.
    """
    title, names, schema = str(table.path), table.names, table.schema
    if find_image(title, names, schema=schema, cells=table.cells) is None:
        return known_column(names, CLASSES) is not None
    columns = find_columns(title, names, schema=schema, cells=table.cells, may_lack=True)
    return columns.classes is not None or bool(columns.labels)


def _type(cells: Sequence[Any]) -> DataType:
    """Return the type of a column; text where its cells are of several."""
    pa = arrow()
    try:
        return pa.array(cells).type
    except (pa.ArrowException, OverflowError):
        return pa.string()


def _rows(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[BadImage]]:
    refuse_endless(path, DataError)
    rows: list[tuple[int, dict[str, Any]]] = []
    bad: list[BadImage] = []
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line, text in enumerate(file, 1):
                if not text.strip():
                    continue
                row, why = _object(text)
                if row is None:
                    bad.append(bad_row(path, f"line {line}", why))
                else:
                    rows.append((line, row))
    except (OSError, ValueError) as error:
        raise DataError(f"'{path}' cannot be read as lines of JSON ({one_line(error)}).") from error
    if bad and not rows:
        raise DataError(f"{bad[0].reason}; write one for each image, with its file_name and label.")
    return rows, bad


def _object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the object that a line of JSON is; None, and why, where it is none."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON ({one_line(error)})"
    return (row, "") if isinstance(row, dict) else (None, "is not a JSON object")
