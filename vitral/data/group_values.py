"""A user's groups of images: what a column says (a patient, a video, a site), a folder, or a series.

A series are the images of a folder whose names differ in their last number alone, such as frames of a video.
"""

import re
from collections.abc import Sequence
from pathlib import PurePath

from vitral.data.chosen import choosing
from vitral.data.names import folder_and_stem
from vitral.data.stored import Entry, Store
from vitral.data.tables import column_of
from vitral.errors import DataError

FOLDER = "folder"  # the folder of an image; folder:2 is the folder around it
SERIES = "series"
NUMBER = re.compile(r"\d+(?!.*\d)")  # the last one


def group_values(
    column: str, title: str, store: Store, images: Sequence[Entry], tables: Sequence[str], chosen: dict[str, str]
) -> dict[int, str]:
    """Return each image's group by its index in the store; images without a value are not in it.

    A group is told by a column of the tables, or of the dataset, or where none is so called by "folder", "folder:2" and so on,
    or "series".

    Raises:
        DataError: There is no such column or folder; the message names those that there are.
    """
    try:
        values = _in_columns(column, store, images, tables, chosen)
    except DataError:
        if column != SERIES and column.partition(":")[0] != FOLDER:
            raise
        values = None
    values = _named(title, [image.name for image in images], column) if values is None else values
    return {image.store_index: value for image, value in zip(images, values, strict=True) if value}


def _in_columns(
    column: str, store: Store, images: Sequence[Entry], tables: Sequence[str], chosen: dict[str, str]
) -> list[str] | None:
    """Return each image's cell of a column as text; None where there are no columns."""
    cells = getattr(store, "cells", None)
    if cells is not None and (values := cells(column)) is not None:
        return [values[image.store_index] for image in images]
    if not tables:
        return None
    by_name = cells_in(tables, column, chosen)
    return [by_name.get(store.name(image.store_index), "") for image in images]


def cells_in(tables: Sequence[str], column: str, chosen: dict[str, str]) -> dict[str, str]:
    """Return a column's cells as text by the names of the images, of which the columns may be chosen; see `choosing`.

    Raises:
        DataError: There is no such column, or an image has two values.
    """
    by_name: dict[str, str] = {}
    for table in tables:
        with choosing(chosen):
            pairs = column_of(table, column)
        for name, value in pairs:
            by_name[name] = by_name.get(name) or value
            if value and by_name[name] != value:
                raise DataError(f"'{name}' has two values in the column '{column}' of '{table}'; give it one.")
    return by_name


def _named(title: str, names: Sequence[str], by: str) -> list[str]:
    if by == SERIES:
        return [series_of(name) for name in names]
    return folders_of(
        title, names, by, f"{FOLDER}, {FOLDER}:2 and so on, or {SERIES} (names but for their last number)"
    )


def series_of(name: str) -> str:
    """Return an image's name without its last number and its suffix."""
    folder, stem = folder_and_stem(name)
    return f"{folder}/{NUMBER.sub('', stem)}"


def folders_of(title: str, names: Sequence[str], by: str, known: str) -> list[str]:
    """Return the folder of each image that `by` means: "folder", "folder:2" and so on.

    Raises:
        DataError: `by` is none of these, but `known` are; or an image does not lie in so many folders.
    """
    kind, _, level = by.partition(":")
    if kind != FOLDER or (level and not (level.isdecimal() and 0 < int(level) < 100)):
        raise DataError(f"'{title}' is no table with columns, so its images are told apart by {known}, not by '{by}'.")
    depth = int(level or 1)
    parents = [PurePath(name).parts[:-1] for name in names]
    if outside := [name for name, parts in zip(names, parents, strict=True) if len(parts) < depth]:
        raise DataError(f"'{outside[0]}' of {title} does not lie in {depth} folders.")
    return [parts[-depth] for parts in parents]
