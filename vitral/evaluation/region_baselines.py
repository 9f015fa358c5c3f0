"""What answers without any network reach on regions: a threshold on grey, the commonest class, the mean of masks or boxes.

Otsu's threshold (IEEE SMC-9, 1979) tells the dark pixels of a photo from the bright ones; which side is the foreground is
chosen on training photos. On photos of cells it is better than a linear layer on a backbone's coarse maps.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np
from jaxtyping import Bool, Float64, Int64

from vitral.data.scorable import marked_photo
from vitral.data.source import DataSet, Source
from vitral.data.subset import spread_over
from vitral.errors import DataError
from vitral.evaluation.baselines import Stopwatch
from vitral.images.decode import Pixels
from vitral.images.geometry import Geometry, Resize
from vitral.images.moved_masks import paint_masks
from vitral.tasks.components import found_objects, object_masks, split_at_waists
from vitral.tasks.dense import DenseTask
from vitral.tasks.regions import VOID, FoundRegions, Regions

MOST_TRAINING = 100  # photos
MOST_TEST = 500
TRAINING_SHARE = 0.3  # of the seconds
FEWEST = 2  # photos of each kind
SMALL = 1  # percent of the training objects, which are smaller than any that is found
PLACES = 64  # rows and columns of the mean mask
WAIST = 0.7  # the share of an object's half width at which objects that touch are told apart

# What each is called for people.
OTSU = "a threshold on grey (Otsu)"
COMMONEST = "the commonest class everywhere"
SAME_BOX = "the same box in every photo"
MEAN_MASK = "the mean of the training masks"

Flags = Bool[np.ndarray, "height width"]
Map = Int64[np.ndarray, "height width"]
# Which side of the threshold is the foreground, from which pixels are bright.
SIDES: Mapping[str, Callable[[Flags], Flags]] = {
    "bright": lambda bright: bright,
    "dark": lambda bright: ~bright,
    "smaller": lambda bright: bright if bright.mean() <= 0.5 else ~bright,
    "larger": lambda bright: ~bright if bright.mean() <= 0.5 else bright,
}


class Finder(Protocol):
    """What finds regions in a photo without a network."""

    def find(self, photo: Pixels) -> FoundRegions:
        """Return what is found, in the photo's own pixels."""
        ...


def brighter(photo: Pixels) -> Flags:
    """Return which pixels are brighter than Otsu's threshold of the photo's grey."""
    grey = cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY)
    return cv2.threshold(grey, 0, 1, cv2.THRESH_BINARY | cv2.THRESH_OTSU)[1] > 0


@dataclass(frozen=True)
class Otsu:
    """Otsu's threshold as a classifier of pixels, or as a finder of objects.

    Attributes:
        side: Which side is the foreground: "bright", "dark", "smaller" or "larger".
        objects: The class of all objects; None for a classifier of pixels, whose class 1 is the foreground.
        smallest: The pixels of an object at least: so many that one in a hundred of the training objects has fewer.
    """

    side: str
    objects: int | None
    smallest: float = 1.0

    @classmethod
    def chosen(cls, photos: Sequence[tuple[Pixels, Regions]], *, pixels: bool) -> "Otsu":
        """Return the threshold whose side has the best mean IoU of foreground and background on training photos."""
        counts = {side: np.zeros((2, 2)) for side in SIDES}
        for photo, regions in photos:
            truth, counted = _foreground(regions, pixels=pixels)
            bright = brighter(photo)
            for side, of in SIDES.items():
                cells = 2 * truth[counted] + of(bright)[counted]
                counts[side] += np.bincount(cells, minlength=4).reshape(2, 2)
        classes = np.concatenate([regions.classes for _, regions in photos])
        areas = np.concatenate([regions.areas for _, regions in photos])
        side = max(SIDES, key=lambda side: _mean_iou(counts[side]))
        if pixels or not len(classes):
            return cls(side, None if pixels else 0)
        return cls(side, int(np.bincount(classes).argmax()), float(np.percentile(areas, SMALL)))

    def find(self, photo: Pixels) -> FoundRegions:
        """Return the two classes, or the connected parts of the foreground, those first that differ most from the threshold."""
        front = SIDES[self.side](brighter(photo))
        if self.objects is None:
            return _as_map(front.astype(np.int64))
        objects = split_at_waists(front, WAIST)
        kept = np.bincount(objects.reshape(-1)) >= self.smallest
        kept[0] = False
        objects = (np.cumsum(kept) * kept)[objects]
        grey = cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY).astype(np.float64)
        sizes = np.bincount(objects.reshape(-1))
        means = np.bincount(objects.reshape(-1), weights=grey.reshape(-1)) / np.maximum(sizes, 1)
        scores = np.abs(means[1:] - means[0]) / 255
        return found_objects(objects, np.full(len(scores), self.objects, dtype=np.int64), scores)


@dataclass(frozen=True, eq=False)
class MeanMask:
    """The class that is commonest at each place of the training photos, all stretched to one size; with one place, of all."""

    classes: Int64[np.ndarray, "rows columns"]

    @classmethod
    def of(cls, photos: Sequence[tuple[Pixels, Regions]], num_classes: int, places: int) -> "MeanMask":
        """Return the mean of training photos' maps of classes, at so many rows and columns."""
        counts = np.zeros((num_classes, places, places))
        for _, regions in photos:
            labels = regions.class_map()
            for number in np.unique(labels[labels != VOID]).tolist():
                there = (labels == number).astype(np.float32)
                counts[number] += cv2.resize(there, (places, places), interpolation=cv2.INTER_AREA)
        return cls(counts.argmax(axis=0))

    def find(self, photo: Pixels) -> FoundRegions:
        """Return the same map for every photo, stretched to its size."""
        size = photo.shape[1], photo.shape[0]
        stretched = cv2.resize(self.classes.astype(np.int32), size, interpolation=cv2.INTER_NEAREST)
        return _as_map(stretched.astype(np.int64))


