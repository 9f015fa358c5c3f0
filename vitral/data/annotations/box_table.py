"""Tables of boxes, a line a box, as Roboflow, VoTT and Open Images write them.

Columns name the photo, the class and the box's sides: in pixels or, where no side is above 1, as shares of the photo. A line
without sides says that nothing is marked in its photo.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vitral.data.annotations.annotation import Mark, Size
from vitral.data.annotations.drawn import stated_size, usable
from vitral.data.annotations.marked import Collected, MarkedPhotos, split_of_path
from vitral.data.annotations.tree import LARGEST, FileTree
from vitral.data.columns import CLASSES, IMAGES, NUMBERED, SIDES, known_column, plain
from vitral.data.names import ALL
from vitral.data.text_table import DELIMITERS
from vitral.errors import DataError, one_line

FORM = "a table of boxes"
SIZE = ("height", "width")
CROWD = "isgroupof"  # of Open Images: 1 for a box around several objects

Row = Sequence[str]


class _Columns(NamedTuple):
    """Where a table has what, by the numbers of its columns; `size` and `crowd` are empty where it does not say."""

    photo: int
    name: int
    sides: tuple[int, ...]
    size: tuple[int, ...]
    crowd: tuple[int, ...]

    @classmethod
    def of(cls, header: Row) -> "_Columns | None":
        """Return the columns of a table of boxes; None of any other table."""
        names = [plain(cell) for cell in header]
        photo, kind = known_column(names, IMAGES), known_column(names, (*CLASSES, *NUMBERED))
        sides = next((sides for sides in SIDES if {*sides} <= {*names}), None)
        if photo is None or kind is None or sides is None:
            return None
        size = SIZE if {*SIZE} <= {*names} else ()
        crowd = (CROWD,) if CROWD in names else ()
        where = names.index
        return cls(
            where(photo), where(kind), tuple(map(where, sides)), tuple(map(where, size)), tuple(map(where, crowd))
        )


def read_box_tables(tree: FileTree) -> MarkedPhotos | None:
    """Return what tables of boxes in a folder say; None where there are none.

    A table of a split counts before one of all photos, which often has them again.

    Raises:
        DataError: a table cannot be read.
    """
    found, sizes = Collected(tree, FORM), dict(tree.files)
    tables = [path for path in tree.ending(".csv") if sizes[path] <= LARGEST]
    for path in sorted(tables, key=lambda path: split_of_path(path) == ALL):
        header, _, text = tree.text(path).partition("\n")
        separator = max(DELIMITERS, key=header.count)
        columns = _Columns.of(next(csv.reader([header], delimiter=separator), []))
        if columns is None:
            continue
        try:
            _collect(found, path, columns, csv.reader(io.StringIO(text, newline=""), delimiter=separator))
        except csv.Error as error:
            raise DataError(f"'{tree.file(path).name}' cannot be read as a table ({one_line(error)}).") from error
    every = [side for marks in found.marks.values() for mark in marks for side in mark.box or ()]
    relative = max(every, default=0) <= 1
    return found.photos(relative=relative) if found.marks or found.traps or found.bad else None


def _collect(found: Collected, path: str, columns: _Columns, rows: Iterable[Row]) -> None:
    """Add the photos of a table."""
    by_photo: dict[str, list[Row]] = {}
    for row in rows:
        if name := _cell(row, columns.photo):
            by_photo.setdefault(name, []).append(row)
    for name, lines in by_photo.items():
        if (photo := found.photo(name, path, split_of_path(path))) is None:
            continue
        try:
            found.stated[photo] = _size(lines[0], columns)
            marks = [mark for line in lines if (mark := _mark(line, columns)) is not None]
        except ValueError as error:
            why = f"'{found.tree.file(path).name}' has a line of '{name}' without four numbers ({one_line(error)})"
            found.bad.append(found.tree.bad(photo, why))
        else:
            found.marks[photo] = usable(marks, path, found.traps)


def _size(row: Row, columns: _Columns) -> Size | None:
    cells = [_cell(row, number) for number in columns.size]
    return stated_size(*map(int, cells)) if all(cells) and cells else None


def _mark(row: Row, columns: _Columns) -> Mark | None:
    """Return the box of a line; None of one that says that nothing is marked.

    Raises:
        ValueError: it has no four numbers.
    """
    cells = [_cell(row, number) for number in columns.sides]
    if not any(cells):
        return None
    left, top, right, bottom = map(float, cells)
    if not math.isfinite(left + top + right + bottom):
        raise ValueError(", ".join(cells))
    crowd = any(_cell(row, number) == "1" for number in columns.crowd)
    return Mark(_cell(row, columns.name), box=(left, top, right, bottom), crowd=crowd)


def _cell(row: Row, number: int) -> str:
    return row[number].strip() if number < len(row) else ""
