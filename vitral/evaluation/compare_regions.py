"""Two classifiers of regions on the same photos: the difference of their figures, and its interval by resampling photos."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.errors import DataError
from vitral.evaluation.region_scores import tally_source
from vitral.events import Listener
from vitral.tasks.resampling import PairedDifference, PhotoTally, paired_difference
from vitral.tasks.shown import Presentable, Table, photos_of
from vitral.tasks.task import Figure

Pair = tuple[str, str]


@dataclass(frozen=True, repr=False)
class RegionComparison(Presentable):
    """What a comparison of two classifiers of regions came to: their headline figures, and the first's less the second's."""

    names: Pair
    figures: tuple[float, float]
    figure: Figure
    difference: PairedDifference
    class_names: tuple[str, ...]
    images: int
    split: str

    def lines(self) -> tuple[str, ...]:
        """Return the verdict, and what it rests on."""
        found, (first, second) = self.difference, self.names
        verdict = {
            "better": f"{first} is better than {second}",
            "worse": f"{second} is better than {first}",
            "not decided": f"These photos do not decide between {first} and {second}",
        }[found.verdict]
        ours, theirs = (self.figure.text(value) for value in self.figures)
        interval = "" if found.interval is None else ", 95% interval {:+.1%} to {:+.1%}".format(*found.interval)
        apart = f"a difference of {found.difference:+.1%}{interval}"
        return (
            f"{verdict}: {self.figure.title} {ours} against {theirs} on {photos_of(self.split, self.images)}, {apart}.",
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the difference of each class."""
        each = zip(self.class_names, self.difference.classes, self.difference.class_intervals, strict=True)
        rows = tuple(
            (name, f"{value:+.1%}", "" if ends is None else "{:+.1%} to {:+.1%}".format(*ends))
            for name, value, ends in each
            if value is not None
        )
        columns = ("Class", f"Difference of {self.figure.title}", "95% interval")
        return (Table("The classes, the first less the second", columns, rows),)

    def examples(self) -> tuple[str, ...]:
        """Return nothing: no photo is right or wrong as a whole."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return every field as JSON values, with the verdict."""
        return {**asdict(self), "verdict": self.difference.verdict}


def compare_regions(
    names: Pair, pair: tuple[Classifier, Classifier], source: Source, split: str, listener: Listener
) -> RegionComparison:
    """Compare two classifiers of regions on the photos of a source.

    Raises:
        DataError: The two have different tasks or classes.
        ImageError: A photo cannot be read.
    """
    first, second = pair
    if (first.task, first.class_names) != (second.task, second.class_names):
        raise DataError(
            f"{names[0]} and {names[1]} are of different tasks or classes ({_said(first)}; {_said(second)}), so that their "
            "figures cannot be compared."
        )
    tallies: Sequence[Any] = [tally_source(classifier, source, listener=listener) for classifier in pair]
    assert all(isinstance(tally, PhotoTally) for tally in tallies), "tallies that can be scored again"
    figures = [next(iter(tally.figures().values())) for tally in tallies]
    return RegionComparison(
        names,
        (figures[0], figures[1]),
        first.task.headline,
        paired_difference(*tallies),
        first.class_names,
        len(source),
        split,
    )


def _said(classifier: Classifier) -> str:
    return f"'{classifier.task.name}' with {len(classifier.class_names)} classes"
