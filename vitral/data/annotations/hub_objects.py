"""Objects in the rows of a Hugging Face dataset: a column of boxes with their classes, or a column of each.

The library does not say whether a box is [x, y, width, height] or [left, top, right, bottom], or has its centre before its
sides: all boxes of a dataset that have the same columns decide together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from vitral.data.annotations.annotation import Annotation, Mark, Marks, Size
from vitral.data.annotations.tree import StoredFile
from vitral.data.columns import arrow, feature_of, holds_lists
from vitral.data.listing import Listing
from vitral.described import mapping
from vitral.errors import DataError, ImageError
from vitral.images.decode import SIDEWAYS
from vitral.images.header import stored_size
from vitral.tasks.boxes import BOXES as BOXES_TASK

BOXES = ("bbox", "bboxes", "boxes")
CLASSES = ("category", "categories", "label", "labels", "class", "name")
NESTED = 4  # features in each other: a list of objects, an object, a list of classes, a class
SLACK = 1.0  # pixels beyond a photo's edge that are a tool's rounding
BY_SIDES = "[x, y, width, height]"
BY_CORNERS = "[left, top, right, bottom]"
BY_CENTRE = "[centre x, centre y, width, height]"
FEWEST = 0.01  # the share of boxes that speak against corners, and against sides, from which on they may have centres
Corners = Float64[np.ndarray, "boxes 4"]


class ObjectColumns(NamedTuple):
    """Where a row has its objects.

    Attributes:
        column: The column of objects; None where boxes and classes are columns of their own.
        boxes: What the boxes are called in it, or their column.
        classes: The classes likewise.
    """

    column: str | None
    boxes: str
    classes: str

    @property
    def names(self) -> list[str]:
        """The columns of the table that these are."""
        return [self.boxes, self.classes] if self.column is None else [self.column]

    def objects(self, row: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return the objects of a row; None where it says nothing of any."""
        if self.column is not None:
            return row.get(self.column)
        own = {name: row.get(name) for name in self.names}
        return None if None in own.values() else own


class ObjectRows(NamedTuple):
    """The objects in the rows of a table.

    Attributes:
        first: The store index of the first row's photo.
        columns: Where the rows have them.
        names: The names of the classes that the table declares.
        rows: The objects of each.
    """

    first: int
    columns: ObjectColumns
    names: tuple[str, ...] | None
    rows: list[Any]


def with_objects(listing: Listing, tables: Iterable[ObjectRows]) -> Listing:
    """Return the rows of tables that have objects, with these; the listing as it is where none has.

    Raises:
        DataError: as by `read_objects`.
    """
    alike: dict[ObjectColumns, list[ObjectRows]] = {}
    for table in tables:
        alike.setdefault(table.columns, []).append(table)
    if not alike:
        return listing
    annotations: dict[int, Annotation] = {}
    notes: list[str] = []
    for columns, found in alike.items():
        numbers = [table.first + row for table in found for row in range(len(table.rows))]
        photos = [StoredFile(listing.store, number) for number in numbers]
        names = [table.names for table in found for _ in table.rows]
        marked, note = read_objects(listing.title, [row for each in found for row in each.rows], columns, names, photos)
        annotations |= zip(numbers, marked, strict=True)
        notes.append(note)
    entries = {
        split: [
            entry._replace(classes=annotations[entry.store_index].classes)
            for entry in listed
            if entry.store_index in annotations
        ]
        for split, listed in listing.entries.items()
    }
    whole = sum(map(len, entries.values())) == sum(map(len, listing.entries.values()))
    return replace(
        listing,
        entries={split: listed for split, listed in entries.items() if listed},
        class_names=next((table.names for found in alike.values() for table in found if table.names), None),
        task=BOXES_TASK,
        shards=listing.shards if whole else {},
        notes=(*listing.notes, *notes),
        annotations=annotations,
    )


def objects_of(
    schema: Any,  # noqa: ANN401  # pyarrow's
) -> tuple[ObjectColumns, tuple[str, ...] | None] | None:
    """Return what `object_columns` does of a Parquet file, and the names of the classes it declares; None without objects."""
    columns = object_columns({field.name: _nested(field.type) for field in schema})
    return None if columns is None else (columns, _names_in_schema(schema, columns))


def object_columns(features: Mapping[str, Any]) -> ObjectColumns | None:
    """Return where rows have boxes and their classes; None where they have none.

    Of each column its feature is given, or any value. A single box of a photo, and a single class, are no objects.
    """
    for column, feature in features.items():
        within = getattr(feature, "feature", feature)
        within = within[0] if isinstance(within, list) and within else within
        if (found := _named_in(within if isinstance(within, Mapping) else {})) is not None:
            return ObjectColumns(column, *found)
    found = _named_in(features)
    if found is not None and [_depth(features[name]) for name in found] == [2, 1]:
        return ObjectColumns(None, *found)
    return None


def _named_in(keys: Mapping[str, Any]) -> tuple[str, str] | None:
    boxes, classes = (next((name for name in names if name in keys), None) for names in (BOXES, CLASSES))
    return None if boxes is None or classes is None else (boxes, classes)


def _depth(feature: Any) -> int:  # noqa: ANN401
    """Return how many lists are in each other."""
    if isinstance(feature, list):
        return 1 + max(map(_depth, feature), default=0)
    return 1 + _depth(feature.feature) if hasattr(feature, "feature") else 0


def _nested(kind: Any) -> Any:  # noqa: ANN401  # pyarrow's
    """Return the type of a Parquet file's column as `object_columns` takes it."""
    if holds_lists(kind):
        return [_nested(kind.value_type)]
    return {each.name: each.type for each in kind} if arrow().types.is_struct(kind) else kind


