"""Which columns of a table contain what, by one rule for text, Parquet and Hugging Face datasets.

| column | names, in any case |
|---|---|
| image | image, img, path, file, filename, file_name, filepath, image_path, image_name, image_id, img_path, bytes, … |
| classes | label, labels, class, class_name, category, target, fine_label, coarse_label, tags, classes, … |
| split | split, subset; set, partition, phase, … if its cells are splits; is_valid, is_test of yes and no |

Spaces and hyphens in a name count as underscores. Where types are known, a column of encoded images comes before any name, and
a column with declared classes is one of classes under any name. In a table of paths without such names the column of images is
the one whose cells end like image files, or the one of ids; columns of yes and no are labels, see `vitral.data.table_cells`.
Where several columns could be meant, the one called "image" or "label" is; otherwise the data are refused until their name
chooses: columns:image=NAME,label=NAME:SOURCE.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from vitral.data.chosen import PREFIX, choose, chosen, note
from vitral.data.masks import FOLDER
from vitral.data.names import ALL, some, split_named
from vitral.data.stored import UNREAD
from vitral.data.table_cells import (
    Cells,
    are_classes,
    are_verdicts,
    cell_text,
    class_names,
    image_by_cells,
    is_given,
    is_yes,
    label_columns,
    marked,
)
from vitral.errors import DataError, did_you_mean, extra_module

IMAGES = (
    *("image", "img", "picture", "path", "file", "filename", "file_name", "filepath"),  # codespell:ignore picture
    *("image_path", "image_name", "image_id", "img_path", "bytes", "images", "image_file", "image_index", "imageid"),
    *("img_name", "img_id", "img_file", "file_path", "filenames", "photo"),
)
CLASSES = (
    *("label", "labels", "class", "class_name", "category", "target", "fine_label", "coarse_label", "cls"),
    *("tags", "classes", "categories", "tag", "label_name", "labelname", "classname", "finding_labels"),
)
CHOSEN = ("choice", "choices")  # columns of classes in Label Studio's tables
NUMBERED = ("class_id", "classid", "label_id", "category_id")  # columns of classes where no other has such a name
PLURAL = ("labels", "tags", "classes", "categories")  # the last word of the name of a column of several labels
IDS = ("id", "id_code", "image_number", "name")  # columns that name images where no other does
# Left, top, right and bottom of a box.
SIDES = (("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"), ("x1", "y1", "x2", "y2"))
SPLIT = ("split", "subset")
MOST_SHOWN = 20  # names of columns in a message
# Columns of splits if there is nothing else in them.
MAY_SPLIT = (
    *("set", "partition", "phase", "usage", "mode", "dataset", "data_set", "fold", "part", "group", "type", "stage"),
    *("train_test", "train_val", "train_test_split", "data_split", "ml_use", "purpose"),
)
# Columns that say of each row whether it is of a split; the others are to train on.
IS_SPLIT = {"is_valid": "validation", "is_val": "validation", "is_validation": "validation", "is_test": "test"}
EXTRA = "tables"  # which installs what reads tables other than of text
ANNOTATOR = {"region_attributes", "region_shape_attributes"}  # columns of VIA
RUN_LENGTHS = ("encodedpixels", "encoded_pixels", "rle", "rle_mask", "mask_rle")  # columns of masks, as Kaggle's
# The names that are meant where several columns could be.
IMAGE = ("image",)
LABELS = ("label", "labels")
Item = TypeVar("Item")
# Of pyarrow, which only tables other than of text need.
Schema = Any
DataType = Any


@dataclass(frozen=True)
class Columns:
    """The names of a table's columns; None for classes that are not read, and for a split that the rows do not name.

    `labels` are columns that say yes or no, one for each label, in place of a column of classes. A table of text has no schema.
    """

    image: str
    classes: str | None
    split: str | None
    labels: tuple[str, ...] = ()
    schema: Schema | None = None

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels that have a column each."""
        return tuple(label.strip() for label in self.labels)

    @property
    def declared(self) -> tuple[str, ...] | None:
        """The class names that the table itself lists, in order, which stand for numbers."""
        return None if self.schema is None else declared_names(self.schema, self.classes)

    @property
    def are_text(self) -> bool:
        """Whether the cells of the column of classes are text, in which several may stand."""
        return self.classes is not None and (self.schema is None or is_text(self.schema.field(self.classes).type))

    @property
    def are_lists(self) -> bool:
        """Whether they are lists."""
        return (
            self.schema is not None and self.classes is not None and holds_lists(self.schema.field(self.classes).type)
        )

    def notes(self, title: str, names: Sequence[str]) -> list[str]:
        """Return a line on the columns that are labels, and on those of all that are left out; none without such labels."""
        others = [name for name in names if name not in (self.image, self.classes, self.split, *self.labels)]
        left = f"; left out: {some(others)}" if others else ""
        return (
            [f"The classes of '{title}' are its columns of 0 and 1: {some(self.labels)}{left}."] if self.labels else []
        )


