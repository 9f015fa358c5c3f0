"""YOLO's text, a file a photo: "class x y width height" as shares of the photo, or "class x1 y1 x2 y2 ..." for a polygon.

The files are in labels/ where the photos are in images/, or beside them. A photo without a file shows nothing. The classes are
in data.yaml, or in a list of names. A polygon is one outline: it has neither holes nor parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from vitral.data.annotations.annotation import Mark
from vitral.data.annotations.marked import (
    NO_AREA,
    NOT_THERE,
    Collected,
    MarkedPhotos,
    Trap,
    has_area,
    splits_of,
)
from vitral.data.annotations.tree import FileTree, StoredFile
from vitral.data.names import listed_names, split_named
from vitral.errors import DataError, one_line

FORM = "YOLO text"
LABELS = "labels"
IMAGES = "images"
NAMES = ("classes.txt", "obj.names", "_darknet.labels")  # files of names, a line a class
BOX_SHARES = (0.0, 1.01)  # what the numbers of a box lie between: roundings exceed 1
POLYGON_SHARES = (-1.0, 2.0)  # likewise of a polygon: corners of turned boxes lie outside the photo
BOX = 5  # columns of a box
POLYGON = 7  # columns of a polygon, at least
LARGEST_DESCRIPTION = 1 << 20  # bytes
MOST_CLASSES = 10_000  # where no list names them
MOST_NAMED = 1 << 20
AGAIN = "regions that a file has twice, read once"


@dataclass(frozen=True)
class Description:
    """What data.yaml or a list of names says: the classes, folders and lists of each split, and whether there are keypoints."""

    names: tuple[str, ...] = ()
    splits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    keypoints: bool = False


def read_yolo(tree: FileTree) -> MarkedPhotos | None:
    """Return what YOLO's files in a folder say; None where there are none, or the text beside photos is something else.

    Raises:
        DataError: data.yaml cannot be read.
    """
    texts = {*tree.ending(".txt")}
    places = {photo: _place(photo, texts) for photo in tree.photos.paths} if texts else {}
    holding = {place.rpartition("/")[0] for place in places.values() if place in texts}
    if not holding:
        return None
    described = _described(tree)
    found, marks = Collected(tree, FORM), dict[str, list[Mark]]()
    alone = texts - {*places.values()}
    alone = {text for text in alone if LABELS in text.split("/")[:-1] and text.rpartition("/")[2].lower() not in NAMES}
    found.traps = [Trap(NOT_THERE, text) for text in sorted(alone)]
    for photo, place in places.items():
        if place.rpartition("/")[0] not in holding:
            continue
        try:
            marks[photo] = _read(tree, place, described, found.traps) if place in texts else []
        except (ValueError, DataError) as error:
            found.bad.append(tree.bad(photo, f"'{tree.file(place).name}': {error}"))
    written = sum(place in texts for place in places.values())
    if 2 * len(found.bad) > written:
        if not described.names:
            return None
        many, why = f"{len(found.bad):,} of {written:,}", found.bad[0].reason
        raise DataError(f"{many} files of labels in YOLO's form cannot be read: {why}.")
    highest = max((int(mark.name) for listed in marks.values() for mark in listed), default=-1)
    names = described.names or tuple(map(str, range(highest + 1)))
    for photo, listed in marks.items():
        found.marks[photo] = [mark._replace(name=names[int(mark.name)]) for mark in listed]
    found.splits = _splits(tree, marks, described)
    return found.photos(names, relative=True)


def _place(photo: str, texts: set[str]) -> str:
    """Return the path of a photo's labels: in labels/ for the last images/ of its folders, or beside it."""
    path = PurePosixPath(photo).with_suffix(".txt")
    folders = list(path.parts[:-1])
    if str(path) not in texts and IMAGES in folders:
        folders[len(folders) - 1 - folders[::-1].index(IMAGES)] = LABELS
    return str(PurePosixPath(*folders, path.name))


def _read(tree: FileTree, place: str, described: Description, traps: list[Trap]) -> list[Mark]:
    """Return the regions of a file, their classes as numbers.

    Raises:
        DataError: the file cannot be read.
        ValueError: a line is not of the form; the message says which.
    """
    marks: dict[Mark, None] = {}
    for number, line in enumerate(tree.file(place).content().decode("utf-8-sig").splitlines(), 1):
        if not line.strip():
            continue
        mark = _mark(line.split(), described, number)
        if mark in marks or not has_area(mark):
            traps.append(Trap(AGAIN if mark in marks else NO_AREA, place))
        else:
            marks[mark] = None
    return list(marks)


