"""COCO's JSON: boxes [x, y, width, height], polygons or run lengths of objects, and panoptic maps.

Boxes are continuous and count from 0. Several polygons are parts that cover an object together; holes are in run lengths alone.
The ids of classes may have gaps, and their order is that of the ids; some tools write texts, or 3.0 for 3. A photo that is
listed without annotations shows nothing. Where no coordinate exceeds 1, they are shares of the photo, as Azure writes them.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from vitral.data.annotations.annotation import Mark, same_shape
from vitral.data.annotations.marked import (
    AGAIN,
    FEW_POINTS,
    NO_AREA,
    NOT_THERE,
    Collected,
    MarkedPhotos,
    Trap,
    has_area,
    split_of_path,
)
from vitral.data.annotations.tree import FileTree
from vitral.data.names import ALL
from vitral.errors import DataError
from vitral.images.decode import HALVED, pixel_limit
from vitral.images.run_lengths import counts_text, runs_of_text

FORM = "COCO JSON"
KEYS = ("images", "annotations", "categories")
OTHER_KINDS = (
    "captions_",
    "image_info_",
    "labels_",
    "stuff_",
    "person_keypoints_",
)  # of COCO's own files, beside instances_
LARGEST_NUMBER = 1e12  # of a coordinate or an area; JSON's NaN and Infinity are none
SHARED = "photos whose id is that of others, too, left out"
NO_NUMBERS = "boxes that are not four numbers, left out"
SHARES = "No coordinate of a region exceeds 1: they are taken as shares of the photo's width and height, not as pixels."
SLACK = 1e-3  # of a share beyond 1
NO_RUNS = "masks whose run lengths cannot be read, or are not of the photo, instead of which boxes are taken"
Fields = Mapping[str, Any]


def read_coco(tree: FileTree) -> MarkedPhotos | None:
    """Return what COCO's files of objects in a folder say; None where there are none.

    Raises:
        DataError: one cannot be read.
    """
    found = {path: tree.json(path, KEYS, FORM, _of_objects) for path in _candidates(tree)}
    files = {path: values for path, values in found.items() if values is not None}
    if not files:
        return None
    reader = _CocoFiles(tree)
    for path in sorted(
        files, key=lambda path: (split_of_path(path) == ALL, path)
    ):  # those of a split before those of all
        reader.add(path, files[path])
    return reader.result()


def _candidates(tree: FileTree) -> list[str]:
    """Return the JSON files that may be COCO's; of its several files of one split that of the objects."""
    names = tree.json_files()
    kinds = [path for path in names if path.rpartition("/")[2].startswith(("instances_", *OTHER_KINDS))]
    if any(path.rpartition("/")[2].startswith("instances_") for path in kinds):
        return [path for path in names if not path.rpartition("/")[2].startswith(OTHER_KINDS)]
    return names


def _of_objects(values: Any) -> Fields | None:  # noqa: ANN401
    """Return values that have COCO's lists of objects, or of none at all, not of captions or panoptic maps; None for others."""
    lists = isinstance(values, dict) and all(
        isinstance(values.get(name), list) and all(isinstance(item, dict) for item in values[name]) for name in KEYS
    )
    if not lists or not values["categories"] or not values["images"]:
        return None
    listed = values["annotations"]
    known = any("category_id" in item and marks_region(item) for item in listed)
    return values if known or not listed else None


