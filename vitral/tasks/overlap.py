"""How well maps of classes overlap: mean IoU, Dice, pixel accuracy and boundary IoU, of pixels added up over all photos.

IoU, Dice and accuracy are those of mmsegmentation (mmseg/evaluation/metrics/iou_metric.py): pixels that count for nothing are
left out of both maps, a class's pixels are added up over all photos before the division, and a class that is in neither map has
no figure. Boundary IoU is Cheng et al.'s (CVPR 2021, arXiv 2103.16562; bowenc0221/boundary-iou-api): the same division over the
pixels of each mask that are near its edge.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cv2
import numpy as np
from jaxtyping import Bool, Float64, Int64

from vitral.tasks.dense_result import DenseResult, OfPhotos, check_scored, of_photos, sureness
from vitral.tasks.regions import VOID, FoundRegions, Regions
from vitral.tasks.resampling import ByClass, PhotoTally, Weights, known, mean_known
from vitral.tasks.shown import Table, Tile, class_table, numbers, percent, photos_of, shares
from vitral.tasks.task import Figure

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BAND = 0.02  # of a photo's diagonal: how far from its edge a mask's pixels are near it
MOST_CONFUSED = 12  # pairs of classes
SMALLEST_CONFUSED = 0.005  # of a class's pixels
MOST_EXAMPLES = 3  # photos of a pair of classes
COUNTS = 6  # of each class in a photo

Map = Int64[np.ndarray, "height width"]
Figures = Float64[np.ndarray, "*resamples classes"]


@dataclass(frozen=True)
class ConfusedPixels:
    """Pixels of one class that are taken for another.

    Attributes:
        truth: The name of the pixels' class.
        predicted: The name of the class that is found there.
        share: Their share of the pixels of their class, 0 to 1.
        examples: The positions in the split of at most three photos, those with most such pixels first.
    """

    truth: str
    predicted: str
    share: float
    examples: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class SemanticEvaluation(DenseResult):
    """The scores of a classifier of pixels on one split; every share lies between 0 and 1.

    Attributes:
        miou: The mean IoU of the classes that are in a photo or found in one.
        mean_dice: The mean of their Dice coefficients.
        mean_accuracy: The mean of the shares of each class's pixels that are found.
        pixel_accuracy: The share of all pixels whose class is found.
        boundary_iou: The mean IoU of the bands along the edges of the classes' masks.
        iou: The IoU of each class; None of one that is in no photo and found in none.
        dice: The Dice coefficient of each class, likewise.
        recall: The share of each class's pixels that are found; None of a class that is in no photo.
        boundary: The boundary IoU of each class.
        pixels: The number of pixels of each class.
        support: The number of photos that have each class.
        confused: At most 12 pairs of classes, the largest share of a class first.
    """

    figure: ClassVar[Figure] = Figure("miou", "mean IoU")
    miou: float
    mean_dice: float
    mean_accuracy: float
    pixel_accuracy: float
    boundary_iou: float
    iou: tuple[float | None, ...]
    dice: tuple[float | None, ...]
    recall: tuple[float | None, ...]
    boundary: tuple[float | None, ...]
    pixels: tuple[int, ...]
    support: tuple[int, ...]
    confused: tuple[ConfusedPixels, ...] = ()

    def scores(self) -> dict[str, float]:
        """Return the figures that a classifier keeps of itself."""
        low = {"miou_low": self.interval[0]} if self.interval else {}
        return {
            "miou": self.miou,
            **low,
            "dice": self.mean_dice,
            "boundary_iou": self.boundary_iou,
            "mean_accuracy": self.mean_accuracy,
            "pixel_accuracy": self.pixel_accuracy,
        }

    def counts(self, split: str) -> str:
        """Return how many pixels have the right class."""
        photos = photos_of(split, self.num_examples)
        return f"{percent(self.pixel_accuracy)} of the pixels of {photos} have the right class."

    def remarks(self) -> tuple[str, ...]:
        """Return the other means."""
        return (
            f"Dice {percent(self.mean_dice)}, boundary IoU {percent(self.boundary_iou)}, "
            f"mean class accuracy {percent(self.mean_accuracy)}",
        )

    def tiles(self, split: str) -> tuple[Tile, ...]:
        """Return mean IoU, Dice, boundary IoU and pixel accuracy."""
        return (
            *super().tiles(split),
            Tile(percent(self.mean_dice), ("Dice, the classes' mean",)),
            Tile(percent(self.boundary_iou), ("boundary IoU", "how well edges fit")),
            Tile(percent(self.pixel_accuracy), ("of the pixels have the right class",)),
        )

    def class_tables(self) -> tuple[Table, ...]:
        """Return every class, the worst first, and what classes are taken for."""
        total = max(sum(self.pixels), 1)
        columns = [
            ("IoU", shares(self.iou)),
            ("95% interval", self._interval_of),
            ("Dice", shares(self.dice)),
            ("Boundary IoU", shares(self.boundary)),
            ("Pixels found", shares(self.recall)),
            ("Pixels", shares([count / total for count in self.pixels])),
            ("Photos", numbers(self.support)),
        ]
        pairs = Table(
            "Most often confused",
            ("True class", "taken for", "of the class's pixels"),
            tuple((pair.truth, pair.predicted, percent(pair.share)) for pair in self.confused),
            names=2,
            examples=tuple(pair.examples for pair in self.confused),
            examples_title="Photos with most of them",
        )
        classes = class_table(("Class", self.class_names), self.iou, self.support, columns)
        return (*([pairs] if self.confused else []), classes)


@dataclass(frozen=True, eq=False)
class _PhotoPixels:
    """The pixels of one photo.

    Attributes:
        classes: The classes that are in the photo or found in it, ascending.
        pairs: The pixels by true class and found class, both in that order; the last column is of pixels without an answer.
        counts: For each of those classes the pixels that are right, found and there, and the same of the bands along the edges;
            0 of these where boundaries are not compared.
        sure: How sure the answers are, the pixels' mean; NaN where nothing was found.
    """

    classes: Int64[np.ndarray, " present"]
    pairs: Int64[np.ndarray, "present found"]
    counts: Int64[np.ndarray, "present counts"]
    sure: float


class OverlapTally(PhotoTally):
    """Adds up the pixels of maps of classes; with `boundaries` those of bands along edges, too, which `result` needs."""

    def __init__(self, class_names: Sequence[str], *, boundaries: bool = False) -> None:
        super().__init__(class_names)
        self.boundaries = boundaries
        self._photos: list[_PhotoPixels] = []
        self._table: csr_array | None = None

    def _add(self, answer: FoundRegions, truth: Regions) -> None:
        """Add a photo; a pixel of the truth that is in no region counts for nothing."""
        labels = answer.regions.class_map() if answer.class_map is None else answer.class_map
        self._photos.append(_counted_pixels(labels, truth.class_map(), sureness(answer), boundaries=self.boundaries))
        self._table = None

    def figures(self) -> dict[str, float]:
        """Return mean IoU, Dice and pixel accuracy."""
        totals = self._totals()
        check_scored(self.photos, int((~np.isnan(totals.iou)).sum()))
        return {"miou": _mean(totals.iou), "dice": _mean(totals.dice), "pixel_accuracy": totals.accuracy}

    def by_class(self, weights: Weights) -> ByClass:
        """Return the IoU of each class where photos count as often as `weights` say."""
        return _Totals(self._sums(weights)).iou

    def result(self) -> SemanticEvaluation:
        """Return the scores."""
        assert self.boundaries, "the bands along edges were not compared"
        figures, totals = self.figures(), self._totals()
        return SemanticEvaluation(
            **of_photos(self, *self._own()),
            miou=figures["miou"],
            mean_dice=figures["dice"],
            mean_accuracy=_mean(totals.recall),
            pixel_accuracy=figures["pixel_accuracy"],
            boundary_iou=_mean(totals.boundary),
            iou=known(totals.iou),
            dice=known(totals.dice),
            recall=known(totals.recall),
            boundary=known(totals.boundary),
            pixels=tuple(map(int, totals.there)),
            support=self._support(),
            confused=self._confused(totals.there),
        )

    def _totals(self) -> "_Totals":
        return _Totals(self._sums(np.ones((1, self.photos)))[0])

    def _sums(self, weights: Weights) -> Float64[np.ndarray, "resamples classes counts"]:
        """Return the counts of each class where photos count as often as `weights` say."""
        if self._table is None:
            from scipy.sparse import csr_array  # a quarter of a second of start-up for all who score no pixels

            cells = [photo.classes[:, None] * COUNTS + np.arange(COUNTS) for photo in self._photos]
            self._table = csr_array(
                (
                    _joined([photo.counts for photo in self._photos]).astype(np.float64),
                    _joined(cells),
                    np.cumsum([0, *(cell.size for cell in cells)]),
                ),
                shape=(self.photos, len(self.class_names) * COUNTS),
            )
        return (weights @ self._table).reshape(len(weights), len(self.class_names), COUNTS)

    def _support(self) -> tuple[int, ...]:
        present = _joined([photo.classes[photo.pairs.any(axis=1)] for photo in self._photos])
        return tuple(np.bincount(present, minlength=len(self.class_names)).tolist())

    def _confused(self, there: Float64[np.ndarray, " classes"]) -> tuple[ConfusedPixels, ...]:
        """Return the pairs of classes of which the largest share of the first is taken for the second."""
        pairs: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for index, photo in enumerate(self._photos):
            rows, columns = np.nonzero(photo.pairs[:, :-1])
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
                if row != column:
                    pairs[int(photo.classes[row]), int(photo.classes[column])][index] = int(photo.pairs[row, column])
        listed = [
            ConfusedPixels(
                self.class_names[truth],
                self.class_names[predicted],
                sum(photos.values()) / float(there[truth]),
                tuple(sorted(photos, key=lambda index: -photos[index])[:MOST_EXAMPLES]),
            )
            for (truth, predicted), photos in pairs.items()
        ]
        worst = sorted(listed, key=lambda pair: -pair.share)[:MOST_CONFUSED]
        return tuple(pair for pair in worst if pair.share >= SMALLEST_CONFUSED)

    def _own(self) -> tuple[OfPhotos, OfPhotos, list[str]]:
        """Return the mean IoU of each photo, how sure its answers are, and its worst class."""
        own = [_Totals(photo.counts.astype(np.float64)).iou for photo in self._photos]
        notes = [
            f"{self.class_names[photo.classes[iou.argmin()]]} {percent(iou.min())}" if len(iou) else ""
            for photo, iou in zip(self._photos, own, strict=True)
        ]
        figures = np.array([iou.mean() if len(iou) else np.nan for iou in own])
        return figures, np.array([photo.sure for photo in self._photos]), notes


class _Totals:
    """The figures that follow from counts of pixels, whose last two axes are the classes and their counts."""

    def __init__(self, counts: Float64[np.ndarray, "*resamples classes counts"]) -> None:
        self.right, self.found, self.there, *self._edges = np.moveaxis(counts, -1, 0)

    @property
    def iou(self) -> Figures:
        return _shares(self.right, self.found + self.there - self.right)

    @property
    def dice(self) -> Figures:
        return _shares(2 * self.right, self.found + self.there)

    @property
    def recall(self) -> Figures:
        return _shares(self.right, self.there)

    @property
    def boundary(self) -> Figures:
        right, found, there = self._edges
        return _shares(right, found + there - right)

    @property
    def accuracy(self) -> float:
        return float(self.right.sum() / max(self.there.sum(), 1))


def near_edge(labels: Map) -> Bool[np.ndarray, "height width"]:
    """Return which pixels of each class's mask are near its edge, where the photo's border is an edge.

    Near is within 2 % of the photo's diagonal, in rows and columns. As many erosions with 3 x 3 pixels leave a mask's pixel
    exactly if no other class is in the square of that reach around it, so that one look serves all classes.
    """
    reach = max(1, round(BAND * float(np.hypot(*labels.shape))))
    framed = cv2.copyMakeBorder((labels + 1).astype(np.uint16), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    square = np.ones((2 * reach + 1, 2 * reach + 1), dtype=np.uint8)
    return (cv2.erode(framed, square) != cv2.dilate(framed, square))[1:-1, 1:-1]


def _counted_pixels(found: Map, truth: Map, sure: float, *, boundaries: bool) -> _PhotoPixels:
    assert found.shape == truth.shape, f"a map of {found.shape} for a photo of {truth.shape}"
    counted = truth != VOID
    found = np.where(counted, found, VOID)
    both = np.bincount(truth.ravel(), minlength=VOID + 1) + np.bincount(found.ravel(), minlength=VOID + 1)
    both[VOID] = 0
    classes = np.flatnonzero(both)
    place = np.full(len(both), len(classes))
    place[classes] = np.arange(len(classes))
    rows, columns, shape = place[truth], place[found], (len(classes), len(classes) + 1)

    def pairs(chosen: Bool[np.ndarray, "height width"]) -> Int64[np.ndarray, "present found"]:
        cells = rows[chosen] * shape[1] + columns[chosen]
        return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)

    def counts(chosen: Bool[np.ndarray, "height width"], place: Map) -> Int64[np.ndarray, " present"]:
        return np.bincount(place[chosen], minlength=shape[1])[:-1]

    whole = pairs(counted)
    table = np.zeros((len(classes), COUNTS), dtype=np.int64)
    table[:, :3] = np.stack([whole.diagonal(), whole[:, :-1].sum(axis=0), whole.sum(axis=1)], axis=1)
    if boundaries:
        true_edge, found_edge = near_edge(truth) & counted, near_edge(found) & counted
        edges = pairs(true_edge & found_edge).diagonal(), counts(found_edge, columns), counts(true_edge, rows)
        table[:, 3:] = np.stack(edges, axis=1)
    return _PhotoPixels(classes, whole, table, sure)


def _shares(parts: Figures, wholes: Figures) -> Figures:
    """Return parts of wholes; NaN of nothing."""
    return np.where(wholes > 0, parts / np.maximum(wholes, 1), np.nan)


def _mean(figures: Figures) -> float:
    return float(mean_known(figures[None])[0])


def _joined(parts: Sequence[Int64[np.ndarray, "*axes"]]) -> Int64[np.ndarray, " cells"]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *(part.ravel() for part in parts)])