def known_column(names: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the first column that has one of the known names, tried in their order."""
    return next((name for wanted in known for name in names if plain(name) == wanted), None)


def plain(name: str) -> str:
    """Return a column's name in small letters, with underscores for spaces and hyphens, and without a leading number sign."""
    return re.sub(r"[\s-]+", "_", name.strip().lstrip("#").strip().lower())


def is_plural(column: str) -> bool:
    """Tell whether a column's name says that its cells may hold several labels."""
    return plain(column).rpartition("_")[2] in PLURAL


def find_columns(
    title: str,
    names: Sequence[str],
    *,
    labelled: bool = True,
    schema: Schema | None = None,
    cells: Cells | None = None,
    may_lack: bool = False,
) -> Columns:
    """Return which columns of a table contain what, of the classes only if they are read.

    By their cells images and labels are found where no name tells them.

    Raises:
        DataError: there is no column of images, or of classes that are to be read, or there are several, or masks.
    """
    have = _shown(names)
    image = find_image(title, names, schema=schema, cells=cells)
    if image is None:
        raise DataError(
            f"'{title}' has no column of images (its columns: {have}); name one of them 'image', or write "
            f"{PREFIX}image=NAME: before the name of the data."
        )
    check_column(title, image, names)
    if set(map(plain, names)) >= ANNOTATOR:
        raise DataError(
            f"'{title}' is a table of the VGG Image Annotator, with classes in JSON among its regions' attributes; write a "
            "table with a column 'label'."
        )
    others = [name for name in names if name != image and name not in _image_columns(schema)]
    split = known_column(others, SPLIT) or _split_by_cells(others, cells)
    if not labelled:
        return Columns(image, None, split, schema=schema)
    named = (
        [name for name in dict.fromkeys(others) if _may_be_classes(name, schema, known)]
        for known in (CLASSES, NUMBERED, CHOSEN)
    )
    could = next(filter(None, named), [])
    if (masks := known_column(others, RUN_LENGTHS)) is not None and chosen("label") is None:
        raise _unread_masks(title, masks, could)
    classes = choose(title, "label", could, LABELS)
    if classes is not None:
        check_column(title, classes, names)
        return Columns(image, classes, split, schema=schema)
    could = [name for name in others if name != split and plain(name) not in (*IMAGES, *IDS)]
    labels = () if cells is None else label_columns(title, could, cells)
    if not labels and cells is not None and len(could) == 1 and are_classes(cells(could[0])):
        note(f"The classes of '{title}' are those of '{could[0]}', its only column beside the images.")
        return Columns(image, could[0], split, schema=schema)
    if not labels and not may_lack:
        raise DataError(
            f"'{title}' has no column of classes (its columns: {have}); name one of them 'label', or write "
            f"{PREFIX}label=NAME: before the name of the data."
        )
    return Columns(image, None, split, labels, schema)


def _unread_masks(title: str, column: str, classes: Sequence[str]) -> DataError:
    """Return the error for a table of masks, which says how its classes are learned, where it has some."""
    name = next(iter(classes), "")
    instead = f" To learn classes of whole photos, write {PREFIX}label={name}: before the data's name." if name else ""
    return DataError(
        f"'{title}' has masks as run lengths in its column '{column}', which are not read from a table; write them as mask "
        f"images, or as COCO JSON.{instead}"
    )


def find_masked(names: Sequence[str], schema: Schema, *, beside_classes: bool = False) -> tuple[str, str] | None:
    """Return the columns of photos and of masks of these, which are called so.

    None where there are none, or the name of the data chooses columns, or there are classes, too, and masks are not meant
    beside these.
    """
    if chosen("image") or chosen("label"):
        return None
    images = _image_columns(schema)
    masks = [name for name in images if FOLDER.fullmatch(name)]
    photos = [name for name in images if name not in masks]
    others = [name for name in names if name not in images]
    classes = any(_may_be_classes(name, schema, known) for name in others for known in (CLASSES, NUMBERED, CHOSEN))
    meant = beside_classes or not classes
    return (photos[0], masks[0]) if len(masks) == len(photos) == 1 and meant else None


def _split_by_cells(names: Sequence[str], cells: Cells | None) -> str | None:
    """Return the column whose cells are splits, some of them to train on; None where there is none."""
    if cells is None:
        return None
    for name in names:
        if plain(name) in MAY_SPLIT:
            written = [cell_text(cell) for cell in cells(name)]
            splits = {split_named(text) for text in {*written}}
            if len(splits) > 1 and "train" in splits and None not in splits:
                return name
        elif plain(name) in IS_SPLIT and (verdicts := cells(name)) and are_verdicts(verdicts):
            return name
    return None


def splits_of_rows(columns: Columns, cells: Cells, count: int) -> list[str | None]:
    """Return the split that each of so many rows of a table names, "" for one not filled in; None where none is named."""
    if columns.split is None:
        return [None] * count
    said = IS_SPLIT.get(plain(columns.split))
    if said is None:
        return [cell_text(cell) for cell in cells(columns.split)]
    return [said if is_yes(cell) else "train" for cell in cells(columns.split)]


def _shown(names: Sequence[str]) -> str:
    """Return the first names of columns, in their order."""
    more = f", … ({len(names):,} in all)" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more or "none"


def find_image(
    title: str, names: Sequence[str], *, schema: Schema | None = None, cells: Cells | None = None
) -> str | None:
    """Return the column of images, see `find_columns`, or raise DataError if there are several; None where there is none."""
    could = _image_columns(schema)
    if not could:
        known = known_column(names, IMAGES)
        if known is None and cells is not None:
            known = image_by_cells(names, cells) or known_column(names, IDS)
        could = [] if known is None else [known]
    return choose(title, "image", could, IMAGE)


def may_lack(split: str, splits: Collection[str]) -> bool:
    """Tell whether a table may be without classes: it is of a split to predict, and others are to train on."""
    return split not in ("train", ALL) and "train" in splits


def classes_of_rows(columns: Columns, cells: Cells, count: int, *, title: str) -> list[tuple[str, ...]]:
    """Return the classes of each of so many rows of a table, a cell of text as a whole, a number by the declared names.

    Raises:
        DataError: a number beyond the declared names.
    """
    if columns.labels:
        rows = zip(*(cells(label) for label in columns.labels), strict=True)
        return [marked(dict(zip(columns.labels, row, strict=True)), columns.labels) for row in rows]
    if columns.classes is None:
        return [UNREAD] * count
    # Of an empty cell no class is known, but where a text may name several it names none.
    nothing = () if columns.are_text and is_plural(columns.classes) else UNREAD
    declared = columns.declared
    return [class_names(cell, declared, title) if is_given(cell) else nothing for cell in cells(columns.classes)]


def arrow(name: str = "pyarrow") -> Any:  # noqa: ANN401  # a module
    """Return a module of pyarrow, or raise PackageError if it is not installed."""
    return extra_module(name, EXTRA, "A table in Parquet or JSON lines")


def holds_lists(kind: DataType) -> bool:
    """Tell whether the cells of a column are lists."""
    pa = arrow()
    lists = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
    return isinstance(kind, lists)


def is_text(kind: DataType) -> bool:
    """Tell whether the cells of a column are text."""
    pa = arrow()
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_encoded(kind: DataType) -> bool:
    """Tell whether the cells of a column are bytes, or bytes and a path."""
    pa = arrow()
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_struct(kind))


