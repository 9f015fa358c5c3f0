"""Which columns of a table contain what.

| column | names, in any case |
|---|---|
| image | image, img, image, path, file, filename, file_name, filepath, image_path, image_name, image_id, img_path, bytes |
| classes | label, labels, class, class_name, category, target, fine_label |
| split | split, subset |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from vitral.data.names import ALL, split_named
from vitral.errors import DataError, did_you_mean

IMAGES = (
    *("image", "img", "picture", "path", "file", "filename", "file_name", "filepath"),  # codespell:ignore picture
    *("image_path", "image_name", "image_id", "img_path", "bytes"),
)
CLASSES = ("label", "labels", "class", "class_name", "category", "target", "fine_label")
SPLIT = ("split", "subset")
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


def find_columns(title: str, names: Sequence[str], *, labelled: bool = True) -> Columns:
    """Return which columns of a table contain what, of the classes only if they are read.

    Raises:
        DataError: there is no column of images, or of classes that are to be read.
    """
    image, classes = known_column(names, IMAGES), known_column(names, CLASSES) if labelled else None
    have = ", ".join(names) or "none"
    if image is None:
        raise DataError(f"'{title}' has no column of images (its columns: {have}); name one of them 'image'.")
    if labelled and classes is None:
        raise DataError(f"'{title}' has no column of classes (its columns: {have}); name one of them 'label'.")
    return Columns(image, classes, known_column(names, SPLIT))


def check_column(title: str, column: str, names: Sequence[str]) -> None:
    """Refuse a column that a table does not have, by a `DataError`."""
    if column not in names:
        raise DataError(f"'{title}' has no column '{column}', only {', '.join(names)}.{did_you_mean(column, names)}")


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