class _CocoFiles(Collected):
    """Collects the photos and classes of COCO's files."""

    def __init__(self, tree: FileTree) -> None:
        super().__init__(tree, FORM)
        self._names: dict[int | str, str] = {}

    def add(self, path: str, values: Fields) -> None:
        """Add a file's photos and annotations."""
        split = split_of_path(path)
        names, earlier = self._classes(path, values), {*self.marks}
        where: dict[Any, str] = {}
        stated: dict[Any, tuple[int, int] | None] = {}
        listed: dict[Any, set[str]] = {}
        for image in values["images"]:
            listed.setdefault(_id(image.get("id")), set()).add(str(image.get("file_name")))
        for image in values["images"]:
            number = _id(image.get("id"))
            photo = self.tree.photo(_called(image), path, split)
            kinds = {NOT_THERE: photo is None, AGAIN: photo in earlier, SHARED: len(listed[number]) > 1}
            if photo is None or any(kinds.values()):
                self.traps.append(Trap(next(kind for kind, there in kinds.items() if there), path))
                continue
            where[number], stated[number] = photo, _stated(image)
            self.marks.setdefault(photo, [])
            self.stated[photo] = stated[number]
            own = split if split != ALL else split_of_path(photo)
            if own != ALL:
                self.splits[photo] = own
        for item in values["annotations"]:
            number = _id(item.get("image_id"))
            if number in where:
                mark = self._mark(item, names, path, stated[number])
                self.marks[where[number]].extend([] if mark is None else [mark])
            elif number not in listed:
                self.traps.append(Trap("regions of images that are not listed, left out", path))

    def _classes(self, path: str, values: Fields) -> dict[Any, str]:
        """Return the names of a file's classes by their ids, without a parent of them all that marks nothing."""
        used = {_id(item.get("category_id")) for item in values["annotations"]}
        kinds = [{**item, "id": _id(item.get("id"))} for item in values["categories"] if "name" in item]
        kinds = [item for item in kinds if isinstance(item["id"], int | str)]
        children = Counter(str(item.get("supercategory")) for item in kinds)
        for item in kinds:  # one of COCO's classes, 'person', is its own parent
            children[str(item["name"])] -= str(item.get("supercategory")) == str(item["name"])
        unused_parents = [item for item in kinds if item["id"] not in used and children[str(item["name"])] > 0]
        for item in unused_parents:
            self.traps.append(
                Trap(f"classes that are parents of the others and mark nothing ('{item['name']}'), left out", path)
            )
        names: dict[int, str] = {}
        for item in kinds:
            if item not in unused_parents and names.setdefault(item["id"], str(item["name"])) != str(item["name"]):
                raise DataError(
                    f"'{path}' gives the number {item['id']} to the classes '{names[item['id']]}' and '{item['name']}'; give "
                    "each its own."
                )
        for number, name in names.items():
            if self._names.setdefault(number, name) != name:
                highest = max((known for known in self._names if isinstance(known, int)), default=0)
                self._names[highest + 1] = name  # another file calls another class by the number
        return names

    def _mark(self, item: Fields, names: Mapping[Any, str], path: str, size: tuple[int, int] | None) -> Mark | None:
        name = names.get(_id(item.get("category_id")))
        if name is None:
            self.traps.append(Trap("regions of classes that are not listed, left out", path))
            return None
        polygons, runs = self._shape(item.get("segmentation"), path, size)
        box = _box(item.get("bbox"))
        area = item.get("area")
        mark = Mark(
            name,
            box,
            polygons,
            runs,
            _id(item.get("iscrowd")) == 1,
            float(area) if _is_number(area) and area > 0 else None,
        )
        if not has_area(mark):
            self.traps.append(Trap(NO_NUMBERS if item.get("bbox") and box is None else NO_AREA, path))
            return None
        return mark

    def _shape(
        self, given: object, path: str, size: tuple[int, int] | None
    ) -> tuple[tuple[tuple[float, ...], ...], tuple[str, int, int] | None]:
        if isinstance(given, dict):
            runs = _runs(given)
            if runs is None or (size is not None and not same_shape(runs[1:], size)):
                self.traps.append(Trap(NO_RUNS, path))
                return (), None
            return (), runs
        polygons = given if isinstance(given, list) else []
        if polygons and all(map(_is_number, polygons)):  # one polygon that is in no list
            polygons = [polygons]
        good = [tuple(map(float, each)) for each in polygons if isinstance(each, list) and all(map(_is_number, each))]
        kept = tuple(each for each in good if len(each) >= 6 and len(each) % 2 == 0)
        if len(kept) < len(polygons):
            self.traps.append(Trap(FEW_POINTS, path, len(polygons) - len(kept)))
        return kept, None

    def result(self) -> MarkedPhotos:
        """Return what the files say."""
        ordered = sorted(self._names, key=lambda number: number if isinstance(number, int) else float("inf"))
        names = tuple(dict.fromkeys(self._names[number] for number in ordered))
        if not self._in_shares():
            return self.photos(names)
        self.marks = {photo: [mark._replace(area=None) for mark in listed] for photo, listed in self.marks.items()}
        found = self.photos(names, relative=True)
        return replace(found, notes=(*found.notes, SHARES))

    def _in_shares(self) -> bool:
        """Tell whether coordinates are shares of the photo: there are some, and none exceeds 1."""
        marks = [mark for listed in self.marks.values() for mark in listed if mark.box or mark.polygons]
        values = (value for mark in marks for each in (mark.box or (), *mark.polygons) for value in each)
        return bool(marks) and all(-SLACK <= value <= 1 + SLACK for value in values)


def marks_region(annotation: Fields) -> bool:
    """Tell whether an annotation marks something, and does not only say what its photo is of."""
    return bool(annotation.get("bbox") or annotation.get("segmentation"))


def _called(image: Fields) -> str:
    """Return what a photo is called; LVIS has its address alone."""
    names = (image.get(key) for key in ("file_name", "coco_url", "id"))
    return str(next((name for name in names if name is not None), ""))


def _id(number: object) -> object:
    """Return an id, which some tools write as text in one place and as a number in another, and pandas as 3.0."""
    if isinstance(number, str):
        return int(number) if number.isdecimal() else number
    if isinstance(number, float):
        return int(number) if number.is_integer() else number
    return number if isinstance(number, int) else None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST_NUMBER


def _stated(image: Fields) -> tuple[int, int] | None:
    height, width = _id(image.get("height")), _id(image.get("width"))
    return (height, width) if isinstance(height, int) and isinstance(width, int) and height > 0 < width else None


def _box(given: object) -> tuple[float, float, float, float] | None:
    """Return left, top, right, bottom of [x, y, width, height]; None for anything else."""
    if not isinstance(given, list) or len(given) != 4 or not all(map(_is_number, given)):
        return None
    x, y, width, height = map(float, given)
    return x, y, x + width, y + height


def _runs(given: Fields) -> tuple[str, int, int] | None:
    """Return run lengths as text with their height and width; None where they are none."""
    size, counts = given.get("size"), given.get("counts")
    if not isinstance(size, list) or len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        return None
    if size[0] * size[1] > HALVED * pixel_limit():
        return None
    if isinstance(counts, list):
        if not all(isinstance(count, int) and 0 <= count < 1 << 32 for count in counts):
            return None
        counts = counts_text(np.array(counts, dtype=np.uint32))
    try:
        pixels = int(runs_of_text(counts).sum()) if isinstance(counts, str) else 0
    except ValueError:
        return None
    return (counts, *size) if pixels == size[0] * size[1] else None