def _mark(columns: Sequence[str], described: Description, line: int) -> Mark:
    try:
        kind, *shares = map(float, columns)
    except ValueError as error:
        raise ValueError(f"line {line} is not of numbers") from error
    if described.keypoints:
        shares = shares[: BOX - 1]
    boxed = len(shares) == BOX - 1
    if not boxed and (len(shares) < POLYGON - 1 or len(shares) % 2):
        raise ValueError(f"line {line} has {len(columns)} columns, neither a box's 5 nor a polygon's odd number from 7")
    least, most = BOX_SHARES if boxed else POLYGON_SHARES
    if not all(least <= share <= most for share in shares):
        raise ValueError(f"line {line} has shares of the photo that are not from 0 to 1")
    if not (0 <= kind < (len(described.names) or MOST_CLASSES) and kind.is_integer()):
        raise ValueError(f"line {line} has class {columns[0]}, of {len(described.names) or MOST_CLASSES:,}")
    if not boxed:
        return Mark(str(int(kind)), polygons=(tuple(shares),))
    x, y, width, height = shares
    return Mark(str(int(kind)), (x - width / 2, y - height / 2, x + width / 2, y + height / 2))


def _described(tree: FileTree) -> Description:
    """Return what data.yaml says, or else a list of names; nothing where neither is there."""
    paths = sorted((file.path for file in tree.files), key=lambda path: (path.count("/"), path))
    for path in paths:
        if path.lower().endswith((".yaml", ".yml")) and (found := _of_yaml(tree.file(path))).names:
            return found
    lists = (path for path in paths if path.rpartition("/")[2].lower() in NAMES)
    return next((Description(listed_names(tree.text(path))) for path in lists), Description())


def _of_yaml(file: StoredFile) -> Description:
    import yaml  # a part of the Hub's client, which is always there

    content = file.content()
    if len(content) > LARGEST_DESCRIPTION or b"names" not in content:
        return Description()
    try:
        values = yaml.load(content, Loader=yaml.BaseLoader)  # which leaves "1" and "null" what they are: names
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise DataError(f"'{file.name}' cannot be read as YAML ({one_line(error)}).") from error
    given = values.get("names") if isinstance(values, dict) else None
    if isinstance(given, dict) and all(key.isdecimal() and int(key) < MOST_NAMED for key in given):
        given = {int(key): name for key, name in given.items()}
        names = [given.get(number, str(number)) for number in range(max(given, default=-1) + 1)]
    else:
        names = given if isinstance(given, list) else []
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"'{file.name}' cannot be read: 'names' is to be a list of names, or a name for each number.")
    splits: dict[str, list[str]] = {}
    for key, value in values.items() if names else ():
        if (split := split_named(str(key))) is not None:
            splits[split] = [str(each) for each in (value if isinstance(value, list) else [value])]
    return Description(tuple(names), splits, "kpt_shape" in values)


def _splits(tree: FileTree, marks: Mapping[str, Any], described: Description) -> dict[str, str]:
    """Return the splits that data.yaml says by folders or lists of photos, or else those that folders are called by."""
    if splits := splits_of(marks):
        return splits
    for split, places in described.splits.items():
        for place in places:
            parts = [part for part in place.split("/") if part not in ("", ".", "..")]
            ending = f"/{'/'.join(parts)}"
            lists = [path for path in tree.ending(".txt") if place.endswith(".txt") and f"/{path}".endswith(ending)]
            if lists:
                lines = tree.text(lists[0]).splitlines()
                inside = {photo for line in lines if line.strip() and (photo := tree.photo(line.strip(), place))}
            else:
                inside = {photo for photo in marks if parts and _is_in(photo, parts)}
            splits |= dict.fromkeys(inside & set(marks), split)
    return splits


def _is_in(photo: str, folders: Sequence[str]) -> bool:
    """Tell whether a photo is in a folder, of whose path it is not known where it begins."""
    around = photo.split("/")[:-1]
    return any(around[start : start + len(folders)] == list(folders) for start in range(len(around)))
