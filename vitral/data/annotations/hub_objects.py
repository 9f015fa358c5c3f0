"""Objects in the rows of a Hugging Face dataset: a column of lists of boxes, each with its class.

The library does not say whether a box is [x, y, width, height] or [left, top, right, bottom]: all boxes together decide.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from vitral.data.annotations.annotation import Mark, Marks, Size
from vitral.data.stored import Store
from vitral.described import mapping
from vitral.errors import DataError, ImageError
from vitral.images.decode import SIDEWAYS
from vitral.images.header import stored_size

BOXES = ("bbox", "bboxes", "boxes")
CLASSES = ("category", "categories", "label", "labels", "class", "name")
SLACK = 1.0  # pixels beyond a photo's edge that are a tool's rounding
BY_SIDES = "[x, y, width, height]"
BY_CORNERS = "[left, top, right, bottom]"
Corners = Float64[np.ndarray, "boxes 4"]


def objects_column(features: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the names of the column of objects, and of the boxes and the classes in it; None where there is none."""
    for column, feature in features.items():
        within = getattr(feature, "feature", feature)
        within = within[0] if isinstance(within, list) and within else within
        keys = within if isinstance(within, Mapping) else {}
        boxes, classes = (next((name for name in names if name in keys), None) for names in (BOXES, CLASSES))
        if boxes is not None and classes is not None:
            return column, boxes, classes
    return None


def class_names_of(features: Mapping[str, Any], columns: tuple[str, str, str]) -> tuple[str, ...] | None:
    """Return the names of the classes that a dataset declares, in its order; None where it declares none."""
    within = getattr(features[columns[0]], "feature", features[columns[0]])
    within = within[0] if isinstance(within, list) else within
    kind = within[columns[2]]
    names = getattr(getattr(kind, "feature", kind), "names", None)
    return None if names is None else tuple(map(str, names))


def read_objects(
    title: str,
    rows: Sequence[Any],
    columns: tuple[str, str, str],
    names: Sequence[str] | None,
    store: Store,
) -> tuple[list[Marks], str]:
    """Return the annotation of each row's objects, and how boxes are taken, in a line; `columns` are of `objects_column`.

    Raises:
        DataError: boxes are not of four numbers, or their coordinates are not pixels.
    """
    listed = [list(_objects(row, columns[1:])) for row in rows]
    sizes = [_size(store, index) if there else None for index, there in enumerate(listed)]
    try:
        boxes = [np.array([box for box, _ in there], dtype=np.float64).reshape(-1, 4) for there in listed]
    except (TypeError, ValueError) as error:
        raise DataError(f"'{title}' has boxes in '{columns[0]}' that are not four numbers each.") from error
    form, why = box_form(title, boxes, sizes)
    annotations = []
    for there, own, size in zip(listed, boxes, sizes, strict=True):
        corners = own if form == BY_CORNERS else np.concatenate([own[:, :2], own[:, :2] + own[:, 2:]], axis=1)
        kinds = [_name(title, kind, names) for _, kind in there]
        marks = [Mark(name, box=(*box,)) for name, box in zip(kinds, corners.tolist(), strict=True)]
        annotations.append(Marks.of(marks, stated=size))
    return annotations, f"The boxes of '{columns[0]}' are taken as {form}: {why}."


def box_form(title: str, boxes: Iterable[Corners], sizes: Iterable[Size | None]) -> tuple[str, str]:
    """Return which form boxes have, and why, as all of them together tell.

    Raises:
        DataError: they are shares of the photo, not pixels.
    """
    by_sides = by_corners = 0
    largest = 0.0
    for own, size in zip(boxes, sizes, strict=True):
        if size is None or not len(own):
            continue
        height, width = size
        largest = max(largest, float(own.max()))
        by_sides += int(((own[:, 2] < own[:, 0]) | (own[:, 3] < own[:, 1])).sum())
        by_corners += int(((own[:, 0] + own[:, 2] > width + SLACK) | (own[:, 1] + own[:, 3] > height + SLACK)).sum())
    if 0 < largest <= 1:
        raise DataError(
            f"'{title}' has boxes in shares of the photo, not in pixels; multiply them by its width and height."
        )
    if by_sides > by_corners:
        return BY_SIDES, f"as corners {by_sides:,} would end before they begin"
    if by_corners:
        return BY_CORNERS, f"with sides {by_corners:,} would reach beyond their photo"
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


def _size(store: Store, index: int) -> Size | None:
    """Return a photo's height and width the right way up; None where it cannot be read, which is reported elsewhere."""
    try:
        (height, width), turn = stored_size(store.read(index))
    except (ImageError, OSError):
        return None
    return (width, height) if turn in SIDEWAYS else (height, width)
