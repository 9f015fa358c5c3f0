"""CSV files and plain lists of images: with column names or without, their paths relative to the images' folder.

| kind | line |
|---|---|
| .csv, .tsv with column names | as in `vitral.data.columns`; under "labels" several classes, separated by "|" |
| .csv, .tsv without | image,class or class,image, with train, val or test in a further column if there is one |
| .txt | image class, separated by a tab, a comma or the last space; or only the image, whose folder is its class |

The csv module reads them: Arrow's reader refuses a whole table for a row of more or fewer cells, and counts rows instead of
lines. Numbers in a .txt file are line numbers, from 0, of a classes.txt next to it, if there is one.
"""

import contextlib
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TextIO

from vitral.data.batch import evenly
from vitral.data.columns import (
    CLASSES,
    IMAGES,
    UNREAD,
    Columns,
    check_column,
    find_columns,
    in_order,
    known_column,
    split_of_row,
)
from vitral.data.folder import Files
from vitral.data.listing import Listing
from vitral.data.names import names_beside, split_named
from vitral.data.source import BadImage
from vitral.data.stored import Entry
from vitral.errors import DataError, one_line
from vitral.images.decode import EXTENSIONS
from vitral.paths import is_regular, look_at, refuse_endless
from vitral.tasks.registry import task_of

LIST_SUFFIX = ".txt"
SEPARATOR = "|"  # between the classes of one image
DELIMITERS = (",", ";", "\t")
TRIED = 20  # rows that are tried to find the images' folder


class TableRow(NamedTuple):
    """A line of a table: its number, the image's path as written, its classes, and its split; None without such a column."""

    line: int
    image: str
    classes: tuple[str, ...]
    split: str | None


def list_text(title: str, name: str, files: Mapping[str, Sequence[str]], *, labelled: bool = True) -> Listing:
    """Return the images of text tables, by split, their classes only if they are `labelled`.

    Raises:
        DataError: a table cannot be read, a column is missing, or none of its images exists.
    """
    paths: list[str] = []
    entries: dict[str, list[Entry]] = {}
    bad: list[BadImage] = []
    bad_classes: set[str] = set()
    several = False
    for split, tables in files.items():
        for table in tables:
            rows = list(read_rows(Path(table), labelled=labelled))
            folder, suffix = find_images(Path(table), [row.image for row in rows])
            for row in rows:
                several = several or len(row.classes) != 1
                where = folder / (row.image + suffix)
                status = look_at(where)
                if status is None:
                    bad.append(BadImage(str(where), f"'{where}' ({table}, line {row.line}) does not exist"))
                    bad_classes.update(row.classes)
                    continue
                entry = Entry(len(paths), row.image, row.classes, status.st_size)
                entries.setdefault(split_of_row(row.split, split, table, f"line {row.line}"), []).append(entry)
                paths.append(str(where))
    return Listing(
        title=title,
        name=name,
        store=Files(Path(), paths),
        entries=in_order(entries),
        task=task_of(several=several),
        bad=tuple(bad),
        bad_classes=frozenset(bad_classes),
    )


def is_list(table: Path) -> bool:
    """Tell whether a text file is a list of existing images."""
    try:
        find_images(table, [row.image for row in read_rows(table)])
    except DataError:
        return False
    return True


def read_rows(table: Path, *, labelled: bool = True) -> Iterator[TableRow]:
    """Yield every row of a text table, with its classes if it is `labelled`.

    Raises:
        DataError: it cannot be read, or a row is incomplete.
    """
    with _opened(table) as file:
        yield from (_listed if table.suffix.lower() == LIST_SUFFIX else _tabled)(table, file, labelled)


@contextlib.contextmanager
def _opened(table: Path) -> Iterator[TextIO]:
    refuse_endless(table, DataError)
    try:
        with open(table, encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"'{table}' cannot be read as a table of text in UTF-8 ({one_line(error)}).") from error


def text_column(table: Path, column: str) -> list[tuple[str, str]]:
    """Return the path of the image of each row of a table with column names, and the row's cell of a column.

    Raises:
        DataError: the table cannot be read, has no such column, or none of its images exists.
    """
    with _opened(table) as file:
        first, delimiter = _first_line(table, file)
        names = next(csv.reader([first], delimiter=delimiter), [])
        named = [name for name in names if name]
        check_column(str(table), column, named)
        image = find_columns(str(table), named).image
        rows = csv.DictReader(file, fieldnames=names, delimiter=delimiter)
        pairs = [((row[image] or "").strip(), (row[column] or "").strip()) for row in rows]
    folder, suffix = find_images(table, [name for name, _ in pairs])
    return [(str(folder / (name + suffix)), value) for name, value in pairs]


