"""What misleads in the regions that are marked in photos, whatever the format: a look at each photo, and what all of them tell.

What a reader leaves out is among the notes of the data already; here is what only photo and annotation together show.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import ndimage

from vitral.advice import counted
from vitral.data.annotations.annotation import Annotation, Marks, Size, of_stored
from vitral.data.annotations.coded_map import CodedMap
from vitral.data.annotations.marked import Trap, said
from vitral.data.source import Source
from vitral.data.stored import StoredImages
from vitral.images.decode import SIDEWAYS
from vitral.images.header import stored_size
from vitral.images.run_lengths import Bitmap, decode_mask
from vitral.tasks.regions import Regions

SLACK = 1.0  # pixels beyond a photo's edge that are a tool's rounding
SMALL = 8 * 8  # pixels of a region, of fewer of which a network sees little
SIDES = (224, 512)  # pixels of the longer side of a network's view
FEW = 10  # regions of a class
AS_TURNED = "photos that EXIF turns, whose annotations are of the turned photo"
AS_STORED = "photos that EXIF turns, whose annotations are of the photo as it is stored, and turned with it"
EITHER = "photos that EXIF turns, whose annotations do not tell of which side up; they are taken as of the turned photo"
CUT = "regions that reach beyond their photo, cut at its edge"
OUTSIDE = "regions outside of their photo, left out"
TWICE = "regions marked twice, which count twice"
PARTS = "regions of several parts"
HOLES = "regions with holes"
OVERLAPPING = "regions that cover parts of others"
QUERIES = 200  # of the networks that look for objects (EoMT; RF-DETR has 300)
MANY = f"photos of more regions than a network of {QUERIES} queries can find"
# What should be fixed, one of it and several.
TO_FIX = {
    CUT: ("region that reaches beyond its photo", "regions that reach beyond their photos"),
    OUTSIDE: ("region outside of its photo", "regions outside of their photos"),
    TWICE: ("region marked twice", "regions marked twice"),
}


@dataclass(frozen=True)
class RegionLook:
    """What one photo's annotation is like.

    Attributes:
        classes: The regions of each class, by its name.
        traps: How often it has what misleads, by its kind.
        smaller: For each of the `SIDES` the regions that are small in a view of that side.
    """

    classes: Mapping[str, int]
    traps: Mapping[str, int]
    smaller: tuple[int, ...]


@dataclass(frozen=True)
class RegionCheck:
    """What all annotations tell.

    Attributes:
        traps: What misleads, with the photos that have it.
        smaller: For each of the `SIDES` the share of the regions that have fewer than 8x8 pixels in a view of that side.
        without: The classes without a region in the training images, or in all where none are for training.
    """

    counts: Mapping[str, Mapping[str, int]]
    traps: tuple[Trap, ...]
    smaller: Mapping[int, float] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    rare: Mapping[str, int] = field(default_factory=dict)
    most: int = 0

    @property
    def total(self) -> int:
        """The number of regions."""
        return sum(sum(of_split.values()) for of_split in self.counts.values())

    def lines(self) -> list[str]:
        """Return what misleads, one line a kind, and what is rare or small."""
        sizes = (f"{share:.1%} in a view of {side}" for side, share in self.smaller.items())
        rare = ", ".join(f"{name} ({count:,})" for name, count in self.rare.items())
        return [
            *said(self.traps),
            *([f"Classes without a region: {', '.join(self.without)}."] if self.without else []),
            *([f"Classes of fewer than {FEW} regions: {rare}."] if rare else []),
            *([f"Regions of fewer than 8x8 pixels: {', '.join(sizes)} pixels."] if any(self.smaller.values()) else []),
            *([f"At most {counted(self.most, 'region')} in a photo."] if self.most else []),
        ]

    def problems(self) -> list[str]:
        """Return what should be fixed, one line each."""
        totals = {kind: sum(trap.count for trap in self.traps if trap.kind == kind) for kind in TO_FIX}
        found = [counted(total, *TO_FIX[kind]) for kind, total in totals.items() if total]
        lacking = [f"{counted(len(self.without), 'class', 'classes')} without a region"] if self.without else []
        return [*found, *lacking]


def look_at_regions(
    source: Source, index: int, regions: Regions, class_names: Sequence[str], content: bytes | Path | None
) -> RegionLook:
    """Look at the annotation of one photo.

    Raises:
        ImageError: the photo cannot be read.
    """
    traps = Counter[str]()
    annotation = source.annotation(index) if isinstance(source, StoredImages) else None
    if annotation is not None and content is not None:
        traps.update(_against_photo(annotation, content))
    objects = regions.chosen(~regions.crowd)
    traps[TWICE] = _twice(objects)
    if objects.masks is not None and len(set(objects.classes.tolist())) < len(objects):  # not one region a class
        traps.update(_of_masks(objects))
    traps[MANY] = len(objects) > QUERIES
    scales = (side / max(regions.size) for side in SIDES)
    return RegionLook(
        Counter(class_names[number] for number in regions.classes.tolist()),
        {kind: count for kind, count in traps.items() if count},
        tuple(int((objects.areas * scale**2 < SMALL).sum()) for scale in scales),
    )


def _against_photo(annotation: Annotation, content: bytes | Path) -> Iterable[str]:
    """Give the kinds of what only photo and annotation together show."""
    stored, turn = stored_size(content)
    upright = stored[::-1] if turn in SIDEWAYS else stored
    stated = annotation.stated
    if turn != 1:
        as_stored = of_stored(stated, stored, turn)
        yield EITHER if stated is None or stored == upright else AS_STORED if as_stored else AS_TURNED
    if isinstance(annotation, CodedMap):
        yield from annotation.traps()
    if isinstance(annotation, Marks):
        yield from _beyond(annotation, stored if of_stored(stated, stored, turn) else upright)


def _beyond(annotation: Marks, size: Size) -> Iterable[str]:
    height, width = size
    across, down = annotation.scale(size)
    for mark in annotation.marks():
        left, top, right, bottom = mark.outer_box() or (0, 0, 0, 0)
        left, right, top, bottom = left * across, right * across, top * down, bottom * down
        if right <= left or bottom <= top:
            continue
        if min(right, bottom) <= 0 or left >= width or top >= height:
            yield OUTSIDE
        elif max(-left, -top, right - width, bottom - height) > SLACK:
            yield CUT


def _twice(regions: Regions) -> int:
    """Return how many regions are of the class and the place of another."""
    masks = regions.masks or (np.zeros(0, dtype=np.uint32),) * len(regions)
    rows = zip(regions.classes.tolist(), regions.boxes.tolist(), masks, strict=True)
    return len(regions) - len({(number, tuple(box), runs.tobytes()) for number, box, runs in rows})


def _of_masks(regions: Regions) -> Mapping[str, int]:
    """Count the regions of several parts, with holes, and over others."""
    assert regions.masks is not None, "only of masks"
    covered = np.zeros(regions.size, dtype=bool)
    counts = Counter[str]()
    for runs, box in zip(regions.masks, regions.boxes.astype(int).tolist(), strict=True):
        place = np.s_[box[1] : box[3], box[0] : box[2]]
        mask = decode_mask(runs, regions.size)[place]
        counts[PARTS] += ndimage.label(mask, np.ones((3, 3)))[1] > 1
        counts[HOLES] += has_hole(mask)
        counts[OVERLAPPING] += bool((covered[place] & mask).any())
        covered[place] |= mask
    return counts


def has_hole(mask: Bitmap) -> bool:
    """Tell whether a mask surrounds pixels that are not of it."""
    return bool(ndimage.label(np.pad(~mask, 1, constant_values=True))[1] > 1)


def check_regions(
    looks: Sequence[tuple[str, str, RegionLook]],
    class_names: Sequence[str],
    splits: Sequence[str],
    notes: Sequence[str],
) -> RegionCheck:
    """Return what the annotations of all photos tell.

    The looks are of each photo its split, its name, and the look at its annotation. What notes of the data say already is not
    said again.
    """
    counts = {split: dict.fromkeys(class_names, 0) for split in splits}
    for split, _, look in looks:
        for name, count in look.classes.items():
            counts[split][name] += count
    learned = counts.get("train") or {name: sum(of_split[name] for of_split in counts.values()) for name in class_names}
    total = sum(sum(look.classes.values()) for _, _, look in looks)
    traps = (Trap(kind, name, count) for _, name, look in looks for kind, count in look.traps.items())
    return RegionCheck(
        counts=counts,
        traps=tuple(trap for trap in traps if not any(note.startswith(trap.kind) for note in notes)),
        smaller={side: sum(look.smaller[at] for _, _, look in looks) / max(total, 1) for at, side in enumerate(SIDES)},
        without=tuple(name for name, count in learned.items() if not count),
        rare={name: count for name, count in learned.items() if 0 < count < FEW},
        most=max((sum(look.classes.values()) for _, _, look in looks), default=0),
    )
