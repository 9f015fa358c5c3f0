"""Panoptic quality: every pixel's class and every object's outline in one figure, also for things and for stuff alone.

By Kirillov et al. (CVPR 2019, arXiv 1801.00868) as panopticapi's evaluation.py computes it: a true and a found segment of one
class match if their IoU is above 0.5, the union without pixels that count for nothing. PQ is the sum of the matches' IoU over
the matches and half of what is missed and invented. A found segment mostly in such pixels, or in a crowd of its class, is not
invented.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int64

from vitral.advice import counted
from vitral.tasks.dense_result import DenseResult, check_scored, of_photos, sureness
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.resampling import ByClass, PhotoTally, Weights, known, mean_known
from vitral.tasks.shown import Table, Tile, class_table, numbers, percent, photos_of, shares
from vitral.tasks.task import Figure

NOWHERE = 0  # in a map of segments: the pixel counts for nothing; segments count from 1
Counts = Float64[np.ndarray, "classes counts"]  # sum of the matches' IoU, matches, invented, missed


@dataclass(frozen=True)
class PanopticScores:
    """The panoptic quality of some classes, the mean over those that are in a photo or found in one; shares of 1.

    Attributes:
        pq: Panoptic quality.
        sq: Segmentation quality: how well matched segments overlap.
        rq: Recognition quality: the F1 score of segments.
        classes: The number of classes.
    """

    pq: float
    sq: float
    rq: float
    classes: int


@dataclass(frozen=True, kw_only=True, repr=False)
class PanopticEvaluation(DenseResult):
    """The scores of a classifier of pixels and objects on one split.

    Attributes:
        all: The scores of all classes.
        things: Those of classes whose objects are told apart; None where it is not known which, or none of them is there.
        stuff: Those of the others, likewise.
        class_pq: The panoptic quality of each class; None of one that is in no photo and found in none.
        class_sq: The segmentation quality of each class, likewise.
        class_rq: The recognition quality of each class, likewise.
        found: The number of segments of each class that are found.
        invented: The number of found segments of each class where there is none.
        missed: The number of segments of each class that are not found.
        support: The number of photos that have each class.
    """

    figure: ClassVar[Figure] = Figure("pq", "panoptic quality")
    all: PanopticScores
    things: PanopticScores | None
    stuff: PanopticScores | None
    class_pq: tuple[float | None, ...]
    class_sq: tuple[float | None, ...]
    class_rq: tuple[float | None, ...]
    found: tuple[int, ...]
    invented: tuple[int, ...]
    missed: tuple[int, ...]
    support: tuple[int, ...]

    def scores(self) -> dict[str, float]:
        """Return the figures that a classifier keeps of itself."""
        low = {"pq_low": self.interval[0]} if self.interval else {}
        parts = {f"pq_{name}": each.pq for name, each in (("things", self.things), ("stuff", self.stuff)) if each}
        return {"pq": self.all.pq, **low, "sq": self.all.sq, "rq": self.all.rq, **parts}

    def counts(self, split: str) -> str:
        """Return how many segments are found, missed and invented."""
        found, invented, missed = sum(self.found), sum(self.invented), sum(self.missed)
        segments = f"{counted(found + missed, 'segment')} in {photos_of(split, self.num_examples)}"
        return f"Of {segments}: {found:,} found (IoU above 0.5), {missed:,} missed; {invented:,} invented."

    def remarks(self) -> tuple[str, ...]:
        """Return the parts of the figure."""
        return tuple(
            f"{name}: PQ {percent(each.pq)}, SQ {percent(each.sq)}, RQ {percent(each.rq)} "
            f"({counted(each.classes, 'class', 'classes')})"
            for name, each in (("all", self.all), ("things", self.things), ("stuff", self.stuff))
            if each
        )

    def tiles(self, split: str) -> tuple[Tile, ...]:
        """Return panoptic quality and its parts."""
        parts = (("things", self.things), ("stuff", self.stuff))
        return (
            *super().tiles(split),
            Tile(percent(self.all.sq), ("segmentation quality", "how well found segments overlap")),
            Tile(percent(self.all.rq), ("recognition quality", "the F1 score of segments")),
            *(Tile(percent(each.pq), (f"panoptic quality of {name}",)) for name, each in parts if each),
        )

    def class_tables(self) -> tuple[Table, ...]:
        """Return every class, the worst first."""
        columns = [
            ("PQ", shares(self.class_pq)),
            ("95% interval", self._interval_of),
            ("SQ", shares(self.class_sq)),
            ("RQ", shares(self.class_rq)),
            ("Found", numbers(self.found)),
            ("Missed", numbers(self.missed)),
            ("Invented", numbers(self.invented)),
            ("Photos", numbers(self.support)),
        ]
        return (class_table(("Class", self.class_names), self.class_pq, self.support, columns),)


@dataclass(frozen=True, eq=False)
class _Segments:
    """The segments of an image that are seen: the number of each pixel's, and of each its class, its area, whether a crowd."""

    places: Int64[np.ndarray, "height width"]
    classes: Int64[np.ndarray, " segments"]
    areas: Int64[np.ndarray, " segments"]
    crowd: Bool[np.ndarray, " segments"]


