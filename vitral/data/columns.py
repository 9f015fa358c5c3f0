"""Which columns of a table contain what, by one rule for text, Parquet and Hugging Face datasets.

| column | names, in any case |
|---|---|
| image | image, img, image, path, file, filename, file_name, filepath, image_path, image_name, image_id, img_path, bytes |
| classes | label, labels, class, class_name, category, target, fine_label, coarse_label |
| split | split, subset |

Where types are known, a column of encoded images comes before any name, and a column with declared classes is one of classes
under any name. Where several columns could be meant, the one called "image" or "label" is; otherwise the data are refused until
their name chooses: columns:image=NAME,label=NAME:SOURCE.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from vitral.data.chosen import PREFIX, choose
from vitral.data.names import ALL, split_named
from vitral.errors import DataError, did_you_mean

IMAGES = (
    *("image", "img", "picture", "path", "file", "filename", "file_name", "filepath"),  # codespell:ignore picture
    *("image_path", "image_name", "image_id", "img_path", "bytes"),
)
CLASSES = ("label", "labels", "class", "class_name", "category", "target", "fine_label", "coarse_label")
SPLIT = ("split", "subset")
# The names that are meant where several columns could be.
IMAGE = ("image",)
LABELS = ("label", "labels")
UNREAD = ("",)  # the classes of an image whose label is not read
Item = TypeVar("Item")


@dataclass(frozen=True)
class Columns:
    """The names of a table's columns; None for classes that are not read, and for a split that the rows do not name."""

    image: str
    classes: str | None
    split: str | None


def known_column(names: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the first column that has one of the known names, tried in their order."""
    return next((name for wanted in known for name in names if name.strip().lower() == wanted), None)


def find_columns(
    title: str, names: Sequence[str], *, labelled: bool = True, schema: pa.Schema | None = None
) -> Columns:
    """Return which columns of a table contain what, of the classes only if they are read.

    Args:
        title: The table's name in messages.
        names: The names of its columns.
        labelled: Whether the classes are read.
        schema: The types of the columns, where they are known.

    Raises:
        DataError: there is no column of images, or of classes that are to be read, or there are several.
    """
    encoded = [] if schema is None else _image_columns(schema)
    known = known_column(names, IMAGES)
    image = choose(title, "image", encoded or ([known] if known else []), IMAGE)
    have = ", ".join(names) or "none"
    if image is None:
        raise DataError(
            f"'{title}' has no column of images (its columns: {have}); name one of them 'image', or write "
            f"{PREFIX}image=NAME: before the name of the data."
        )
    check_column(title, image, names)
    if not labelled:
        return Columns(image, None, known_column(names, SPLIT))
    could = [
        name
        for name in names
        if name not in (image, *encoded)
        and (name.strip().lower() in CLASSES or (schema and declared_names(schema, name) is not None))
        and (schema is None or _holds_classes(schema.field(name).type))
    ]
    classes = choose(title, "label", could, LABELS)
    if classes is None:
        raise DataError(
            f"'{title}' has no column of classes (its columns: {have}); name one of them 'label', or write "
            f"{PREFIX}label=NAME: before the name of the data."
        )
    check_column(title, classes, names)
    return Columns(image, classes, known_column(names, SPLIT))


def _image_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of encoded images: those that say so, else those of bytes under a known name, else any of bytes."""
    said = [item.name for item in schema if _feature(schema, item.name).get("_type") == "Image" or _is_image(item.type)]
    plain = [item.name for item in schema if pa.types.is_binary(item.type) or pa.types.is_large_binary(item.type)]
    known = [name for name in plain if name.strip().lower() in IMAGES]
    return said or known or ([] if known_column(schema.names, IMAGES) else plain)


def _is_image(kind: pa.DataType) -> bool:
    """Tell whether a type is that of an image in the Hub's form: bytes, a path, or both."""
    return pa.types.is_struct(kind) and {kind.field(index).name for index in range(kind.num_fields)} == {
        "bytes",
        "path",
    }


def _holds_classes(kind: pa.DataType) -> bool:
    """Tell whether cells of a type can be classes: names, numbers or lists of them, not boxes and their like."""
    inner = kind.value_type if hasattr(kind, "value_type") and not pa.types.is_dictionary(kind) else kind
    return not pa.types.is_nested(inner) and not (inner is not kind and pa.types.is_floating(inner))


def _feature(schema: pa.Schema, column: str | None) -> dict[str, Any]:
    """Return what Hugging Face's datasets wrote of a column into a schema; nothing where they did not."""
    try:
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][column]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return feature if isinstance(feature, dict) else {}


def declared_names(schema: pa.Schema, column: str | None) -> tuple[str, ...] | None:
    """Return the class names that Hugging Face's datasets wrote into a schema, or None."""
    feature = _feature(schema, column)
    inner = feature.get("feature")
    names = feature.get("names") or (inner.get("names") if isinstance(inner, dict) else None)
    return tuple(str(name) for name in names) if isinstance(names, list) and names else None


def check_column(title: str, column: str, names: Sequence[str]) -> None:
    """Refuse a column that a table does not have, by a `DataError`."""
    if column not in names:
        raise DataError(f"'{title}' has no column '{column}', only {', '.join(names)}.{did_you_mean(column, names)}")


def cell_text(cell: object) -> str:
    """Return a cell as text, "" for a null or NaN."""
    return "" if cell is None or cell != cell else str(cell).strip()


def split_of_row(name: str | None, split: str, table: str, row: str) -> str:
    """Return the split of a row: the one that it names, unless its file determines the split.

    Args:
        name: The row's cell in the column of splits, "" if it is empty; None where there is no such column.
        split: The split that the file determines, or "all".
        table: The file's name in messages.
        row: The row's name in messages.

    Raises:
        DataError: it names something that is not a split, or nothing.
    """
    if name is None or split != ALL:
        return split
    named = split_named(name.strip())
    if named is None:
        raise DataError(
            f"'{table}', {row}, has the split '{name}'; the splits are train, validation and test: name one in each row, or "
            "remove the column."
        )
    return named


def in_order(entries: dict[str, list[Item]]) -> dict[str, list[Item]]:
    """Return the splits in order, train first; if there are none, an empty split of all."""
    order = ("train", "validation", "test", ALL)
    return {split: entries[split] for split in order if split in entries} or {ALL: []}
