"""How far a score hangs on the photos that happen to be in the split: intervals, and two classifiers on the same photos.

Both by the bootstrap over photos (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 13 and 16).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from vitral.seeds import generator
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.task import Result

RESAMPLES = 1000
BLOCK = 50  # resamples at once
ENDS = (0.025, 0.975)
MOST_ABSENT = 1 / 3  # of the resamples: a class of a single photo is absent from 37% of them, one of two from 14%

Weights = Float64[np.ndarray, "resamples photos"]  # how often each photo counts
ByClass = Float64[np.ndarray, "resamples classes"]
Ends = tuple[float, float]


class PhotoTally(ABC):
    """Adds up what was found in each photo beside what is there, and keeps enough to score any choice of the photos again.

    No photo need be kept for that.
    """

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = tuple(class_names)
        self.names: list[str] = []  # of the photos, in the order in which they were added

    @property
    def photos(self) -> int:
        """How many photos were added."""
        return len(self.names)

    def add(self, found: Sequence[FoundRegions], truths: Sequence[Regions], names: Sequence[str]) -> None:
        """Add some photos: what was found in each, what is there, both in the photo's own pixels, and what it is called."""
        for answer, truth, name in zip(found, truths, names, strict=True):
            self._add(answer, truth)
            self.names.append(name)

    @abstractmethod
    def _add(self, answer: FoundRegions, truth: Regions) -> None: ...

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """Return the figures of a validation, by name: the headline figure's first.

        Raises:
            DataError: there is nothing to score.
        """

    @abstractmethod
    def result(self) -> Result:
        """Return the scores; the error is that of `figures`."""

    @property
    def resamples(self) -> int:
        """How many resamples can be scored within seconds."""
        return RESAMPLES

    @abstractmethod
    def by_class(self, weights: Weights) -> ByClass:
        """Return the headline figure of each class where photos count as often as `weights` say.

        It is NaN of a class that is in none; the mean over the other classes is the headline figure.
        """


@dataclass(frozen=True)
class Intervals:
    """The 95 % intervals of a tally's figures by the percentile bootstrap.

    Attributes:
        headline: That of the headline figure; None of a single photo.
        classes: That of each class; None of a class that fewer than two photos have.
        resamples: How many resamples they are of.
    """

    headline: Ends | None
    classes: tuple[Ends | None, ...]
    resamples: int


@dataclass(frozen=True)
class PairedDifference:
    """Two classifiers on the same photos, the first less the second.

    Attributes:
        difference: The first's headline figure less the second's.
        interval: Its 95 % interval by resampling the photos, the same ones for both; None of a single photo.
        p_value: How probable a difference as large as this is by chance, two-sided: twice the smaller share of the resamples on
            either side of no difference.
        classes: The difference of each class; None of a class without a figure.
        class_intervals: Their 95 % intervals, not corrected for how many classes there are.
        resamples: How many resamples they are of.
    """

    difference: float
    interval: Ends | None
    p_value: float
    classes: tuple[float | None, ...]
    class_intervals: tuple[Ends | None, ...]
    resamples: int

    @property
    def verdict(self) -> Literal["better", "worse", "not decided"]:
        """What the first is beside the second: decided where the interval is without 0."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return "not decided"
        return "better" if self.difference > 0 else "worse"


def mean_known(values: ByClass) -> Float64[np.ndarray, " resamples"]:
    """Return the mean over the classes that have a figure; NaN where none has."""
    known = ~np.isnan(values)
    sums, counts = np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def known(figures: Float64[np.ndarray, " classes"]) -> tuple[float | None, ...]:
    """Return the classes' figures, None for NaN."""
    return tuple(None if np.isnan(figure) else figure for figure in figures.tolist())


def intervals(tally: PhotoTally) -> Intervals:
    """Return the intervals of a tally's figures."""
    drawn = _resampled(tally)
    return Intervals(_ends(mean_known(drawn)), tuple(map(_ends, drawn.T)), len(drawn))


def paired_difference(first: PhotoTally, second: PhotoTally) -> PairedDifference:
    """Compare two classifiers whose tallies are of the same photos in the same order, with the same classes."""
    assert first.photos == second.photos, "tallies of different photos"
    ones = np.ones((1, first.photos))
    ours, theirs = first.by_class(ones), second.by_class(ones)
    drawn = list(map(_resampled, (first, second)))
    count = min(map(len, drawn))  # the first resamples are the same ones
    apart = drawn[0][:count] - drawn[1][:count]
    means = mean_known(drawn[0][:count]) - mean_known(drawn[1][:count])
    return PairedDifference(
        difference=float((mean_known(ours) - mean_known(theirs))[0]),
        interval=_ends(means),
        p_value=_by_chance(means[~np.isnan(means)]),
        classes=known((ours - theirs)[0]),
        class_intervals=tuple(map(_ends, apart.T)),
        resamples=count,
    )


def _resampled(tally: PhotoTally) -> ByClass:
    """Return the figures of resamples of the photos; none of a single photo, which can only be drawn again."""
    none = tally.by_class(np.ones((0, tally.photos)))
    count = tally.resamples if tally.photos > 1 else 0
    return np.concatenate([none, *(tally.by_class(weights) for weights in _draws(tally.photos, count))])


def _draws(photos: int, count: int) -> Iterator[Weights]:
    """Give blocks of resamples: always the same ones of so many photos, so that two classifiers can be paired."""
    random = generator(0, "resamples of photos")
    for start in range(0, count, BLOCK):
        rows = min(BLOCK, count - start)
        cells = random.integers(0, photos, (rows, photos)) + photos * np.arange(rows)[:, None]
        yield np.bincount(cells.ravel(), minlength=rows * photos).reshape(rows, photos).astype(np.float64)


def _ends(values: Float64[np.ndarray, " resamples"]) -> Ends | None:
    known = values[~np.isnan(values)]
    if len(known) <= (1 - MOST_ABSENT) * len(values):
        return None
    low, high = np.quantile(known, ENDS)
    return float(low), float(high)


def _by_chance(differences: Float64[np.ndarray, " resamples"]) -> float:
    """Return twice the smaller share on either side of no difference, never 0: chance may always have done it."""
    fewer = min((differences <= 0).sum(), (differences >= 0).sum())
    return float(min(1.0, 2 * (fewer + 1) / (len(differences) + 1)))
