"""Tables with a row for each image's path, text or Parquet, as a listing: an image of several rows counts once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vitral.advice import counted
from vitral.data.bad_images import are_few
from vitral.data.batch import evenly
from vitral.data.chosen import NOTES
from vitral.data.columns import (
    RUN_LENGTHS,
    SIDES,
    Columns,
    Schema,
    classes_of_rows,
    find_columns,
    in_order,
    is_plural,
    known_column,
    may_lack,
    plain,
    split_of_row,
    splits_of_rows,
)
from vitral.data.find_images import TRIED, Found, ImageFinder
from vitral.data.folder import Files
from vitral.data.listing import Listing
from vitral.data.names import ALL, names_beside, some
from vitral.data.source import BadImage
from vitral.data.stored import UNREAD, Entry
from vitral.data.table_cells import Cells, are_verdicts, cell_text, is_no
from vitral.errors import DataError
from vitral.tasks.registry import task_of

# Columns that tell of boxes: any of these sets.
BOXES = (*({left, top} for left, top, *_ in SIDES), {"bbox"}, {"bboxes"})
PARQUET = ".parquet"
MOST_DIGITS = 9  # of a number that stands for a name
CONFIDENCE = "confidence"  # a column of Open Images: 0 for a class that people did not find in an image


@dataclass(frozen=True)
class PathTable:
    """A table of paths."""

    path: Path
    split: str  # that the file determines, or "all"
    names: Sequence[str]  # of its columns
    cells: Cells
    places: Sequence[str]  # of its rows in messages: "line 3"
    schema: Schema | None  # None for a table of text
    finder: ImageFinder
    bad: Sequence[BadImage] = ()  # rows that could not be read
    note: str = ""  # on how it was read


class Row(NamedTuple):
    """A row of a table: an image, its classes and split, the file that was found, and where the row is."""

    image: str
    classes: tuple[str, ...]
    split: str
    found: Found
    place: str
    table: str


def without_unrelated(tables: list[PathTable]) -> tuple[list[PathTable], list[str]]:
    """Return tables without those in no split that are not of images and classes beside others that are, and a note on them."""
    token = NOTES.set(None)  # what is noted of a table that is not read would mislead
    try:
        kept = [table for table in tables if table.split != ALL or len(tables) == 1 or gives_classes(table)]
    finally:
        NOTES.reset(token)
    if not kept or len(kept) == len(tables):
        return tables, []
    left = [str(table.path) for table in tables if table not in kept]
    return kept, [f"Not read, as no images with classes are in them: {some(left)}."]


def gives_classes(table: PathTable) -> bool:
    """Tell whether a table gives classes to images that are there."""
    try:
        columns = find_columns(str(table.path), table.names, schema=table.schema, cells=table.cells)
        return table.finder.count(evenly([cell_text(cell) for cell in table.cells(columns.image)], TRIED)) > 0
    except DataError:
        return False


def list_paths(title: str, name: str, tables: Sequence[PathTable], *, labelled: bool) -> Listing:
    """Return the images of tables of paths, by split, their classes only if they are `labelled`.

    Raises:
        DataError: a column is missing, none of the images exists, or one of them has different classes on several rows.
    """
    splits = {table.split for table in tables}
    chosen: list[Columns] = []
    rows: list[Row] = []
    bad = [image for table in tables for image in table.bad]
    notes = [table.note for table in tables if table.note]
    for table in tables:
        where, lacking = str(table.path), may_lack(table.split, splits)
        columns = find_columns(
            where, table.names, labelled=labelled, schema=table.schema, cells=table.cells, may_lack=lacking
        )
        chosen.append(columns)
        rows += _rows(table, columns, bad)
        notes += columns.notes(where, table.names)
        if table.finder.elsewhere:
            notes.append(f"The images of '{table.path}' lie in {some(table.finder.elsewhere)}.")
    lists = any(columns.are_lists for columns in chosen)
    unread = next(filter(None, (_unread(table.names) for table in tables)), "")
    plural = any(columns.labels or (columns.classes and is_plural(columns.classes)) for columns in chosen)
    several = lists or plural or bool(unread)
    images, more = _images(title, rows, several=several, unread=unread)
    labels = tuple(dict.fromkeys(label for columns in chosen for label in columns.label_names))
    declared = next((columns.declared for columns in chosen if columns.declared), labels or None)
    images, names, named = (images, declared, []) if declared else _named_beside(tables, images)
    classed = [columns for columns in chosen if columns.classes]
    text = bool(classed) and all(columns.are_text for columns in classed)
    return listing_of(
        title,
        name,
        images,
        several=lists or any(len(row.classes) != 1 for row in images),
        class_names=names,
        notes=(*notes, *more, *named, *_in_several_splits(title, images)),
        bad=bad,
        column=classed[0].classes if text else None,
    )


def _named_beside(tables: Sequence[PathTable], rows: list[Row]) -> tuple[list[Row], tuple[str, ...] | None, list[str]]:
    """Return rows whose classes are numbers with the names in classes.txt beside the first table, if it has one for each."""
    folder = tables[0].path.parent
    numbers = {name for row in rows for name in row.classes if name}
    short = all(name.isdecimal() and len(name) <= MOST_DIGITS for name in numbers)
    names = names_beside(folder) if numbers and short else None
    if names is None or max(map(int, numbers)) >= len(names):
        return rows, None, []
    renamed = [row._replace(classes=tuple(name and names[int(name)] for name in row.classes)) for row in rows]
    return (
        renamed,
        names,
        [f"The classes' numbers stand for the names in the file of classes in '{folder}', counted from 0."],
    )


def listing_of(
    title: str,
    name: str,
    rows: Sequence[Row],
    *,
    several: bool,
    class_names: tuple[str, ...] | None,
    notes: Sequence[str],
    bad: Sequence[BadImage],
    column: str | None = None,
) -> Listing:
    """Return rows, one for each image, as a listing; images that are not there are bad ones."""
    there = [row for row in rows if row.found.size is not None]
    entries: dict[str, list[Entry]] = {}
    for index, row in enumerate(there):
        # Of Parquet files no sizes were counted from the first: those data keep their fingerprint.
        size = 0 if row.table.lower().endswith(PARQUET) else row.found.size or 0
        entries.setdefault(row.split, []).append(Entry(index, row.image, row.classes, size))
    gone = [row for row in rows if row.found.size is None]
    missing = (
        BadImage(row.found.path, f"'{row.found.path}' ({row.table}, {row.place}) does not exist") for row in gone
    )
    return Listing(
        title=title,
        name=name,
        store=Files(Path(), [row.found.path for row in there]),
        entries=in_order(entries),
        class_names=class_names,
        task=task_of(several=several),
        notes=tuple(notes),
        bad=(*bad, *missing),
        bad_classes=frozenset(name for row in gone for name in row.classes),
        column=column,
    )


def _in_several_splits(title: str, rows: Sequence[Row]) -> list[str]:
    """Return a note on images that are trained on and scored; none where there are none.

    Raises:
        DataError: they are many of those that are scored, as where the tables are of several folds.
    """
    trained = {row.found.path for row in rows if row.split == "train"}
    scored = {row.found.path: row for row in rows if row.split not in ("train", ALL)}
    shared = [row for path, row in scored.items() if path in trained]
    if not shared:
        return []
    said = (
        f"'{title}' has {counted(len(shared), 'image')} in train and in another split, such as '{shared[0].image}' "
        f"({shared[0].split}): scores would be too good"
    )
    if not are_few(len(shared), len(scored)):
        raise DataError(f"{said}. Where the tables are of several folds, put those of one into a folder of their own.")
    return [f"{said}."]


def path_column(table: PathTable, column: str) -> list[tuple[str, str]]:
    """Return the path of the image of each row of a table, and the row's cell of a column as text.

    Raises:
        DataError: none of its images exists.
    """
    columns = find_columns(str(table.path), table.names, labelled=False, schema=table.schema, cells=table.cells)
    found = table.finder.find([cell_text(cell) for cell in table.cells(columns.image)])
    return [(file.path, cell_text(cell)) for file, cell in zip(found, table.cells(column), strict=True)]


def bad_row(table: str | Path, place: str, why: str) -> BadImage:
    """Return a row of a table that cannot be used, with its place in messages and what it lacks."""
    return BadImage(f"{table}, {place}", f"'{table}', {place}, {why}", listed=True)


def _rows(table: PathTable, columns: Columns, bad: list[BadImage]) -> list[Row]:
    """Return the rows of a table, without those that lack an image, a class or a split, which are added to the bad ones.

    Raises:
        DataError: none has a class.
    """
    images = [cell_text(cell) for cell in table.cells(columns.image)]
    named = splits_of_rows(columns, table.cells, len(images))
    where, labelled = str(table.path), bool(columns.classes or columns.labels)
    classes = _classes(table, columns, len(images))
    if labelled and images and table.split in ("train", ALL) and all(own == UNREAD for own in classes):
        raise DataError(f"'{where}' has a class for none of its images; write it beside each.")
    rows: list[tuple[str, tuple[str, ...], str, str]] = []
    for image, own, part, place in zip(images, classes, named, table.places, strict=True):
        try:
            split = split_of_row(part, table.split, where, place)
        except DataError as error:
            bad.append(BadImage(f"{where}, {place}", str(error).rstrip("."), listed=True))
            continue
        if not image:
            bad.append(bad_row(where, place, "names no image"))
        elif own == UNREAD and labelled and split in ("train", ALL):
            bad.append(bad_row(where, place, f"gives '{image}' no class"))
        else:
            rows.append((image, own, split, place))
    found = table.finder.find([image for image, _, _, _ in rows])
    return [
        Row(image, own, split, file, place, where) for (image, own, split, place), file in zip(rows, found, strict=True)
    ]


def _classes(table: PathTable, columns: Columns, count: int) -> list[tuple[str, ...]]:
    """Return the classes of each row, without those that are not in the image."""
    found = classes_of_rows(columns, table.cells, count, title=str(table.path))
    denied = {row for row, cell in enumerate(_verdicts(table)) if columns.classes and is_no(cell)}
    return [() if row in denied else classes for row, classes in enumerate(found)]


def _verdicts(table: PathTable) -> Sequence[Any]:
    """Return the cells that say whether the class of a row is in its image, as in Open Images; none without such a column.

    Of numbers between 0 and 1 it is not known from which on.
    """
    cells = next((table.cells(name) for name in table.names if plain(name) == CONFIDENCE), ())
    return cells if are_verdicts(cells) else ()


def _unread(names: Sequence[str]) -> str:
    """Return what a table's columns tell of regions in its images, "boxes" or "masks"; nothing where they do not."""
    written = set(map(plain, names))
    if any(columns <= written for columns in BOXES):
        return "boxes"
    return "masks" if known_column(names, RUN_LENGTHS) else ""


def _images(title: str, rows: Sequence[Row], *, several: bool, unread: str) -> tuple[list[Row], list[str]]:
    """Return a row for each image of each split, with the classes of all of its rows, and a note if there are fewer."""
    merged: dict[tuple[str, str], Row] = {}
    different: list[Row] = []
    for row in rows:
        first = merged.setdefault((row.split, row.found.path), row)
        if set(first.classes) != set(row.classes):
            merged[row.split, row.found.path] = first._replace(
                classes=tuple(dict.fromkeys(first.classes + row.classes))
            )
            different.append(merged[row.split, row.found.path])
    if different and not several:
        raise DataError(
            f"'{title}' gives images different classes on several lines, such as '{different[0].image}' "
            f"({some(different[0].classes)}); remove the wrong lines, or name the column of classes 'labels' if an image has "
            "several."
        )
    if len(merged) == len(rows):
        return list(merged.values()), []
    what = "all classes of its lines" if different else "the class of its lines"
    read = f"; its {unread} are not read" if unread else ""
    note = f"'{title}' has {len(rows):,} lines for {counted(len(merged), 'image')}: each image counts once, with {what}{read}."
    return list(merged.values()), [note]
