"""Pascal VOC's XML, a file a photo: boxes in whole pixels that count from 1, the last one included (VOCdevkit, devkit_doc.pdf).

A photo is found by the name of its file of annotations: what that says of name, path and size is often of another machine.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath
from xml.etree.ElementTree import Element

from vitral.data.annotations.annotation import Mark, Size
from vitral.data.annotations.marked import (
    AGAIN,
    NO_AREA,
    NOT_THERE,
    Collected,
    MarkedPhotos,
    Trap,
    has_area,
    split_of_path,
)
from vitral.data.annotations.tree import FileTree
from vitral.data.joined_lists import PHOTOS, SETS, listed_splits
from vitral.data.names import ALL
from vitral.errors import DataError

FORM = "Pascal VOC XML"
ROOT = "annotation"
FROM_ZERO = "boxes that count from 0 and not from 1, as those of all files here are taken to"
DIFFICULT = "objects marked as difficult, neither learned nor scored"
LIES = "files that say another name of the photo than their own, which counts"
Box = tuple[float, float, float, float]
Object = tuple[str, Box, bool]  # its class, its box as written, whether it is difficult


def read_voc(tree: FileTree) -> MarkedPhotos | None:
    """Return what VOC's files in a folder say; None where there are none."""
    reader = _VocFiles(tree)
    for path in tree.ending(".xml"):
        reader.add(path)
    return reader.result(_splits(tree))


def _splits(tree: FileTree) -> dict[str, str]:
    """Return the split of each photo by its stem, as VOC's lists beside the photos say."""
    splits: dict[str, str] = {}
    for place in sorted(path for path in tree.folders if PurePosixPath(path).name == PHOTOS):
        splits |= lists_beside(tree, place)
    return splits


def lists_beside(tree: FileTree, place: str, sets: str = SETS) -> dict[str, str]:
    """Return the split of each photo by its stem, as lists beside a folder say."""
    around = PurePosixPath(place).parent
    return listed_splits(lambda name: tree.lines(str(around / name)), sets)


class _VocFiles(Collected):
    """Collects the photos of VOC's files."""

    def __init__(self, tree: FileTree) -> None:
        super().__init__(tree, FORM)
        self._objects: dict[str, tuple[str, list[Object]]] = {}

    def add(self, path: str) -> None:
        """Add a file, if it is of the form."""
        stem = PurePosixPath(path).stem
        photo = self.tree.photo(stem, path)
        try:
            root = self.tree.xml(path)
            if root.tag != ROOT:
                return
            named = (root.findtext("filename") or "").strip()
            if photo is None and named:
                photo = self.tree.photo(named, path)
            objects = [_object(item) for item in root.findall("object")]
        except DataError as error:
            if photo is not None:
                self.bad.append(self.tree.bad(photo, error))
            return
        except (ValueError, TypeError):
            why = f"'{self.tree.file(path).name}' has an object without a name or a box of four numbers"
            self.bad.append(self.tree.bad(photo or path, why))
            return
        if photo is None or photo in self._objects:
            self.traps.append(Trap(NOT_THERE if photo is None else AGAIN, path))
            return
        if named and PurePosixPath(named).stem != stem and PurePosixPath(photo).stem == stem:
            self.traps.append(Trap(LIES, path))
        self._objects[photo] = path, objects
        self.stated[photo] = _stated(root)

    def result(self, lists: dict[str, str]) -> MarkedPhotos | None:
        """Return what the files say; None where there are none, or most have no boxes."""
        every = [item for _, objects in self._objects.values() for item in objects]
        if not (self._objects or self.traps) or len(self.bad) > len(self._objects):
            return None
        first = 0 if any(min(box[:2]) < 1 for _, box, _ in every) else 1
        ignored = 2 * sum(difficult for *_, difficult in every) < len(every)  # otherwise the tool's default
        for photo, (path, objects) in self._objects.items():
            self.marks[photo] = self._marks(path, objects, first, ignored)
            if (split := lists.get(PurePosixPath(photo).stem, split_of_path(photo))) != ALL:
                self.splits[photo] = split
        return self.photos()

    def _marks(self, path: str, objects: Sequence[Object], first: int, ignored: bool) -> list[Mark]:
        marks = []
        for name, (left, top, right, bottom), difficult in objects:
            if first == 0 and min(left, top) < 1:
                self.traps.append(Trap(FROM_ZERO, path))
            mark = Mark(name, (left - first, top - first, right, bottom), crowd=difficult and ignored)
            # A box that ends where it begins is one pixel wide by the book, and a click by mistake.
            if has_area(mark._replace(box=(left, top, right, bottom))):
                marks.append(mark)
                self.traps.extend([Trap(DIFFICULT, path)] if mark.crowd else [])
            else:
                self.traps.append(Trap(NO_AREA, path))
        return marks


def _object(item: Element) -> Object:
    """Return an object.

    Raises:
        ValueError: it has no name, or no box of four numbers.
        TypeError: likewise.
    """
    name = (item.findtext("name") or "").strip()
    if not name:
        raise ValueError("no name")
    box = [float(item.findtext(f"bndbox/{side}") or "") for side in ("xmin", "ymin", "xmax", "ymax")]
    if not all(abs(side) < 1e9 for side in box):
        raise ValueError("no numbers")
    return name, (box[0], box[1], box[2], box[3]), (item.findtext("difficult") or "").strip() == "1"


def _stated(root: Element) -> Size | None:
    height, width = ((root.findtext(f"size/{side}") or "").strip() for side in ("height", "width"))
    return (
        (int(height), int(width)) if height.isdecimal() and width.isdecimal() and int(height) and int(width) else None
    )
