"""Where a classifier is weak: accuracy on parts of the images, told apart by a column or by folders, the worst first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitral.classifier.classifier import Classifier
from vitral.data.classes import Reading
from vitral.data.column_values import values_by
from vitral.data.names import natural_key
from vitral.evaluation.comparison import LEVEL, holm
from vitral.evaluation.evaluate import BATCH_SIZE, Right, predict_right
from vitral.evaluation.opening import open_for, open_test
from vitral.events import Listener, show
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.shown import MOST_ROWS, Presentable, Table, how_many, range_text, right_of, table_of

MOST_NUMBERS = 10  # different numbers of a column that are a slice each; more are put into four parts of equal size
PARTS = 4


@dataclass(frozen=True)
class Slice:
    """Images that have one value in common.

    Attributes:
        accuracy: The share that is right, 0 to 1.
        interval: Wilson's 95 % interval of that.
        p_value: The probability of such a distance from all other images by chance, by Fisher's exact test, two-sided,
            corrected for all slices by Holm's method.
        worse: Whether it is surely worse than the others.
    """

    value: str
    images: int
    accuracy: float
    interval: tuple[float, float]
    p_value: float
    worse: bool


@dataclass(frozen=True, repr=False)
class Slices(Presentable):
    """A classifier's accuracy by slice, the lowest first; `by` is the column, or the folder, that tells the slices apart."""

    data: str
    split: str
    by: str
    images: int
    accuracy: float
    slices: tuple[Slice, ...]

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table, what is surely weak first."""
        worse = [part for part in self.slices if part.worse]
        whole = f"all together {right_of(self.accuracy, self.images, self.split)}"
        if not worse:
            return (f"No {self.by} is surely worse than the others: {whole}.",)
        named = "; ".join(
            f"{part.value} {how_many(part.accuracy, part.images)} of {part.images:,}" for part in worse[:3]
        )
        return (f"Surely worse by {self.by}: {named}; {whole}.",)

    def tables(self) -> tuple[Table, ...]:
        """Return every slice, the worst first."""
        left = len(self.slices) - MOST_ROWS
        columns: Sequence[tuple[str, Callable[[Slice], str]]] = (
            (self.by, lambda part: part.value),
            ("Accuracy", lambda part: f"{part.accuracy:.1%}"),
            ("95%", lambda part: range_text(part.interval, 1)),
            ("Photos", lambda part: f"{part.images:,}"),
            ("p", lambda part: f"{part.p_value:.3f}"),
            ("Than the others", lambda part: "worse" if part.worse else ""),
        )
        note = f"and {left:,} better ones, in the JSON output." if left > 0 else ""
        return (table_of(f"By {self.by}, the worst first", self.slices[:MOST_ROWS], columns, note=note),)


def slices(
    classifier: Classifier | str | Path,
    data: str | Path,
    by: str,
    *,
    split: str | None = None,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> Slices:
    """Score a classifier on parts of one split, the worst first.

    Args:
        classifier: The classifier itself, or whatever `load` takes.
        data: A table (.csv, .tsv, .parquet) with a further column, a folder of such, or any data whose images lie in folders.
        by: The column; or "folder" for the folder that an image lies in, "folder:2" for that around it, and so on.
        split: "test", "validation" or "train"; None for the first of them that there is.
        classes: The folder that names the class where folders are nested; None for the one that has the classifier's names.
        batch_size: The number of images computed at once.
        workers: The number of processes that decode; 0 decodes here.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and warnings; they are written to the screen by default.

    Raises:
        DataError: No such data, split, column or folder; or images that do not have one class each.
    """
    opened = open_for(
        classifier, str(data), split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
    )
    values = values_by(str(data), opened.source, by)  # before an image is computed
    open_test(opened.classifier, opened.data, opened.split, "slices", listener)
    right = predict_right(opened.classifier, opened.source, batch_size=batch_size, workers=workers, listener=listener)
    return Slices(opened.data.name, opened.split, by, len(right), float(right.mean()), sliced(values, right))


def sliced(values: Sequence[str], right: Right) -> tuple[Slice, ...]:
    """Return the slices of some answers, the lowest accuracy first, of equals the larger one.

    Values that are many different numbers are put into four parts of about the same size.
    """
    from scipy.stats import fisher_exact  # a second of start-up for all who slice nothing

    names = np.array(_parted(values), dtype=object)
    found, p_values = [], []
    for name in sorted(set(names.tolist()), key=natural_key):
        mine = names == name
        images, correct = int(mine.sum()), int(right[mine].sum())
        others = int(right.sum()) - correct, len(right) - images
        table = [[correct, images - correct], [others[0], others[1] - others[0]]]
        p_values.append(float(fisher_exact(table)[1]))
        found.append((name, images, correct, images * others[0] > others[1] * correct))
    made = [
        Slice(name, images, correct / images, wilson_interval(correct, images), p_value, below and p_value < LEVEL)
        for (name, images, correct, below), p_value in zip(found, holm(p_values), strict=True)
    ]
    return tuple(sorted(made, key=lambda part: (part.accuracy, -part.images)))


def _parted(values: Sequence[str]) -> list[str]:
    """Return the values, or where they are many different numbers the part of their range that each is in."""
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        return list(values)
    if len(np.unique(numbers)) <= MOST_NUMBERS or not np.isfinite(numbers).all():
        return list(values)
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, PARTS + 1)))
    parts = np.searchsorted(edges[1:-1], numbers, side="left")
    return [f"{edges[part]:g} to {edges[part + 1]:g}" for part in parts.tolist()]
