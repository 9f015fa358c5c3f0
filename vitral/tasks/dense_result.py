"""What the scores of all tasks about regions share: an interval over photos, simple rules beside it, the photos to look at."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float64

from vitral.advice import capital, counted
from vitral.errors import DataError
from vitral.tasks.regions import FoundRegions
from vitral.tasks.resampling import RESAMPLES, PhotoTally, intervals
from vitral.tasks.shown import NO_VALUE, Table, Tile, percent, photos_of, range_text
from vitral.tasks.task import Figure, Result

MOST_PHOTOS = 12  # of the best, the worst and the most doubtful each
OfPhotos = Float64[np.ndarray, " photos"]


@dataclass(frozen=True)
class ScoredPhoto:
    """A photo and how it came out.

    Attributes:
        index: The photo's position in the split.
        description: The photo's file, or its name in a built-in set.
        figure: The photo's own figure, 0 to 1: of the best and worst how well it came out, of the doubtful how sure the answers
            are.
        note: What is to be seen, such as "3 of 20 missed"; may be empty.
    """

    index: int
    description: str
    figure: float
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class DenseResult(Result):
    """The scores of a classifier of regions.

    Attributes:
        num_examples: The number of photos, each counted once.
        interval: The 95 % interval of the headline figure by resampling the photos; None of a single photo.
        class_intervals: That of each class's figure; None of a class that fewer than two photos have.
        resamples: How many resamples the intervals are of.
        worst: The photos that came out worst, the worst first; at most 12.
        best: Those that came out best, likewise.
        doubtful: Those of whose answers the network is least sure, likewise.
        baselines: What simple rules reach on the same photos, by name: the headline figure.
    """

    figure: ClassVar[Figure]
    num_examples: int
    class_names: tuple[str, ...]
    interval: tuple[float, float] | None
    class_intervals: tuple[tuple[float, float] | None, ...]
    resamples: int
    worst: tuple[ScoredPhoto, ...] = ()
    best: tuple[ScoredPhoto, ...] = ()
    doubtful: tuple[ScoredPhoto, ...] = ()
    baselines: tuple[tuple[str, float], ...] = ()

    def __repr__(self) -> str:
        """Return the figures that matter most in one line; `to_json` gives them all."""
        return f"{type(self).__name__}: {self.sentence('scored')}"

    def beside(self, baselines: Mapping[str, float]) -> Self:
        """Return the scores beside what simple rules reach on the same photos."""
        return replace(self, baselines=tuple(baselines.items()))

    def reached(self) -> str:
        """Return the headline figure with its interval: "mean IoU 77.6% (95% interval 74.0% to 80.1%)"."""
        return f"{self.figure.title} {percent(self.headline())}{self._interval_text(' (95% interval {})')}"

    def _interval_text(self, text: str) -> str:
        return text.format(range_text(self.interval, 1)) if self.interval else ""

    def warning(self) -> str:
        """Return the simple rule that is better than the network, in one sentence; empty where none is."""
        better = [pair for pair in self.baselines if self.figure.improves(pair[1], self.headline())]
        if not better:
            return ""
        name, value = max(better, key=lambda pair: pair[1])
        reached = f"{self.figure.title} {percent(value)} against {percent(self.headline())}"
        return f"{capital(name)} is better than the network: {reached}."

    @abstractmethod
    def counts(self, split: str) -> str:
        """Return in words what was found."""

    def sentence(self, split: str) -> str:
        """Return the result: first a simple rule that is better, then what was found, then the headline figure."""
        return " ".join(filter(None, (self.warning(), self.counts(split), f"{capital(self.reached())}.")))

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the tables."""
        few = f"intervals by {self.resamples:,} resamples of the photos" if 0 < self.resamples < RESAMPLES else ""
        return tuple(filter(None, (self.warning(), self.counts(""), self.reached(), *self.remarks(), few)))

    def remarks(self) -> tuple[str, ...]:
        """Return further lines for a terminal."""
        return ()

    def tiles(self, split: str) -> tuple[Tile, ...]:
        """Return the headline figure, and the best simple rule's."""
        title = f"{self.figure.title} on {photos_of(split, self.num_examples)}"
        caption = (title, *([self._interval_text("95% interval {}")] if self.interval else []))
        rules = sorted(self.baselines, key=lambda pair: -pair[1])[:1]
        return (
            Tile(percent(self.headline()), caption),
            *(Tile(percent(value), (f"{self.figure.title} of {name}", "a simple rule")) for name, value in rules),
        )

    def lead(self, split: str) -> str:
        """Return what the report says above the scores."""
        return " ".join(filter(None, (self.warning(), self.counts(split))))

    def tables(self) -> tuple[Table, ...]:
        """Return simple rules beside the network, the classes, and the worst, most doubtful and best photos."""
        return (
            *([self._baseline_table()] if self.baselines else []),
            *self.class_tables(),
            *self._photo_tables(),
        )

    @abstractmethod
    def class_tables(self) -> tuple[Table, ...]:
        """Return the tables of classes."""

    def _interval_of(self, index: int) -> str:
        """Return the cell of a class's interval in a table."""
        ends = self.class_intervals[index]
        return range_text(ends, 1) if ends else NO_VALUE

    def _baseline_table(self) -> Table:
        title = capital(self.figure.title)
        rows = sorted([("this network", self.headline()), *self.baselines], key=lambda pair: -pair[1])
        return Table("Beside simple rules", ("", title), tuple((name, percent(value)) for name, value in rows))

    def _photo_tables(self) -> tuple[Table, ...]:
        title = capital(self.figure.title)
        listed = (
            ("The worst photos", self.worst, title),
            ("The most doubtful photos", self.doubtful, "How sure"),
            ("The best photos", self.best, title),
        )
        return tuple(
            Table(
                title,
                ("Photo", "", figure),
                tuple((photo.description, photo.note, percent(photo.figure)) for photo in photos),
                names=2,
                foldable=True,
                examples=tuple((photo.index,) for photo in photos),
            )
            for title, photos, figure in listed
            if photos
        )


