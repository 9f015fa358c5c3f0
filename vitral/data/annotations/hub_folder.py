"""Objects in metadata.jsonl, .csv or .parquet beside images, as Hugging Face's ImageFolder documents it for object detection.

A row is {"file_name": "1.png", "objects": {"bbox": [[302, 109, 73, 52]], "categories": [0]}}, its path relative to the file's
folder. Numbers of classes stand for the names in classes.txt, if there is one beside the file or above all.
"""

import csv
import io
import json
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from vitral.data.annotations.annotation import Marks
from vitral.data.annotations.hub_objects import BOXES as KEYS
from vitral.data.annotations.hub_objects import ObjectColumns, object_columns, read_objects
from vitral.data.annotations.marked import AGAIN, NOT_THERE, MarkedPhotos, Trap, splits_of
from vitral.data.annotations.tree import FileTree
from vitral.data.columns import arrow
from vitral.data.names import NAMES_FILE, listed_names, natural_key
from vitral.errors import DataError, one_line
from vitral.tasks.boxes import BOXES

FORM = "Hugging Face metadata"
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
NAMED = ("file_name", "image_file_name")  # columns of the image's path
Row = Mapping[str, Any]


def read_hub_folder(tree: FileTree) -> MarkedPhotos | None:
    """Return what the metadata files in a folder say of objects; None where they say nothing of any.

    Raises:
        DataError: one cannot be read, or its boxes are not four numbers each, in pixels.
    """
    found: dict[ObjectColumns, dict[str, tuple[Any, tuple[str, ...] | None]]] = {}  # by photo its objects, named so
    traps: list[Trap] = []
    declared: tuple[str, ...] = ()
    for path in tree.ending(*METADATA):
        rows = _rows(tree, path) if PurePosixPath(path).name in METADATA else []
        columns = next((each for row in rows if (each := object_columns(row))), None)
        if columns is None:
            continue
        names = _names(tree, path)
        declared = declared or names or ()
        own = found.setdefault(columns, {})
        for row in rows:
            photo = _photo(tree, path, row)
            if photo is None or any(photo in photos for photos in found.values()):
                traps.append(Trap(NOT_THERE if photo is None else AGAIN, path))
            elif (objects := columns.objects(row)) is not None:  # otherwise nobody marked it
                own[photo] = objects, names
    marked: dict[str, Marks] = {}
    notes: list[str] = []
    for columns, photos in found.items():
        listed, named = [objects for objects, _ in photos.values()], [names for _, names in photos.values()]
        annotations, note = read_objects(str(tree.title), listed, columns, named, list(map(tree.file, photos)))
        marked |= zip(photos, annotations, strict=True)
        notes.append(note)
    if not marked and not traps:
        return None
    classes = {name for annotation in marked.values() for name in annotation.classes}
    return MarkedPhotos(
        form=FORM,
        task=BOXES,
        annotations=marked,
        class_names=declared or tuple(sorted(classes, key=natural_key)),
        splits=splits_of(marked),
        traps=tuple(traps),
        notes=tuple(notes),
    )


def _photo(tree: FileTree, path: str, row: Row) -> str | None:
    """Return the photo that a row is of; None where it is not there."""
    name = next((value for key in NAMED if isinstance(value := row.get(key), str)), "")
    photo = posixpath.normpath(posixpath.join(posixpath.dirname(path), name.replace("\\", "/")))
    return photo if name and photo in tree else None


def _names(tree: FileTree, path: str) -> tuple[str, ...] | None:
    folder = posixpath.dirname(path)
    listed = (listed_names("\n".join(tree.lines(posixpath.join(place, NAMES_FILE)))) for place in (folder, ""))
    return next(filter(None, listed), None)


def _rows(tree: FileTree, path: str) -> list[Row]:
    """Return the rows of a file; none of one that has no boxes.

    Raises:
        DataError: it has boxes, and cannot be read.
    """
    file = tree.file(path)
    content = file.content()
    if not any(key.encode() in content for key in KEYS):
        return []
    try:
        return list(_parsed(path, content))
    except Exception as error:  # pyarrow raises many types
        raise DataError(f"'{file.name}' cannot be read ({one_line(error)}).") from error


def _parsed(path: str, content: bytes) -> Iterator[Row]:
    """Give the rows of a file; cells of a text table that are JSON are what they say."""
    if path.endswith(".parquet"):
        yield from arrow("pyarrow.parquet").read_table(io.BytesIO(content)).to_pylist()
        return
    text = content.decode("utf-8-sig")
    if path.endswith(".csv"):
        for row in csv.DictReader(io.StringIO(text, newline="")):
            yield {key: _value(cell) for key, cell in row.items()}
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {one_line(error)}") from error
            yield row if isinstance(row, dict) else {}


def _value(cell: str | None) -> Any:  # noqa: ANN401  # any JSON
    if not cell or cell[0] not in "{[":
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        return json.loads(cell.replace("'", '"'))  # as pandas writes it