def _names_in_schema(schema: Any, columns: ObjectColumns) -> tuple[str, ...] | None:  # noqa: ANN401  # pyarrow's
    """Return the names of the classes of objects that Hugging Face's library wrote into a schema; None without any."""
    told: Any = feature_of(schema, columns.names[-1])
    for _ in range(NESTED):
        told = told[0] if isinstance(told, list) and told else mapping(told)
        told = told.get(columns.classes, told.get("feature", {}))
        if isinstance(names := mapping(told).get("names"), list):
            return tuple(map(str, names))
    return None


def class_names_of(features: Mapping[str, Any], columns: ObjectColumns) -> tuple[str, ...] | None:
    """Return the names of the classes that a dataset declares, in its order; None where it declares none."""
    kind: Any = features
    for name in filter(None, (columns.column, columns.classes)):
        kind = kind[name]
        kind = getattr(kind, "feature", kind)
        kind = kind[0] if isinstance(kind, list) else kind
    names = getattr(kind, "names", None)
    return None if names is None else tuple(map(str, names))


def read_objects(
    title: str,
    rows: Sequence[Any],
    columns: ObjectColumns,
    names: Sequence[Sequence[str] | None],
    photos: Sequence[StoredFile],
) -> tuple[list[Marks], str]:
    """Return the annotation of each row's objects, and how boxes are taken, in a line.

    Of each row the names of classes that its table declares and its photo are given.

    Raises:
        DataError: boxes are not of four numbers, or their coordinates are not pixels.
    """
    listed = [list(_objects(row, columns[1:])) for row in rows]
    sizes = [_size(photo) if there else None for photo, there in zip(photos, listed, strict=True)]
    try:
        boxes = [np.array([box for box, _ in there], dtype=np.float64).reshape(-1, 4) for there in listed]
    except (TypeError, ValueError) as error:
        raise DataError(f"'{title}' has boxes in '{columns.names[0]}' that are not four numbers each.") from error
    form, why = box_form(title, boxes, sizes)
    annotations = []
    for there, own, declared, size in zip(listed, boxes, names, sizes, strict=True):
        kinds = [_name(title, kind, declared) for _, kind in there]
        marks = [Mark(name, box=(*box,)) for name, box in zip(kinds, _corners(own, form).tolist(), strict=True)]
        annotations.append(Marks.of(marks, stated=size))
    return annotations, f"The boxes of '{columns.names[0]}' are taken as {form}: {why}."


def _corners(boxes: Corners, form: str) -> Corners:
    """Return boxes of a form by their corners."""
    if form == BY_CORNERS:
        return boxes
    first, sides = boxes[:, :2], boxes[:, 2:]
    first = first - sides / 2 if form == BY_CENTRE else first
    return np.concatenate([first, first + sides], axis=1)


def box_form(title: str, boxes: Iterable[Corners], sizes: Iterable[Size | None]) -> tuple[str, str]:
    """Return which form boxes have, and why, as all of them together tell.

    Raises:
        DataError: they are shares of the photo, not pixels.
    """
    by_sides = by_corners = off_centre = count = 0
    largest = 0.0
    for own, size in zip(boxes, sizes, strict=True):
        if size is None or not len(own):
            continue
        largest, count = max(largest, float(own.max())), count + len(own)
        by_sides += int((own[:, 2:] < own[:, :2]).any(axis=1).sum())
        ends = np.array([size[1], size[0]]) + SLACK
        by_corners += int((own[:, :2] + own[:, 2:] > ends).any(axis=1).sum())
        around = _corners(own, BY_CENTRE)
        off_centre += int(((around[:, :2] < -SLACK) | (around[:, 2:] > ends)).any(axis=1).sum())
    if 0 < largest <= 1:
        raise DataError(
            f"'{title}' has boxes in shares of the photo, not in pixels; multiply them by its width and height."
        )
    no_corners, no_sides = (
        f"as corners {by_sides:,} would end before they begin",
        f"with sides {by_corners:,} would reach",
    )
    # A few boxes may be wrong in data of any form.
    if min(by_sides, by_corners) > FEWEST * count and not off_centre:
        return BY_CENTRE, f"{no_corners}, {no_sides} beyond their photo, and so none does"
    if by_sides > by_corners:
        return BY_SIDES, no_corners
    if by_corners:
        return BY_CORNERS, f"{no_sides} beyond their photo"
    return BY_SIDES, "nothing speaks for corners"


def _name(title: str, kind: object, names: Sequence[str] | None) -> str:
    if names is None or isinstance(kind, str):
        return str(kind)
    if not isinstance(kind, int) or not 0 <= kind < len(names):
        raise DataError(
            f"'{title}' has an object of the class {kind!r}, where it declares {len(names):,} classes from 0 on."
        )
    return names[kind]


def _objects(row: object, keys: Sequence[str]) -> Iterable[tuple[Any, Any]]:
    """Give box and class of each object of a row, which the library holds as lists by name or as a list of objects."""
    if isinstance(row, list):
        yield from ((mapping(each).get(keys[0]), mapping(each).get(keys[1])) for each in row)
    else:
        boxes, classes = (mapping(row).get(key) or [] for key in keys)
        yield from zip(boxes, classes, strict=False)


def _size(photo: StoredFile) -> Size | None:
    """Return a photo's height and width the right way up; None where it cannot be read, which is reported elsewhere."""
    try:
        (height, width), turn = stored_size(photo.store.read(photo.number))
    except (ImageError, OSError):
        return None
    return (width, height) if turn in SIDEWAYS else (height, width)
