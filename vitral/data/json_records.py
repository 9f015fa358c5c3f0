"""A whole file of JSON as records, one for each image, in the forms that programs write it.

| form | what it is |
|---|---|
| [{"image": …, "label": …}, …] | records, as of pandas (orient="records") or Label Studio's short form |
| {"image": {"0": …}, "label": {"0": …}}, or lists | columns, as of pandas |
| {"1.jpg": "cat", …}, or objects for the names | a label, or the columns, of each image |
| {"labels": [["1.jpg", 0], …]} | pairs, as beside StyleGAN's images |
| {"images": …, "annotations": …, "categories": …} without boxes | COCO's form for classes, as of iNaturalist |
| Label Studio's tasks with choices | as many labels as were chosen |
"""

from collections.abc import Iterator, Mapping
from typing import Any

from vitral.data.annotations.coco import marks_region
from vitral.data.annotations.label_studio import finished, photo_named, results_of
from vitral.data.columns import IMAGES, known_column
from vitral.described import mapping

Record = dict[str, Any]
# The names of the columns that are made here.
IMAGE = "image"
LABEL = "label"
LABELS = "labels"
CHOICES = "choices"  # Label Studio's key of what was chosen


def records_of(values: Any, file: str) -> list[Record] | None:  # noqa: ANN401  # any JSON
    """Return the records in a file's values; None where they are in none of the module's forms.

    Raises:
        DataError: a task of Label Studio's names no image.
    """
    if isinstance(values, list):
        rows = [row for row in values if isinstance(row, dict)]
        if len(rows) < len(values):
            return None
        return _tasks(rows, file) if any(map(finished, rows)) else [_short(row) for row in rows]
    if not isinstance(values, dict) or not values:
        return None
    if {"images", "annotations", "categories"} <= values.keys():
        return _coco(values)
    if isinstance(pairs := values.get(LABELS), list) and len(values) == 1:
        good = all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
        return [{IMAGE: image, LABEL: label} for image, label in pairs] if good else None
    if known_column(list(values), IMAGES):
        return _columns(values)
    if all(isinstance(value, dict) for value in values.values()):
        return [{IMAGE: name, **value} for name, value in values.items()]
    if any(isinstance(value, dict) for value in values.values()):
        return None
    several = any(isinstance(value, list) for value in values.values())
    return [{IMAGE: name, LABELS if several else LABEL: value} for name, value in values.items()]


def _columns(values: Mapping[str, Any]) -> list[Record] | None:
    """Return the rows of columns, each a list or an object by the rows' names."""
    cells = {name: list(column.values()) if isinstance(column, dict) else column for name, column in values.items()}
    if not all(isinstance(column, list) for column in cells.values()) or len({*map(len, cells.values())}) != 1:
        return None
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]


def _short(row: Record) -> Record:
    """Return a record in which several choices of Label Studio's are a list."""
    return {name: mapping(value).get(CHOICES, value) for name, value in row.items()}


def _tasks(tasks: list[Record], file: str) -> list[Record] | None:
    """Return the photo of each task with what was chosen; None where nothing was."""
    chosen = [[str(name) for name in _chosen(task)] for task in tasks]
    if not any(chosen):
        return None
    several = any(len(names) > 1 for names in chosen)
    return [
        {IMAGE: photo_named(task, file), LABELS if several else LABEL: names if several else next(iter(names), None)}
        for task, names in zip(tasks, chosen, strict=True)
    ]


def _chosen(task: Record) -> Iterator[object]:
    for result in results_of(task):
        names = result.get(CHOICES)
        yield from names if isinstance(names, list) else ()


def _coco(values: Mapping[str, Any]) -> list[Record] | None:
    """Return the images of COCO's lists with their classes; None where something else is in them, such as regions."""
    lists = [values[name] for name in ("images", "annotations", "categories")]
    if not all(isinstance(each, list) and all(isinstance(item, dict) for item in each) for each in lists):
        return None
    images, annotations, categories = lists
    if any(map(marks_region, annotations)):
        return None
    names = {item.get("id"): str(item.get("name")) for item in categories}
    classes: dict[Any, dict[str, None]] = {}
    for item in annotations:
        if (name := names.get(item.get("category_id"))) is not None:
            classes.setdefault(item.get("image_id"), {})[name] = None
    several = any(len(found) > 1 for found in classes.values())
    return [
        {
            IMAGE: str(item.get("file_name")),
            LABELS if several else LABEL: list(found) if several else next(iter(found), None),
        }
        for item in images
        for found in [classes.get(item.get("id"), {})]
    ]