@dataclass(frozen=True, eq=False)
class SameBox:
    """A single object at the same place of every photo: of the training photos' largest ones the median of each side.

    Attributes:
        sides: Left, top, right and bottom, as shares of a photo's width and height.
        number: The class, the commonest of the largest objects.
        masks: Whether objects have outlines; this one's is its box.
    """

    sides: Float64[np.ndarray, "4"]
    number: int
    masks: bool

    @classmethod
    def of(cls, photos: Sequence[tuple[Pixels, Regions]]) -> "SameBox | None":
        """Return it of training photos; None where nothing is marked in them."""
        marked = [(regions, int(regions.areas.argmax())) for _, regions in photos if len(regions)]
        if not marked:
            return None
        sides = [regions.boxes[largest] / np.tile(regions.size[::-1], 2) for regions, largest in marked]
        numbers = [int(regions.classes[largest]) for regions, largest in marked]
        masks = any(regions.masks is not None for regions, _ in marked)
        return cls(np.median(sides, axis=0), int(np.bincount(numbers).argmax()), masks)

    def find(self, photo: Pixels) -> FoundRegions:
        """Return the box, in the photo's own pixels."""
        size = photo.shape[0], photo.shape[1]
        box = self.sides * np.tile(size[::-1], 2)
        if not self.masks:
            return FoundRegions(Regions.of_boxes(size, [self.number], box[None]), np.ones(1))
        mask = np.zeros(size, dtype=bool)
        left, top, right, bottom = box.round().astype(int)
        mask[top:bottom, left:right] = True
        return FoundRegions(Regions.of_masks(size, [self.number], [mask]), np.ones(1))


def score_region_baselines(task: DenseTask, data: DataSet, *, pixels: bool, seconds: float) -> dict[str, float]:
    """Score what answers without a network, on the split that the network will be scored on.

    `pixels` says that every pixel has a class, instead of objects being found. Of photos for which there is no time none is
    looked at.

    Returns:
        The headline figures by what reaches them, which says of how many photos where it is not of all; none where there is no
        time for two photos of either kind.

    Raises:
        ImageError: A photo cannot be read.
    """
    classes = len(data.class_names)
    known = _read(data.splits["train"], MOST_TRAINING, Stopwatch(TRAINING_SHARE * seconds))
    if len(known) < min(FEWEST, len(data.splits["train"])):
        return {}
    finders: dict[str, Finder] = {}
    if not pixels or classes == 2:
        finders[OTSU] = Otsu.chosen(known, pixels=pixels)
    if not pixels and (same := SameBox.of(known)) is not None:
        finders[SAME_BOX] = same
    if pixels:
        finders[COMMONEST] = MeanMask.of(known, classes, 1)
        finders[MEAN_MASK] = MeanMask.of(known, classes, PLACES)
    tallies = {name: task.tally_regions(data.class_names) for name in finders}
    stopwatch, source, number = Stopwatch((1 - TRAINING_SHARE) * seconds), data.splits[data.scored_split()], 0
    some = spread_over(source, MOST_TEST)
    for index in range(len(some)):
        if stopwatch.left() <= 0:
            break
        (photo, regions), number = marked_photo(some, index), number + 1
        for name, finder in finders.items():
            tallies[name].add([_enlarged(finder.find(photo.pixels), photo.size)], [regions], [some.describe(index)])
    if number < min(FEWEST, len(some)):
        return {}
    of = "" if number == len(source) else f", on {number:,} of these photos"
    figures: dict[str, float] = {}
    for name, tally in tallies.items():
        with contextlib.suppress(DataError):  # nothing is marked in the photos that there was time for
            figures[f"{name}{of}"] = next(iter(tally.figures().values()))
    return figures


def _read(source: Source, most: int, stopwatch: Stopwatch) -> list[tuple[Pixels, Regions]]:
    """Return photos with their regions, both as they were decoded, as many as there is time for."""
    some, photos = spread_over(source, most), []
    for index in range(len(some)):
        if stopwatch.left() <= 0:
            break
        photo, regions = marked_photo(some, index)
        photos.append((photo.pixels, regions.follow(photo.decoded) if photo.decoded.steps else regions))
    return photos


def _enlarged(found: FoundRegions, size: tuple[int, int]) -> FoundRegions:
    """Return what is found in a photo that may have been decoded smaller, in pixels of the whole photo."""
    if found.regions.size == size:
        return found
    view = Geometry(found.regions.size, (Resize(*size),))
    labels = None if found.class_map is None else view.mask(found.class_map)
    return FoundRegions(found.regions.follow(view), found.scores, labels)


def _foreground(regions: Regions, *, pixels: bool) -> tuple[Map, Flags]:
    """Return which pixels are foreground, and which count."""
    if pixels:
        labels = regions.class_map()
        return (labels == 1).astype(np.int64), labels != VOID
    front = paint_masks(object_masks(regions), np.ones(len(regions), dtype=np.int64), regions.size, ground=0)
    return front, ~regions.ignored_bitmap()


def _mean_iou(counts: Float64[np.ndarray, "2 2"]) -> float:
    right = counts.diagonal()
    return float((right / np.maximum(counts.sum(axis=0) + counts.sum(axis=1) - right, 1)).mean())


def _as_map(labels: Map) -> FoundRegions:
    regions = Regions.of_map(labels)
    return FoundRegions(regions, np.ones(len(regions)), labels)
