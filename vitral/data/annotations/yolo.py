"""YOLO's text, a file a photo: "class x y width height" as shares of the photo, or "class x1 y1 x2 y2 ..." for a polygon.

The files are in labels/ where the photos are in images/, or beside them. A photo without a file shows nothing. The classes are
in data.yaml, or in a list of names, as darknet's obj.names. A polygon is one outline: it has neither holes nor parts.
"""

import itertools
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
NAMES = ("classes.txt", "_darknet.labels")  # files of names, a line a class, beside those that end so:
NAMES_OF_DARKNET = ".names"
DATA_OF_DARKNET = ".data"  # how its file ends that says lists of photos, a line "train = data/train.txt"
USUAL = ("data", "dataset")  # what a description is called before those of other data that lie around
# What the numbers of a box lie between: roundings exceed 0 and 1 (ultralytics, data/utils.py).
BOX_SHARES = (-0.01, 1.01)
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
    folders = {text.rpartition("/")[0] for text in texts}
    places = {photo: _place(photo, texts, folders) for photo in tree.photos.paths} if texts else {}
    holding = {place.rpartition("/")[0] for place in places.values() if place in texts}
    if not holding:
        return None
    described = _described(tree)
    found, marks = Collected(tree, FORM), dict[str, list[Mark]]()
    alone = texts - {*places.values()}
    alone = {text for text in alone if LABELS in text.lower().split("/")[:-1] and not _lists_names(text)}
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


def _place(photo: str, texts: set[str], folders: set[str]) -> str:
    """Return the path of a photo's labels: in labels/ for the last images/ of its folders, in whatever case, or beside it."""
    path = PurePosixPath(photo).with_suffix(".txt")
    around = list(path.parts[:-1])
    last = max((place for place, folder in enumerate(around) if folder.lower() == IMAGES), default=None)
    if str(path) in texts or last is None:
        return str(path)
    inside = (
        "/".join([*around[:last], name, *around[last + 1 :]]) for name in (LABELS, LABELS.title(), LABELS.upper())
    )
    return next((f"{folder}/{path.name}" for folder in inside if folder in folders), str(path))


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
    """Return what data.yaml says, or else what darknet's files or a list of names say; nothing where none is there."""
    paths = sorted((file.path for file in tree.files), key=lambda path: (path.count("/"), not _is_usual(path), path))
    for path in paths:
        if path.lower().endswith((".yaml", ".yml")) and (found := _of_yaml(tree.file(path))).names:
            return found
    lists = (path for path in paths if _lists_names(path))
    names = next((listed_names(tree.text(path)) for path in lists), ())
    darknet = (path for path in paths if path.lower().endswith(DATA_OF_DARKNET))
    return Description(names, next((_of_darknet(tree, path) for path in darknet), {}))


def _is_usual(path: str) -> bool:
    return PurePosixPath(path).stem.lower() in USUAL


def _lists_names(path: str) -> bool:
    """Tell whether a file is called like one of names, a line a class."""
    name = path.rpartition("/")[2].lower()
    return name in NAMES or name.endswith(NAMES_OF_DARKNET)


def _of_darknet(tree: FileTree, path: str) -> dict[str, Sequence[str]]:
    """Return the lists of photos of each split that a file of darknet's says."""
    pairs = [line.partition("=") for line in tree.text(path).splitlines()]
    named = [(split_named(key.strip()), value.strip()) for key, _, value in pairs]
    return {split: [value] for split, value in named if split is not None and value}


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
    if not all(isinstance(name, str) for name in names) or (given and not names and _is_usual(file.name)):
        raise DataError(f"'{file.name}' cannot be read: 'names' is to be a list of names, or a name for each number.")
    splits: dict[str, list[str]] = {}
    for key, value in values.items() if names else ():
        if (split := split_named(str(key))) is not None:
            splits[split] = [str(each) for each in (value if isinstance(value, list) else [value])]
    return Description(tuple(names), splits, "kpt_shape" in values)


def _splits(tree: FileTree, marks: Mapping[str, Any], described: Description) -> dict[str, str]:
    """Return the splits that data.yaml says by folders or lists of photos, and of others those that folders are called by.

    Photos that it says to be in several are in the smallest of them; in none if these have the same photos, which are to be
    trained on and scored.
    """
    told: dict[str, set[str]] = {}
    for split, places in described.splits.items():
        inside = {photo for place in places for photo in _of_place(tree, marks, place)}
        told |= {split: inside} if inside else {}
    same = [each for each in told.values() if list(told.values()).count(each) > 1]
    kept = {split: inside for split, inside in told.items() if inside not in same}
    splits = {photo: split for photo, split in splits_of(marks).items() if split not in kept}
    for split, inside in sorted(kept.items(), key=lambda item: -len(item[1])):
        splits |= dict.fromkeys(inside, split)
    return splits


def _of_place(tree: FileTree, marks: Mapping[str, Any], place: str) -> set[str]:
    """Return the photos of a folder, or of a list of photos, whose path is of this or of another machine."""
    parts = [part for part in place.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if place.endswith(".txt"):
        lists = {path: _common_end(path.split("/"), parts) for path in tree.ending(".txt")}
        found = max(lists, key=lists.__getitem__, default="")
        lines = tree.text(found).splitlines() if lists.get(found) else []
        named = (tree.photo(line.strip(), place) for line in lines if line.strip())
        return {photo for photo in named if photo is not None and photo in marks}
    ends = (parts[start:] for start in range(len(parts)))
    return next((inside for end in ends if (inside := {photo for photo in marks if _is_in(photo, end)})), set())


def _common_end(path: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts two paths have in common at their ends."""
    same = (own == its for own, its in zip(reversed(path), reversed(other), strict=False))
    return sum(1 for _ in itertools.takewhile(bool, same))


def _is_in(photo: str, folders: Sequence[str]) -> bool:
    """Tell whether a photo is in a folder, of whose path it is not known where it begins."""
    around = photo.split("/")[:-1]
    return any(around[start : start + len(folders)] == list(folders) for start in range(len(around)))