class PanopticTally(PhotoTally):
    """Matches found segments to true ones, photo by photo; `things` are the classes whose objects are told apart, if known."""

    def __init__(self, class_names: Sequence[str], things: Collection[int] | None = None) -> None:
        super().__init__(class_names)
        self.things = None if things is None else frozenset(things)
        self._counts: list[Counts] = []
        self._sure: list[float] = []
        self._present: list[Int64[np.ndarray, " classes"]] = []

    def _add(self, answer: FoundRegions, truth: Regions) -> None:
        """Add a photo; of regions that overlap the later one has the pixels."""
        there, ours = _segments(truth), _segments(answer.regions)
        self._counts.append(_matched(there, ours, len(self.class_names)))
        self._sure.append(sureness(answer))
        self._present.append(np.unique(there.classes))

    def figures(self) -> dict[str, float]:
        """Return PQ, SQ and RQ."""
        scores = self._all()
        return {"pq": scores.pq, "sq": scores.sq, "rq": scores.rq}

    def by_class(self, weights: Weights) -> ByClass:
        """Return the PQ of each class where photos count as often as `weights` say."""
        return _qualities(np.tensordot(weights, np.stack(self._counts), axes=1))[..., 0]

    def result(self) -> PanopticEvaluation:
        """Return the scores."""
        scores, counts = self._all(), self._sums()
        is_thing = np.isin(np.arange(len(counts)), sorted(self.things or ()))
        pq, sq, rq = _qualities(counts).T
        whole = counts[:, 1:].astype(int)
        own = mean_known(_qualities(np.stack(self._counts))[..., 0])  # of each photo
        return PanopticEvaluation(
            **of_photos(self, own, np.array(self._sure), self._notes()),
            all=scores,
            things=None if self.things is None else _scores(counts[is_thing]),
            stuff=None if self.things is None else _scores(counts[~is_thing]),
            class_pq=known(pq),
            class_sq=known(sq),
            class_rq=known(rq),
            found=tuple(whole[:, 0].tolist()),
            invented=tuple(whole[:, 1].tolist()),
            missed=tuple(whole[:, 2].tolist()),
            support=tuple(np.bincount(np.concatenate(self._present), minlength=len(counts)).tolist()),
        )

    def _sums(self) -> Counts:
        return np.sum([np.zeros((len(self.class_names), 4)), *self._counts], axis=0)

    def _all(self) -> PanopticScores:
        scores = _scores(self._sums())
        check_scored(self.photos, scores.classes if scores else 0)
        assert scores is not None, "refused above"
        return scores

    def _notes(self) -> list[str]:
        sums = [counts.sum(axis=0).astype(int).tolist() for counts in self._counts]
        return [f"{found} of {found + missed} found, {invented} invented" for _, found, invented, missed in sums]


def _segments(regions: Regions) -> _Segments:
    """Return the segments of which pixels are seen; pixels that are ignored count for nothing."""
    assert regions.masks is not None, "only boxes are known"
    numbers = np.arange(1, len(regions) + 1)
    places = regions.painted(regions.masks, numbers, ground=NOWHERE, ignored=NOWHERE)
    areas = np.bincount(places.ravel(), minlength=len(regions) + 1)
    areas[NOWHERE] = 0
    seen = np.flatnonzero(areas)
    renumbered = np.zeros(len(areas), dtype=np.int64)
    renumbered[seen] = np.arange(1, len(seen) + 1)
    return _Segments(renumbered[places], regions.classes[seen - 1], areas[seen], regions.crowd[seen - 1])


def _matched(truth: _Segments, found: _Segments, num_classes: int) -> Counts:
    shape = len(truth.classes) + 1, len(found.classes) + 1
    cells = truth.places * shape[1] + found.places
    common = np.bincount(cells.ravel(), minlength=shape[0] * shape[1]).reshape(shape)[:, 1:]
    uncounted, common = common[NOWHERE], common[1:]
    union = truth.areas[:, None] + found.areas - common - uncounted
    alike = truth.classes[:, None] == found.classes
    share = np.where(alike & ~truth.crowd[:, None], common / np.maximum(union, 1), 0.0)
    hit = share > 0.5  # at most one a segment, as segments do not overlap
    for row in np.flatnonzero(truth.crowd).tolist():
        # Of several crowds of one class panopticapi knows the last.
        last = not (truth.crowd[row + 1 :] & (truth.classes[row + 1 :] == truth.classes[row])).any()
        uncounted = uncounted + np.where(alike[row] & last, common[row], 0)
    invented = ~hit.any(axis=0) & (uncounted <= 0.5 * found.areas)
    missed = ~hit.any(axis=1) & ~truth.crowd

    def added(
        numbers: Int64[np.ndarray, " segments"], weights: Float64[np.ndarray, " segments"]
    ) -> Float64[np.ndarray, " c"]:
        return np.bincount(numbers, weights=weights, minlength=num_classes)

    of_truth = np.stack([np.where(hit, share, 0.0).sum(axis=1), hit.any(axis=1), missed])
    overlap, right, not_found = (added(truth.classes, values) for values in of_truth)
    return np.stack([overlap, right, added(found.classes, invented.astype(np.float64)), not_found], axis=1)


def _qualities(
    counts: Float64[np.ndarray, "*resamples classes counts"],
) -> Float64[np.ndarray, "*resamples classes qualities"]:
    """Return PQ, SQ and RQ; NaN of a class that is nowhere."""
    overlap, right, invented, missed = np.moveaxis(counts, -1, 0)
    halves = right + 0.5 * invented + 0.5 * missed
    there, whole = halves > 0, np.maximum(halves, 0.5)
    qualities = overlap / whole, overlap / np.maximum(right, 1), right / whole
    return np.stack([np.where(there, quality, np.nan) for quality in qualities], axis=-1)


def _scores(counts: Counts) -> PanopticScores | None:
    qualities = _qualities(counts)
    there = qualities[~np.isnan(qualities[:, 0])]
    if not len(there):
        return None
    pq, sq, rq = there.mean(axis=0).tolist()
    return PanopticScores(pq, sq, rq, len(there))
