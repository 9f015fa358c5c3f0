"""Which images of a folder are masks of which others: a map of classes a photo, or an image for each object.

| masks of a photo | are |
|---|---|
| SegmentationClass/1.png, SegmentationObject/1.png (or labels/, instances/) | its classes; the latter is for instances |
| masks/1_0.png, masks/1_1.png, or several of most photos | an object each, if each has one value beside 0 |
| masks/cat/1.png, masks/dog/1.png | the same, and folders name their classes |
| 1_mask.png, 1_mask_1.png, where few photos have several | one mask together |
| 1st_manual/1.gif, beside which mask/1.gif is the field of view | its classes; the latter is not read |
| SegmentationClassVisualization/1.jpg | none: it is drawn for people |
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from vitral.data.annotations.coded_map import read_values
from vitral.data.annotations.tree import FileTree, speaks_of_masks
from vitral.data.batch import evenly
from vitral.data.masks import BY_HAND, NUMBERED, OF_OBJECTS, SECOND, SHOWN, find_masks
from vitral.data.stored import Entry
from vitral.errors import DataError

LOOKED_AT = 16  # masks
LEAST = 0.05  # share of what is marked that a value covers which is one of several


@dataclass(frozen=True)
class MaskPairs:
    """The masks of each photo by its path, and whether each mask is of an object.

    Attributes:
        masks: The masks of each photo.
        objects: Whether each is of an object.
        classes: The class of a mask's object, where folders name it.
        others: Masks that are not read, since others say the same.
    """

    masks: Mapping[str, Sequence[str]]
    objects: bool
    classes: Mapping[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()


def pair_masks(tree: FileTree, *, by_name: bool, any_name: bool = True) -> MaskPairs | None:
    """Return which images of a folder are masks of which others, see `find_masks`; None where none are."""
    if (pairs := _objects(tree)) is not None:
        return MaskPairs(pairs, objects=True)
    every = _pairs(tree, by_name=by_name, any_name=any_name)
    chosen = {photo: _without_objects(masks) for photo, masks in _by_hand(every).items()}
    if _one_an_object(chosen) and _of_one_value(tree, chosen):
        return MaskPairs(chosen, objects=True, classes=_named_by_folders(chosen))
    # Of maps in several folders, such as of numbers and of colours for people, those in the first say it.
    pairs = {photo: [mask for mask in masks if _folder(mask) == _folder(masks[0])] for photo, masks in chosen.items()}
    read = {mask for masks in pairs.values() for mask in masks}
    others = frozenset(mask for masks in every.values() for mask in masks if mask not in read)
    return MaskPairs(pairs, objects=False, others=others) if pairs else None


def masks_by_name(tree: FileTree) -> frozenset[str]:
    """Return the images that are masks of photos by their names."""
    return frozenset(mask for masks in _pairs(tree, by_name=True).values() for mask in masks)


class ObjectPair(NamedTuple):
    """The paths of a photo's map of classes and of its map of objects."""

    classes: str
    objects: str


def pair_objects(tree: FileTree, *, by_name: bool) -> dict[str, ObjectPair]:
    """Return the maps of the photos that have one of classes and one of objects; see `pair_masks`."""
    if not any(OF_OBJECTS.fullmatch(PurePosixPath(folder).name) for folder in tree.folders):
        return {}
    pairs: dict[str, ObjectPair] = {}
    for photo, masks in _pairs(tree, by_name=by_name).items():
        kinds = _without_objects(masks)
        objects = [mask for mask in masks if mask not in kinds]
        if objects:
            pairs[photo] = ObjectPair(kinds[0], objects[0])
    return pairs


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _last_folder(path: str) -> str:
    return _folder(path).rpartition("/")[2]


