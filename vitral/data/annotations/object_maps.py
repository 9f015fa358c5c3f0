"""Maps of objects beside maps of classes, as VOC and CVAT have them: SegmentationObject/1.png and SegmentationClass/1.png.

A value of the former is an object, whose class is that of most of its pixels in the latter. Where no list names the classes,
VOC's XML does by the boxes around the objects, if it is there.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vitral.data.annotations.annotation import Marks, Size
from vitral.data.annotations.coded_map import CodedMap, Meaning, boxes_of_codes, read_mask
from vitral.data.annotations.marked import MarkedPhotos
from vitral.data.annotations.mask_images import splits_of_masks
from vitral.data.annotations.mask_names import BACKGROUND, IGNORED, names_listed, names_of_values
from vitral.data.annotations.mask_pairs import ObjectPair
from vitral.data.annotations.other_task import NO_OBJECTS, only_objects
from vitral.data.annotations.tree import FileTree
from vitral.data.annotations.voc import read_voc
from vitral.data.names import natural_key
from vitral.data.source import BadImage
from vitral.errors import DataError
from vitral.machine import in_threads
from vitral.tasks.semantic import SEMANTIC

FORM = "mask images of objects and of their classes"
BORDERS = (IGNORED, 0xE0E0C0)  # VOC's, as a palette's index and as a colour
SAME = 0.5  # of intersection over union, from which a box is an object's
AGREED = 0.8  # share of the objects of a value whose boxes say the same class
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class _SeenObjects:
    """What is in a photo's maps: the size, the pixels of each class, each object's class and box, and if codes are colours."""

    size: Size
    counts: Counter[int]
    classes: Mapping[int, int]
    boxes: Mapping[int, Box]
    colours: bool


def read_object_maps(tree: FileTree, pairs: Mapping[str, ObjectPair]) -> MarkedPhotos:
    """Return the objects of photos, of which each has a map of classes and one of objects.

    Raises:
        DataError: no map can be read.
    """
    colours = any(_has_colours(tree, pair) for pair in pairs.values())

    def look(photo: str) -> _SeenObjects | BadImage:
        try:
            return _look(tree, pairs[photo], colours=colours)
        except DataError as error:
            return tree.bad(photo, error)

    every = dict(zip(pairs, in_threads(look, [*pairs]), strict=True))
    seen = {photo: found for photo, found in every.items() if isinstance(found, _SeenObjects)}
    bad = tuple(found for found in every.values() if isinstance(found, BadImage))
    if not seen:
        raise DataError(f"{bad[0].reason}.")
    names, notes = _names(tree, seen, colours=colours)
    maps = {
        photo: CodedMap(
            tree.file(pairs[photo].objects),
            (
                (0, Meaning(BACKGROUND)),
                *((code, Meaning(names[value])) for code, value in found.classes.items() if value in names),
            ),
            found.size,
            found.colours,
        )
        for photo, found in seen.items()
    }
    used = {meaning.name for each in maps.values() for _, meaning in each.meanings if meaning.name != BACKGROUND}
    ordered = [name for name in dict.fromkeys(names.values()) if name in used]
    return only_objects(
        MarkedPhotos(
            form=FORM,
            task=SEMANTIC,
            annotations=maps,
            class_names=(BACKGROUND, *ordered),
            splits=splits_of_masks(tree, {photo: pairs[photo].classes for photo in seen}),
            notes=notes,
            bad=bad,
            others=frozenset(path for pair in pairs.values() for path in pair),
        ),
        tuple(ordered),
    )


def _has_colours(tree: FileTree, pair: ObjectPair) -> bool:
    try:
        return read_mask(tree.file(pair.classes), colours=False).colours
    except DataError:  # which is said where it is read
        return False


def _look(tree: FileTree, pair: ObjectPair, *, colours: bool) -> _SeenObjects:
    kinds = read_mask(tree.file(pair.classes), colours).values
    objects = read_mask(tree.file(pair.objects), colours=False)
    if kinds.shape != objects.values.shape:
        raise DataError(f"'{tree.file(pair.objects).name}' is of another size than the map of classes of its photo.")
    values, pixels = np.unique(kinds, return_counts=True)
    counts = Counter(dict(zip(values.tolist(), pixels.tolist(), strict=True)))
    codes = [code for code in np.unique(objects.values).tolist() if code and code not in BORDERS]
    classes: dict[int, int] = {}
    boxes: dict[int, Box] = {}
    for code, (rows, columns) in (boxes_of_codes(objects.values, codes) if codes else {}).items():
        inside = kinds[rows, columns][objects.values[rows, columns] == code]
        own = Counter(value for value in inside.tolist() if value not in BORDERS)
        if own:
            classes[code] = own.most_common(1)[0][0]
            boxes[code] = (columns.start, rows.start, columns.stop, rows.stop)
    height, width = kinds.shape
    return _SeenObjects((height, width), counts, classes, boxes, objects.colours)


def _names(
    tree: FileTree, seen: Mapping[str, _SeenObjects], *, colours: bool
) -> tuple[dict[int, str], tuple[str, ...]]:
    """Return the name of each value of the maps of classes that may be an object's, and what was decided."""
    counts = [found.counts for found in seen.values()]
    values = {value for found in seen.values() for value in found.classes.values()}
    listed = names_listed(tree, counts, colours=colours)
    named = {} if listed else _named_by_boxes(tree, seen)
    if named and named.keys() >= values - {0}:
        ordered = sorted(named.items(), key=lambda item: natural_key(item[1]))
        return dict(ordered), ("The classes of objects are called as those of the boxes around them.",)
    told = listed or names_of_values(tree, counts, colours=colours)
    return {value: name for value, name in told.classes.items() if name.lower() not in NO_OBJECTS}, told.notes


def _named_by_boxes(tree: FileTree, seen: Mapping[str, _SeenObjects]) -> dict[int, str]:
    """Return the names that VOC's XML gives the values of the maps of classes, by the boxes that are objects'."""
    marked = read_voc(tree)
    votes: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for photo, annotation in ({} if marked is None else marked.annotations).items():
        marks = annotation.marks() if isinstance(annotation, Marks) and photo in seen else []
        boxes = [(mark.name, mark.box) for mark in marks if mark.box is not None]
        for code, own in seen[photo].boxes.items() if boxes else ():
            overlap, name = max((_overlap(box, own), name) for name, box in boxes)
            if overlap >= SAME:
                votes[seen[photo].classes[code]][name] += 1
    named = {value: own.most_common(1)[0] for value, own in votes.items()}
    agreed = all(count >= AGREED * votes[value].total() for value, (_, count) in named.items())
    return {value: name for value, (name, _) in named.items()} if agreed else {}


def _overlap(one: Box, other: Box) -> float:
    """Return the intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(width, 0) * max(height, 0)
    areas = [(right - left) * (low - top) for left, top, right, low in (one, other)]
    return both / max(sum(areas) - both, 1)