def simple_cells(schema: Schema, cells: Cells) -> Cells:
    """Return what gives the cells of a column of numbers or text, and none of any other, which may be large."""
    pa = arrow()

    def simple(column: str) -> Sequence[Any]:
        kind = schema.field(column).type
        plain_kind = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        return cells(column) if plain_kind or is_text(kind) else ()

    return simple


def _may_be_classes(name: str, schema: Schema | None, known: Collection[str]) -> bool:
    if schema is None:
        return plain(name) in known
    return (plain(name) in known or declared_names(schema, name) is not None) and _holds_classes(
        schema.field(name).type
    )


def _image_columns(schema: Schema | None) -> list[str]:
    """Return the columns of encoded images: those that say so, else those of bytes where no other column has a known name."""
    if schema is None:
        return []
    pa = arrow()
    said = [
        item.name for item in schema if feature_of(schema, item.name).get("_type") == "Image" or _is_image(item.type)
    ]
    raw = [item.name for item in schema if pa.types.is_binary(item.type) or pa.types.is_large_binary(item.type)]
    known = any(plain(name) in IMAGES for name in raw) or known_column(schema.names, IMAGES) is None
    return said or (raw if known else [])


def _is_image(kind: DataType) -> bool:
    """Tell whether a type is that of an image in the Hub's form: bytes, a path, or both."""
    return arrow().types.is_struct(kind) and {kind.field(index).name for index in range(kind.num_fields)} == {
        "bytes",
        "path",
    }