def _by_hand(pairs: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
    """Return the masks that the first person drew, where folders or names say who did; otherwise all."""
    drawn = {photo: [mask for mask in masks if BY_HAND.fullmatch(_last_folder(mask))] for photo, masks in pairs.items()}
    if any(drawn.values()):
        return {
            photo: [mask for mask in masks if _folder(mask) == _folder(masks[0])]
            for photo, masks in drawn.items()
            if masks
        }
    return {
        photo: [mask for mask in masks if not SECOND.fullmatch(PurePosixPath(mask).stem)] or masks
        for photo, masks in pairs.items()
    }


def _without_objects(masks: list[str]) -> list[str]:
    """Return a photo's masks without those that number objects, if there are others."""
    return [mask for mask in masks if not OF_OBJECTS.fullmatch(_last_folder(mask))] or masks


def _one_an_object(pairs: Mapping[str, Sequence[str]]) -> bool:
    """Tell by numbers and names whether each mask is of an object: most photos have several, or all are numbered."""
    several = sum(len(masks) > 1 for masks in pairs.values())
    return 2 * several > len(pairs) or (
        several > 0
        and all(
            (match := NUMBERED.fullmatch(PurePosixPath(mask).stem)) is not None
            and match[1] == PurePosixPath(photo).stem
            for photo, masks in pairs.items()
            for mask in masks
        )
    )


def _of_one_value(tree: FileTree, pairs: Mapping[str, Sequence[str]]) -> bool:
    """Tell by some masks whether most have one value beside 0, but for softened edges."""
    looked_at = evenly([mask for masks in pairs.values() for mask in masks], LOOKED_AT)
    counts: list[int] = []
    for mask in looked_at:
        try:
            values = read_values(tree.file(mask), colours=False)
        except DataError:  # which is said where it is read
            continue
        _, pixels = np.unique(values[values != 0], return_counts=True)
        counts.append(int((pixels > LEAST * pixels.sum()).sum()))
    return 2 * sum(count > 1 for count in counts) <= len(counts)


def _named_by_folders(pairs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the class of each mask, where masks of a photo differ in a folder that is not called like one of masks."""
    folders = {mask: _folder(mask).split("/")[::-1] for masks in pairs.values() for mask in masks}
    several = [masks for masks in pairs.values() if len(masks) > 1]
    for place in range(min(map(len, folders.values()))):
        names = {mask: parts[place] for mask, parts in folders.items()}
        if all(len({names[mask] for mask in masks}) == len(masks) for masks in several):
            return {} if any(map(speaks_of_masks, names.values())) else names
    return {}


def _objects(tree: FileTree) -> dict[str, list[str]] | None:
    """Return the masks of each photo of PHOTO/images/*.png and PHOTO/masks/*.png; None where not most photos are so."""
    inside: dict[str, list[str]] = defaultdict(list)
    for path in tree.photos.paths:
        inside[path.rpartition("/")[0]].append(path)
    there = {*tree.folders}  # an empty one is of a photo without objects
    pairs = {
        images[0]: inside.get(f"{around}masks", [])
        for place, images in inside.items()
        if place.endswith("images") and len(images) == 1 and f"{(around := place[:-6])}masks" in there
    }
    several = any(len(masks) > 1 for masks in pairs.values())
    return pairs if several and 2 * sum(map(len, pairs.values())) > len(tree.photos.paths) - len(pairs) else None


def _pairs(tree: FileTree, *, by_name: bool, any_name: bool = True) -> dict[str, list[str]]:
    """Return the masks of each photo, but for what is drawn for people: by names, and by colours unless names decide alone."""
    paths = tree.photos.paths
    images = [Entry(tree.number(path), path, (), 0) for path in paths]
    parts = [PurePosixPath(path).parts for path in paths]
    pairs: dict[str, list[str]] = defaultdict(list)
    for mask, photo in find_masks(
        tree.store, images, parts, spoken_of=True, by_name=by_name, any_name=any_name
    ).items():
        if not SHOWN.fullmatch(_last_folder(paths[mask])):
            pairs[paths[photo]].append(paths[mask])
    masks = {mask for each in pairs.values() for mask in each}
    return {photo: each for photo, each in pairs.items() if photo not in masks}
