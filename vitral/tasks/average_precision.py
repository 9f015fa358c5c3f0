"""COCO's average precision of boxes and masks, all twelve numbers, and which objects are found, missed and invented.

The numbers are those of pycocotools' COCOeval (`accumulate` and `summarize` of cocoeval.py): IoU from 0.50 to 0.95 by 0.05, 101
points of recall, precision made monotone from the right, at most 1, 10 and 100 regions of a class in a photo, sizes by the area
that the annotation states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from vitral.tasks.dense import FITTED, THRESHOLD
from vitral.tasks.dense_result import check_scored, of_photos
from vitral.tasks.region_evaluation import RegionEvaluation, SizeScores
from vitral.tasks.region_matches import (
    MEDIUM,
    NONE,
    SIZES,
    SMALL,
    THRESHOLDS,
    Matches,
    Overlaps,
    areas_of,
    match,
    overlaps,
    partners,
)
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.resampling import RESAMPLES, ByClass, PhotoTally, Weights, known

RECALLS = np.linspace(0.0, 1.0, 101)
MOST_FOUND = (1, 10, 100)  # regions of a class in a photo, the surest
AT_75 = 5  # the place of an IoU of 0.75
STEPS = 1e9  # of arithmetic that resampling may take, about ten seconds
FEWEST_RESAMPLES = 100


@dataclass(frozen=True, eq=False)
class _PhotoObjects:
    """What became of one photo's regions.

    Attributes:
        matches: Of each class that is there or found.
        boundaries: Likewise, by the overlap of boundaries; none where these are not compared.
        pairs: True class and found class of each object, found or missed, and of each invented one; "nothing" comes last.
        areas: The area of the true one, pixels; NaN of an invented one.
        sure: How sure the answers are, their mean; NaN without any.
    """

    matches: dict[int, Matches]
    boundaries: dict[int, Matches]
    pairs: Int64[np.ndarray, "objects 2"]
    areas: Float64[np.ndarray, " objects"]
    sure: float


class ObjectsTally(PhotoTally):
    """Matches found objects to true ones, photo by photo.

    Args:
        class_names: The names of the classes, in order.
        masks: Whether masks are compared; otherwise boxes are.
        threshold: How sure an answer must be to be counted as found or invented, 0 to 1; AP ranks all of them.
        boundaries: Whether the boundaries of masks are compared, too, which `result` tells.
    """

    def __init__(
        self, class_names: Sequence[str], *, masks: bool, threshold: float = THRESHOLD, boundaries: bool = False
    ) -> None:
        super().__init__(class_names)
        self.masks = masks
        self.boundaries = boundaries and masks
        self.threshold = threshold
        self._photos: list[_PhotoObjects] = []
        self._ranked: list[_Ranked] | None = None

    @property
    def resamples(self) -> int:
        """How many resamples can be scored within seconds."""
        steps = sum(ranked.steps for ranked in self._classes())
        return int(np.clip(STEPS / max(steps, 1), FEWEST_RESAMPLES, RESAMPLES))

    def _add(self, answer: FoundRegions, truth: Regions) -> None:
        order = np.argsort(-answer.scores, kind="stable")
        found, scores = answer.regions.chosen(order), answer.scores[order]
        shares, boundaries = overlaps(found, truth, masks=self.masks, boundaries=self.boundaries)
        sure = scores >= self.threshold
        photo = _PhotoObjects(
            self._matches(found, scores, truth, shares),
            {} if boundaries is None else self._matches(found, scores, truth, boundaries),
            *self._paired(found.classes[sure], shares[sure], truth),
            float(scores[sure].mean()) if sure.any() else np.nan,
        )
        self._photos.append(photo)
        self._ranked = None

    def figures(self) -> dict[str, float]:
        """Return AP, AP50 and AP75, and from where on answers are best shown."""
        precision = self._precision()[:, 0]
        check_scored(self.photos, int((~np.isnan(precision[:, 0, 0])).sum()))
        chosen = {"ap": precision, "ap50": precision[:, 0], "ap75": precision[:, AT_75]}
        return {**{name: float(_mean(values)) for name, values in chosen.items()}, FITTED: self.best_threshold()}

    def by_class(self, weights: Weights) -> ByClass:
        """Return the AP of each class where photos count as often as `weights` say."""
        return np.stack([ranked.resampled(weights) for ranked in self._classes()], axis=1)

    def result(self) -> RegionEvaluation:
        """Return the scores."""
        assert self.boundaries == self.masks, "the boundaries of masks were not compared"
        figures = self.figures()
        precision, recalls = self._precision(), [self._recall(most) for most in MOST_FOUND]
        cells, counts = np.unique(self._pairs(), axis=0, return_counts=True)
        return RegionEvaluation(
            **of_photos(self, *self._own(), self._notes()),
            ap=figures["ap"],
            ap50=figures["ap50"],
            ap75=figures["ap75"],
            boundary_ap=known(_mean(self._boundary_precision())[None])[0] if self.boundaries else None,
            recall_of_most=tuple(float(_mean(recall[:, 0])) for recall in recalls),
            sizes=self._sizes(precision, recalls[-1]),
            class_ap=known(_means(precision[:, 0])),
            class_ap50=known(_means(precision[:, 0, 0])),
            support=tuple(int((ranked.positives[:, 0] > 0).sum()) for ranked in self._classes()),
            confusion=tuple((*cell, count) for cell, count in zip(cells.tolist(), counts.tolist(), strict=True)),
            threshold=self.threshold,
            best_threshold=self.best_threshold(),
            crowded=self._crowded(),
        )

    def _matches(
        self, found: Regions, scores: Float64[np.ndarray, " found"], truth: Regions, shares: Overlaps
    ) -> dict[int, Matches]:
        """Return what becomes of the regions of each class, the surest first."""
        areas, matches = areas_of(found, masks=self.masks), {}
        for number in np.union1d(found.classes, truth.classes).tolist():
            rows = np.flatnonzero(found.classes == number)[: MOST_FOUND[-1]]
            columns = np.flatnonzero(truth.classes == number)
            close = shares[np.ix_(rows, columns)]
            matches[number] = match(close, scores[rows], areas[rows], truth.areas[columns], truth.crowd[columns])
        return matches

    def _paired(
        self, classes: Int64[np.ndarray, " found"], shares: Float64[np.ndarray, "found true"], truth: Regions
    ) -> tuple[Int64[np.ndarray, "objects 2"], Float64[np.ndarray, " objects"]]:
        """Return which class each object is found as, and its area; what lies in a crowd is not invented."""
        single, nothing = ~truth.crowd, len(self.class_names)
        there, alike = truth.classes[single], classes[:, None] == truth.classes[None, single]
        chosen = partners(shares[:, single], alike)
        as_found = np.full(len(there), nothing)
        as_found[chosen[chosen != NONE]] = classes[chosen != NONE]
        crowded = (shares[:, truth.crowd] >= THRESHOLDS[0]).any(axis=1)
        invented = classes[(chosen == NONE) & ~crowded]
        objects = np.stack([there, as_found], axis=1)
        others = np.stack([np.full(len(invented), nothing), invented], axis=1)
        return np.concatenate([objects, others]), np.pad(
            truth.areas[single], (0, len(invented)), constant_values=np.nan
        )

    def _classes(self) -> "list[_Ranked]":
        if self._ranked is None:
            self._ranked = self._rank([photo.matches for photo in self._photos])
        return self._ranked

    def _rank(self, matches: "Sequence[dict[int, Matches]]") -> "list[_Ranked]":
        return [
            _ranked([(photo, each[number]) for photo, each in enumerate(matches) if number in each])
            for number in range(len(self.class_names))
        ]

    def _boundary_precision(self) -> Float64[np.ndarray, "classes thresholds recalls"]:
        return np.stack([ranked.precision(0) for ranked in self._rank([photo.boundaries for photo in self._photos])])

    def _precision(self) -> Float64[np.ndarray, "classes sizes thresholds recalls"]:
        return np.stack([[ranked.precision(size) for size in range(len(SIZES))] for ranked in self._classes()])

    def _recall(self, most: int) -> Float64[np.ndarray, "classes sizes thresholds"]:
        return np.stack([[ranked.recall(size, most) for size in range(len(SIZES))] for ranked in self._classes()])

    def _pairs(self) -> Int64[np.ndarray, "objects 2"]:
        return np.concatenate([photo.pairs for photo in self._photos])

    def _sizes(
        self,
        precision: Float64[np.ndarray, "classes sizes thresholds recalls"],
        recall: Float64[np.ndarray, "classes sizes thresholds"],
    ) -> tuple[SizeScores, ...]:
        """Return how objects of each size come out; one exactly at a bound belongs to the smaller size."""
        pairs, areas = self._pairs(), np.concatenate([photo.areas for photo in self._photos])
        there = pairs[:, 0] < len(self.class_names)
        size = 1 + np.digitize(areas[there], (SMALL, MEDIUM), right=True)
        found = pairs[there, 0] == pairs[there, 1]
        return tuple(
            SizeScores(
                name,
                objects=int((size == place).sum()),
                found=int((found & (size == place)).sum()),
                ap=known(_mean(precision[:, place])[None])[0],
                recall=known(_mean(recall[:, place])[None])[0],
            )
            for place, name in enumerate(SIZES)
            if place
        )

    def best_threshold(self) -> float:
        """Return how sure an answer must be for the best F1 score at an IoU of 0.5."""
        classes = self._classes()
        scores = np.concatenate([ranked.scores for ranked in classes])
        order = np.argsort(-scores, kind="stable")
        right, ignored = (
            np.concatenate([getattr(ranked, name)[0, 0] for ranked in classes])[order] for name in ("right", "ignored")
        )
        if not right.any():
            return self.threshold
        there = sum(int(ranked.positives[:, 0].sum()) for ranked in classes)
        f1 = 2 * np.cumsum(right) / (np.cumsum(~ignored) + there)
        return float(scores[order][f1.argmax()])

    def _crowded(self) -> int:
        most = MOST_FOUND[-1]
        return sum(any(each.positives[0] > most for each in photo.matches.values()) for photo in self._photos)

    def _own(self) -> tuple[Float64[np.ndarray, " photos"], Float64[np.ndarray, " photos"]]:
        """Return the F1 score of each photo, and how sure its answers are."""
        right = np.array([(photo.pairs[:, 0] == photo.pairs[:, 1]).sum() for photo in self._photos], dtype=np.float64)
        sides = np.array([(photo.pairs < len(self.class_names)).sum() for photo in self._photos])
        figures = np.where(sides > 0, 2 * right / np.maximum(sides, 1), np.nan)
        return figures, np.array([photo.sure for photo in self._photos])

    def _notes(self) -> list[str]:
        nothing = len(self.class_names)
        notes = []
        for photo in self._photos:
            truth, found = photo.pairs.T
            there, right = int((truth < nothing).sum()), int((truth == found).sum())
            notes.append(f"{right} of {there} found, {int((truth == nothing).sum())} invented")
        return notes


@dataclass(frozen=True, eq=False)
class _Ranked:
    """The found regions of one class in all photos, the surest first.

    Attributes:
        scores: How sure each is.
        photo: The photo that each is in.
        rank: How many surer ones there are of the class in that photo.
        right: See `Matches`.
        ignored: See `Matches`.
        photos: The photos that have the class or in which it is found.
        positives: The true regions that count in each of those, by size.
    """

    scores: Float64[np.ndarray, " found"]
    photo: Int64[np.ndarray, " found"]
    rank: Int64[np.ndarray, " found"]
    right: Bool[np.ndarray, "sizes thresholds found"]
    ignored: Bool[np.ndarray, "sizes thresholds found"]
    photos: Int64[np.ndarray, " photos"]
    positives: Int64[np.ndarray, "photos sizes"]

    @property
    def steps(self) -> int:
        """How much arithmetic a resample takes."""
        return 3 * len(self.scores) + 8 * int(self.right[0].sum())

    def precision(self, size: int) -> Float64[np.ndarray, "thresholds recalls"]:
        """Return the precision at each recall, or NaN where nothing of the size is there."""
        total = self.positives[:, size].sum()
        if not total:
            return np.full((len(THRESHOLDS), len(RECALLS)), np.nan)
        right = np.cumsum(self.right[size], axis=1).astype(np.float64)
        wrong = np.cumsum(~self.right[size] & ~self.ignored[size], axis=1).astype(np.float64)
        precision = right / (wrong + right + np.spacing(1))
        monotone = np.pad(np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))
        recall = right / total
        return np.stack([row[np.searchsorted(reached, RECALLS)] for row, reached in zip(monotone, recall, strict=True)])

    def recall(self, size: int, most: int) -> Float64[np.ndarray, " thresholds"]:
        """Return the share of the true regions that is found by the `most` surest of each photo, or NaN as above."""
        total = self.positives[:, size].sum()
        return self.right[size][:, self.rank < most].sum(axis=1) / total if total else np.full(len(THRESHOLDS), np.nan)

    def resampled(self, weights: Weights) -> Float64[np.ndarray, " resamples"]:
        """Return the AP where photos count as often as `weights` say; NaN where they have nothing of the class.

        Precision peaks where a region is right, so only these are looked at. A photo that counts twice gives its regions twice,
        side by side, which moves precision through the same peaks.
        """
        total = weights[:, self.photos] @ self.positives[:, 0]
        often = weights.T[self.photo]  # (found, resamples)
        every = np.cumsum(often, axis=0)
        area = np.zeros(len(weights))
        for right, ignored in zip(self.right[0], self.ignored[0], strict=True):
            if right.any():
                counted = every if not ignored.any() else np.cumsum(often * ~ignored[:, None], axis=0)
                area += _area(np.cumsum(often[right], axis=0), counted[right], np.maximum(total, 1))
        return np.where(total > 0, area / len(THRESHOLDS), np.nan)


def _ranked(matches: Sequence[tuple[int, Matches]]) -> _Ranked:
    """Return the matches of one class in photos, by their positions, ranked."""
    shape = (len(SIZES), len(THRESHOLDS), 0)
    scores = np.concatenate([np.zeros(0), *(each.scores for _, each in matches)])
    order = np.argsort(-scores, kind="stable")
    counts = [len(each.scores) for _, each in matches]
    photos = np.array([photo for photo, _ in matches], dtype=np.int64)
    return _Ranked(
        scores[order],
        np.repeat(photos, counts)[order],
        np.concatenate([np.zeros(0, dtype=np.int64), *map(np.arange, counts)])[order],
        np.concatenate([np.zeros(shape, dtype=bool), *(each.right for _, each in matches)], axis=2)[:, :, order],
        np.concatenate([np.zeros(shape, dtype=bool), *(each.ignored for _, each in matches)], axis=2)[:, :, order],
        photos,
        np.array([each.positives for _, each in matches], dtype=np.int64).reshape(-1, len(SIZES)),
    )


def _area(
    right: Float64[np.ndarray, "right resamples"],
    counted: Float64[np.ndarray, "right resamples"],
    total: Float64[np.ndarray, " resamples"],
) -> Float64[np.ndarray, " resamples"]:
    """Return the mean precision at the 101 recalls of each resample, given what came up to each region that is right."""
    precision = np.maximum.accumulate((right / np.maximum(counted, 1))[::-1], axis=0)[::-1]
    recall = right / total
    reached = np.floor((len(RECALLS) - 1) * recall + 1e-9)  # how many of the recalls above 0
    reached -= reached * RECALLS[1] > recall  # as a search in RECALLS has it, where rounding parts 0.07 from 7 / 100
    return (precision[0] + (precision * np.diff(reached, axis=0, prepend=0.0)).sum(axis=0)) / len(RECALLS)


def _mean(values: Float64[np.ndarray, "*axes"]) -> Float64[np.ndarray, ""]:
    """Return the mean of what is known; NaN of nothing."""
    listed = values[~np.isnan(values)]
    return np.asarray(listed.mean() if len(listed) else np.nan)


def _means(values: Float64[np.ndarray, "classes *axes"]) -> Float64[np.ndarray, " classes"]:
    return values.reshape(len(values), -1).mean(axis=1)