def of_photos(tally: PhotoTally, figures: OfPhotos, sureness: OfPhotos, notes: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a `DenseResult` that follow from the photos of a tally.

    Args:
        tally: The tally.
        figures: How well each photo came out; NaN of one that has nothing to score.
        sureness: How sure the answers of each are, 0 to 1; NaN where nothing was answered.
        notes: What is to be seen in each.
    """
    spread = intervals(tally)

    def listed(values: OfPhotos, chosen: Sequence[int]) -> tuple[ScoredPhoto, ...]:
        return tuple(ScoredPhoto(i, tally.names[i], float(values[i]), notes[i]) for i in chosen)

    order = [i for i in np.argsort(figures, kind="stable").tolist() if not np.isnan(figures[i])]
    unsure = [i for i in np.argsort(sureness, kind="stable").tolist() if not np.isnan(sureness[i])]
    most = min(MOST_PHOTOS, (len(order) + 1) // 2)  # of few photos none is among the best and the worst
    best = order[::-1][: min(most, len(order) - most)]
    return {
        "num_examples": tally.photos,
        "class_names": tally.class_names,
        "interval": spread.headline,
        "class_intervals": spread.classes,
        "resamples": spread.resamples,
        "worst": listed(figures, order[:most]),
        "best": listed(figures, best),
        "doubtful": listed(sureness, unsure[:MOST_PHOTOS]),
    }


def sureness(answer: FoundRegions) -> float:
    """Return how sure answers are, their pixels' mean; NaN where nothing was found."""
    areas = answer.regions.areas
    return float((answer.scores * areas).sum() / areas.sum()) if areas.sum() else np.nan


def check_scored(photos: int, classes: int) -> None:
    """Refuse, by a `DataError`, so many photos with so many classes that have a figure where either is 0."""
    if not photos:
        raise DataError("There are no images to evaluate; name a split that has some.")
    if not classes:
        raise DataError(
            f"Nothing is marked in {counted(photos, 'photo')} to score by; name a split whose annotations have some class."
        )
