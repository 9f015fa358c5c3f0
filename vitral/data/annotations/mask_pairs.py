"""Which images of a folder are masks of which others: a map of classes a photo, or an image for each object."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from vitral.data.annotations.tree import FileTree
from vitral.data.masks import find_masks
from vitral.data.stored import Entry


@dataclass(frozen=True)
class MaskPairs:
    """The masks of each photo by its path, and whether each mask is of an object."""

    masks: Mapping[str, Sequence[str]]
    objects: bool


def pair_masks(tree: FileTree, *, by_name: bool) -> MaskPairs | None:
    """Return which images of a folder are masks of which others, by names, or by few colours, too; None where none are."""
    if (pairs := _objects(tree)) is not None:
        return MaskPairs(pairs, objects=True)
    pairs = _pairs(tree, by_name=by_name)
    return MaskPairs(pairs, 2 * sum(len(masks) > 1 for masks in pairs.values()) > len(pairs)) if pairs else None


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


def _pairs(tree: FileTree, *, by_name: bool) -> dict[str, list[str]]:
    """Return the masks of each photo, by their names, and by their colours unless names decide alone."""
    paths = tree.photos.paths
    images = [Entry(tree.number(path), path, (), 0) for path in paths]
    parts = [PurePosixPath(path).parts for path in paths]
    pairs: dict[str, list[str]] = defaultdict(list)
    for mask, photo in find_masks(tree.store, images, parts, spoken_of=True, by_name=by_name).items():
        pairs[paths[photo]].append(paths[mask])
    masks = {mask for each in pairs.values() for mask in each}
    return {photo: each for photo, each in pairs.items() if photo not in masks}