def find_images(table: Path, names: Sequence[str]) -> tuple[Path, str]:
    """Return the folder that a table's paths are relative to, and the suffix that they omit: those where most are found.

    Raises:
        DataError: none is found anywhere.
    """
    tried = evenly(names, TRIED)
    here = table.parent
    folders = dict.fromkeys((here, here / "images", here / table.stem, here.parent, here.parent / "images"))
    bare = all(not name.lower().endswith(EXTENSIONS) for name in tried)
    best, most = (here, ""), 0
    for folder in folders:
        for suffix in ("", *(EXTENSIONS if bare else ())):
            count = sum(look_at(folder / (name + suffix)) is not None for name in tried)
            if count > most:
                best, most = (folder, suffix), count
    if tried and not most and not any(is_regular(here / name) for name in names):
        raise DataError(
            f"None of the {len(names):,} images in '{table}' exists, such as '{here / tried[0]}'; paths are "
            "relative to the table's folder."
        )
    return best


def _tabled(table: Path, file: TextIO, labelled: bool) -> Iterator[TableRow]:
    """Read a table whose first line names the columns, or is a row like the others."""
    first, delimiter = _first_line(table, file)
    names = next(csv.reader([first], delimiter=delimiter), [])
    if not _is_header(names):
        yield from _bare(table, csv.reader(chain([first], file), delimiter=delimiter), names, labelled)
        return
    columns = find_columns(str(table), [name for name in names if name], labelled=labelled)
    reader = csv.DictReader(file, fieldnames=names, delimiter=delimiter)
    for row in reader:
        yield _row(table, reader.line_num + 1, row, columns)


def _first_line(table: Path, file: TextIO) -> tuple[str, str]:
    """Return the first line of a table and what separates its cells."""
    first = file.readline()
    return first, "\t" if table.suffix.lower() == ".tsv" else max(DELIMITERS, key=first.count)


def _is_header(names: Sequence[str]) -> bool:
    if known_column(names, IMAGES) and known_column(names, CLASSES):
        return True
    return not any(name.strip().lower().endswith(EXTENSIONS) for name in names)


def _row(table: Path, line: int, row: Mapping[str, str | None], columns: Columns) -> TableRow:
    image = (row[columns.image] or "").strip()
    split = (row[columns.split] or "") if columns.split else None
    if not image:
        raise DataError(f"'{table}', line {line}, names no image; fill it in or remove the line.")
    if columns.classes is None:
        return TableRow(line, image, UNREAD, split)
    classes, several = (row[columns.classes] or "").strip(), columns.classes.strip().lower() == "labels"
    if not several and not classes:
        raise DataError(f"'{table}', line {line}, gives '{image}' no class.")
    names = tuple(part.strip() for part in classes.split(SEPARATOR) if part.strip()) if several else (classes,)
    return TableRow(line, image, names, split)


def _bare(table: Path, rows: Iterator[list[str]], first: Sequence[str], labelled: bool) -> Iterator[TableRow]:
    """Read rows without column names: the columns of image and split are recognised by the first row."""
    image = next(column for column, cell in enumerate(first) if cell.strip().lower().endswith(EXTENSIONS))
    others = [column for column in range(len(first)) if column != image]
    split = next((column for column in others if split_named(first[column].strip())), None) if len(others) > 1 else None
    classes = next((column for column in others if column != split), None)
    for line, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) < len(first):
            raise DataError(f"'{table}', line {line}, has {len(cells)} columns where the first has {len(first)}.")
        split_name = None if split is None else cells[split]
        label = None if classes is None else cells[classes]
        yield _named(table, line, cells[image], label, split_name, labelled=labelled)


def _listed(table: Path, lines: Iterable[str], labelled: bool) -> Iterator[TableRow]:
    """Read a list: an image per line, and its class after it or in the folder's name."""
    names = names_beside(table.parent)
    for line, text in enumerate(lines, 1):
        written = text.strip()
        if not written or written.startswith("#"):
            continue
        image, label = _parted(written)
        if names is not None and label is not None and label.isdecimal() and len(label) < len(str(len(names))) + 1:
            label = names[int(label)] if int(label) < len(names) else label
        yield _named(table, line, image, label, None, labelled=labelled)


def _parted(line: str) -> tuple[str, str | None]:
    for mark in ("\t", ","):
        if mark in line:
            image, _, label = line.rpartition(mark)
            return image.strip(), label.strip()
    parts = line.rsplit(maxsplit=1)
    if len(parts) == 1 or line.lower().endswith(EXTENSIONS):
        return line, None
    return parts[0], parts[1]


def _named(table: Path, line: int, image: str, label: str | None, split: str | None, *, labelled: bool) -> TableRow:
    if image and not labelled:
        return TableRow(line, image, UNREAD, split)
    label = PurePosixPath(image).parent.name if label is None else label
    if not image or not label:
        raise DataError(f"'{table}', line {line}, gives '{image}' no class.")
    return TableRow(line, image, (label,), split)