def _holds_classes(kind: DataType) -> bool:
    """Tell whether cells of a type can be classes: names, numbers or lists of them, not boxes and their like."""
    pa = arrow()
    inner = kind.value_type if hasattr(kind, "value_type") and not pa.types.is_dictionary(kind) else kind
    return not pa.types.is_nested(inner) and not (inner is not kind and pa.types.is_floating(inner))


def feature_of(schema: Schema, column: str | None) -> dict[str, Any]:
    """Return what Hugging Face's datasets wrote of a column into a schema; nothing where they did not."""
    try:
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][column]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    if isinstance(feature, list) and feature:  # as older releases wrote lists
        return {"feature": feature[0]}
    return feature if isinstance(feature, dict) else {}


def declared_names(schema: Schema, column: str | None) -> tuple[str, ...] | None:
    """Return the class names that Hugging Face's datasets wrote into a schema, or None."""
    feature = feature_of(schema, column)
    inner = feature.get("feature")
    names = feature.get("names") or (inner.get("names") if isinstance(inner, dict) else None)
    return tuple(str(name) for name in names) if isinstance(names, list) and names else None


def check_column(title: str, column: str, names: Sequence[str]) -> None:
    """Refuse a column that a table does not have, or has several times, by a `DataError`."""
    if column not in names:
        raise DataError(f"'{title}' has no column '{column}', only {_shown(names)}.{did_you_mean(column, names)}")
    if list(names).count(column) > 1:
        raise several_columns(title, column)


def lists_of_images(title: str, column: str) -> DataError:
    """Return the error for a column of lists where images are to be: of pixels, or of several images."""
    return DataError(
        f"'{title}' has lists in its column '{column}', where an image is to be in each row; write one image a row there, "
        "encoded (PNG or JPEG), or its path."
    )


def several_columns(title: str, column: str) -> DataError:
    """Return the error for a table with several columns of one name."""
    return DataError(f"'{title}' has several columns of the name '{column}'; rename or remove all but one.")


def split_of_row(name: str | None, split: str, table: str, row: str) -> str:
    """Return the split of a row: the one that it names, "" for none, unless its file determines the split or names none.

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
