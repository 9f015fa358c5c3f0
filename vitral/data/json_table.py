"""JSON as a table of paths: lines with an object each, such as metadata.jsonl of Hugging Face's ImageFolder, or a whole file.

File names are relative to the folder of the file; a folder that is a split may have one of its own. `vitral.data.json_records`
tells the forms of a whole file.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitral.data.columns import CLASSES, DataType, arrow, find_columns, find_image, known_column
from vitral.data.find_images import ImageFinder
from vitral.data.json_records import records_of
from vitral.data.names import ALL
from vitral.data.path_table import PathTable, bad_row
from vitral.data.source import BadImage
from vitral.errors import DataError, one_line
from vitral.paths import refuse_endless

LARGEST = 1 << 29  # bytes of a whole file


def json_table(path: Path, split: str = ALL) -> PathTable:
    """Return the table that a file of JSON is; lines that are no objects are bad rows.

    Raises:
        DataError: it cannot be read, no line is an object, or a whole file is in no form that is known.
    """
    whole = path.suffix.lower() == ".json"
    lines, bad = _whole(path) if whole else _rows(path)
    cells = {
        name: [row.get(name) for _, row in lines] for name in dict.fromkeys(key for _, row in lines for key in row)
    }
    schema = arrow().schema([(name, _type(column)) for name, column in cells.items()])
    places = [f"{'entry' if whole else 'line'} {number}" for number, _ in lines]
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


def _whole(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[BadImage]]:
    refuse_endless(path, DataError)
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(
                f"'{path}' is larger than {LARGEST >> 20:,} MB; write it as lines of JSON, in a .jsonl file."
            )
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"'{path}' cannot be read as JSON ({one_line(error)}).") from error
    records = records_of(values, str(path))
    if not records:
        raise DataError(
            f'\'{path}\' is in no form of JSON that is read as labels; write [{{"image": "1.jpg", "label": "cat"}}, …], or '
            "name the folder that holds it with its photos, if it marks regions."
        )
    return list(enumerate(records, 1)), []


def _object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the object that a line of JSON is; None, and why, where it is none."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON ({one_line(error)})"
    return (row, "") if isinstance(row, dict) else (None, "is not a JSON object")
