"""How a classifier bears worse images than it knows: fifteen corruptions at five severities, on one's own images."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.source import DataSet, Source
from vitral.data.subset import Renumbered
from vitral.errors import DataError
from vitral.evaluation.evaluate import BATCH_SIZE, match_classes, open_split
from vitral.evaluation.features import thinned
from vitral.evaluation.looks import open_test
from vitral.events import Listener, Message, Progress, ignore
from vitral.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from vitral.images.decode import Pixels, Shrink
from vitral.images.preprocessing import Preprocessing
from vitral.inference.batching import collect
from vitral.progress import show
from vitral.seeds import generator
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.shown import Table
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Label

MOST_IMAGES = 500  # that are corrupted: each is computed 76 times
SEED = 0  # the same noise for every classifier
CLEAN = "none"


class Corrupted:
    """A source whose images are brought to a network's size and corrupted there.

    Args:
        source: images and labels.
        preprocessing: the network's, by which the images are brought to its size.
        corruption: its name; "none" leaves them as they are.
        severity: 1 to 5.
    """

    endless = False
    shards: tuple[int, ...] = ()

    def __init__(self, source: Source, preprocessing: Preprocessing, corruption: str, severity: int) -> None:
        self._source, self._preprocessing = source, preprocessing
        self._corruption, self._severity = corruption, severity

    def __len__(self) -> int:
        """Return how many images there are."""
        return len(self._source)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image at the network's size, corrupted."""
        fitted = self._preprocessing.fit(self._source.image(index, shrink))
        pixels = np.ascontiguousarray(fitted.permute(1, 2, 0).round().numpy().astype(np.uint8))
        if self._corruption == CLEAN:
            return pixels
        rng = generator(SEED, f"corrupt by {self._corruption}", self._severity, index)
        return corrupt(pixels, self._corruption, self._severity, rng)

    def encoded(self, index: int) -> bytes | Path | None:
        """Return None: the images are pixels from the start."""
        return None

    def label(self, index: int) -> Label:
        """Return the label of an image."""
        return self._source.label(index)

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order."""
        return self._source.labels()

    def describe(self, index: int) -> str:
        """Return what the source calls the image."""
        return self._source.describe(index)


@dataclass(frozen=True, repr=False)
class Robustness:
    """Accuracies on corrupted images.

    Attributes:
        data: the dataset's name.
        split: of it.
        images: that were corrupted.
        clean: accuracy without corruption, 0 to 1.
        accuracies: by corruption, at severities 1 to 5, 0 to 1.
    """

    data: str
    split: str
    images: int
    clean: float
    accuracies: Mapping[str, tuple[float, ...]]

    def __repr__(self) -> str:
        """Return the mean corruption accuracy in one line."""
        return f"Robustness: {self.lines()[0]}"

    @property
    def mean(self) -> float:
        """The mean corruption accuracy: over all corruptions and severities, 0 to 1."""
        return float(np.mean([list(row) for row in self.accuracies.values()]))

    def means(self) -> dict[str, float]:
        """Return the mean accuracy of each corruption over its severities, the lowest first."""
        means = {name: float(np.mean(row)) for name, row in self.accuracies.items()}
        return dict(sorted(means.items(), key=lambda item: item[1]))

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        low, high = wilson_interval(round(self.clean * self.images), self.images)
        worst = list(self.means())[:3]
        return (
            f"Mean corruption accuracy {self.mean:.2%}, against {self.clean:.2%} (95 % interval {low:.2%} to {high:.2%}) "
            f"without, of {self.images:,} {self.split} images.",
            f"It suffers most by {', '.join(worst[:-1])} and {worst[-1]}.",
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the accuracy by corruption and severity, the worst first."""
        rows = tuple(
            (name, *(f"{accuracy:.1%}" for accuracy in self.accuracies[name]), f"{mean:.1%}")
            for name, mean in self.means().items()
        )
        columns = ("Corruption", *(f"Severity {severity}" for severity in SEVERITIES), "Mean")
        note = (
            "Corruptions by the definitions of ImageNet-C, our own program: not comparable with published accuracies."
        )
        return (Table("By corruption, the worst first", columns, rows, note=note),)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**asdict(self), "mean": self.mean, "means": self.means()}


def robustness(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    split: str | None = None,
    images: int = MOST_IMAGES,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool = False,
    listener: Listener = show,
) -> Robustness:
    """Score a classifier on images with each of fifteen corruptions at five severities.

    The images are brought to the network's size first, and corrupted there; the noise is the same for every classifier.

    Args:
        classifier: itself, or whatever `load` takes.
        data: what `open_data` takes, or a dataset already open.
        split: "test", "validation" or "train"; None for the first of them that there is.
        images: at most so many, evenly spaced.
        classes: of nested folders, which one names the class; None for the one whose names the classifier knows.
        batch_size: images computed at once.
        workers: processes that decode and corrupt; 0 does that here.
        skip_bad_images: leave out images that cannot be read, instead of an error.
        listener: receives progress and warnings; they are written to the screen if left out.

    Raises:
        DataError: no such data or split, a class that the classifier does not know, or images without one class each.
    """
    if images < 1:
        raise DataError(f"At least one image must be corrupted, not {images}.")
    scored = as_classifier(classifier, listener)
    opened, split = open_split(
        data, [scored], split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
    )
    if opened.task != SINGLE_LABEL:
        raise DataError(
            f"Images of {opened.name} do not have one class each; corruptions are scored on such images alone."
        )
    columns = match_classes(opened, scored.class_names)
    open_test(scored, opened, split, "robustness", listener)
    whole = opened.splits[split]
    source = Renumbered(thinned(whole, min(images, len(whole))), columns)
    if len(source) < len(whole):
        listener(Message(f"{len(source):,} of the {len(whole):,} {split} images are corrupted, evenly spaced."))

    def accuracy(corruption: str, severity: int) -> float:
        return _accuracy(scored, Corrupted(source, scored.preprocessing, corruption, severity), batch_size, workers)

    clean = accuracy(CLEAN, 0)
    accuracies: dict[str, tuple[float, ...]] = {}
    for done, name in enumerate(CORRUPTIONS, 1):
        accuracies[name] = tuple(accuracy(name, severity) for severity in SEVERITIES)
        listener(Progress("corruptions", done, len(CORRUPTIONS), {"accuracy": float(np.mean(accuracies[name]))}))
    return Robustness(opened.name, split, len(source), clean, accuracies)


def _accuracy(classifier: Classifier, source: Source, batch_size: int, workers: int) -> float:
    """Return the accuracy on images that have the network's size already."""
    as_they_are = replace(classifier.preprocessing, resize="squash", crop_fraction=1.0)
    probabilities, labels = collect(
        classifier.probabilities,
        source,
        as_they_are,
        batch_size=batch_size,
        workers=workers,
        limit=None,
        purpose="evaluate",
        listener=ignore,
    )
    return float((probabilities.argmax(dim=1) == labels).double().mean())
