"""How a classifier bears worse images than it knows: fifteen corruptions at five severities, on one's own images."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitral.classifier.classifier import Classifier
from vitral.data.classes import Reading
from vitral.data.source import DataSet
from vitral.data.subset import Redrawn, spread_over
from vitral.errors import DataError
from vitral.evaluation.evaluate import BATCH_SIZE, predict_right
from vitral.evaluation.opening import open_for, open_test
from vitral.events import Listener, Message, Progress, show
from vitral.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from vitral.images.decode import Pixels
from vitral.images.preprocessing import Preprocessing
from vitral.seeds import generator
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.shown import Presentable, Table, photos_of, range_text

MOST_IMAGES = 500  # that are corrupted: each is computed 76 times
SEED = 0  # the same noise for every classifier
# The errors of AlexNet by corruption, means over the severities, on the authors' images of ImageNet's validation split
# (hendrycks/robustness), by which the mean corruption error is normalised (arXiv 1903.12261, section 4.1).
ALEXNET = {
    "gaussian noise": 0.886428,
    "shot noise": 0.894468,
    "impulse noise": 0.922640,
    "defocus blur": 0.819880,
    "glass blur": 0.826268,
    "motion blur": 0.785948,
    "zoom blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg compression": 0.606500,
}
CLEAN = "none"


@dataclass(frozen=True)
class Corruption:
    """Brings images to a network's size by its preprocessing, and corrupts them there; severities are 1 to 5."""

    preprocessing: Preprocessing
    name: str
    severity: int

    def __call__(self, image: Pixels, index: int) -> Pixels:
        """Return an image at the network's size, corrupted; the noise is that of its index."""
        fitted = self.preprocessing.fit(image)
        pixels = np.ascontiguousarray(fitted.permute(1, 2, 0).round().numpy().astype(np.uint8))
        if self.name == CLEAN:
            return pixels
        rng = generator(SEED, f"corrupt by {self.name}", self.severity, index)
        return corrupt(pixels, self.name, self.severity, rng)


@dataclass(frozen=True, repr=False)
class Robustness(Presentable):
    """Accuracies on corrupted images.

    Attributes:
        clean: The accuracy without corruption, 0 to 1.
        accuracies: The accuracies by corruption, at severities 1 to 5, 0 to 1.
    """

    data: str
    split: str
    images: int
    clean: float
    accuracies: Mapping[str, tuple[float, ...]]

    @property
    def mean(self) -> float:
        """The mean corruption accuracy: over all corruptions and severities, 0 to 1."""
        return float(np.mean([list(row) for row in self.accuracies.values()]))

    def corruption_errors(self) -> dict[str, float]:
        """Return the error on each corruption over AlexNet's on ImageNet-C, the paper's CE; 1 where they are equal."""
        return {name: (1 - float(np.mean(row))) / ALEXNET[name] for name, row in self.accuracies.items()}

    @property
    def mce(self) -> float:
        """The paper's mCE: the mean of the corruption errors, of which AlexNet has 1 on ImageNet-C."""
        return float(np.mean(list(self.corruption_errors().values())))

    def means(self) -> dict[str, float]:
        """Return the mean accuracy of each corruption over its severities, the lowest first."""
        means = {name: float(np.mean(row)) for name, row in self.accuracies.items()}
        return dict(sorted(means.items(), key=lambda item: item[1]))

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        interval = range_text(wilson_interval(round(self.clean * self.images), self.images))
        worst = list(self.means())[:3]
        return (
            f"Mean corruption accuracy {self.mean:.2%}, against {self.clean:.2%} (95% interval {interval}) without, "
            f"of {photos_of(self.split, self.images)}.",
            f"mCE {self.mce:.1%}: errors over AlexNet's on ImageNet-C, by corruption, in the mean.",
            f"It suffers most from {', '.join(worst[:-1])} and {worst[-1]}.",
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the accuracy by corruption and severity, the worst first."""
        errors = self.corruption_errors()
        rows = tuple(
            (name, *(f"{accuracy:.1%}" for accuracy in self.accuracies[name]), f"{mean:.1%}", f"{errors[name]:.1%}")
            for name, mean in self.means().items()
        )
        columns = ("Corruption", *(f"Severity {severity}" for severity in SEVERITIES), "Mean", "CE")
        note = (
            "Corruptions by the definitions of ImageNet-C, our own program: not comparable with published accuracies. CE is "
            "the error over AlexNet's on ImageNet-C; of other images than ImageNet's it says how corruptions compare."
        )
        return (Table("By corruption, the worst first", columns, rows, note=note),)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            **super().to_json(),
            "mean": self.mean,
            "means": self.means(),
            "mce": self.mce,
            "corruption_errors": self.corruption_errors(),
        }


def robustness(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    split: str | None = None,
    images: int = MOST_IMAGES,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> Robustness:
    """Score a classifier on images with each of fifteen corruptions at five severities.

    The images are brought to the network's size first, and corrupted there; the noise is the same for every classifier.

    Args:
        classifier: The classifier itself, or whatever `load` takes.
        data: A dataset that is open, or what `open_data` takes.
        split: "test", "validation" or "train"; None for the first of them that there is.
        images: The number of images at most, evenly spaced.
        classes: The folder that names the class where folders are nested; None for the one that has the classifier's names.
        batch_size: The number of images computed at once.
        workers: The number of processes that decode and corrupt; 0 does that here.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and warnings; they are written to the screen by default.

    Raises:
        DataError: No such data or split, a class that the classifier does not know, or images without one class each.
    """
    if images < 1:
        raise DataError(f"At least one image must be corrupted, not {images}.")
    opened = open_for(
        classifier, data, split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
    )
    scored, whole = opened.classifier, opened.source
    open_test(scored, opened.data, opened.split, "robustness", listener)
    source = spread_over(whole, images)
    if len(source) < len(whole):
        listener(Message(f"{len(source):,} of the {photos_of(opened.split, len(whole))} are corrupted, evenly spaced."))
    as_they_are = replace(scored.preprocessing, resize="squash", crop_fraction=1.0)  # of the network's size already

    def accuracy(corruption: str, severity: int) -> float:
        corrupted = Redrawn(source, Corruption(scored.preprocessing, corruption, severity))
        right = predict_right(scored, corrupted, preprocessing=as_they_are, batch_size=batch_size, workers=workers)
        return float(right.mean())

    clean = accuracy(CLEAN, 0)
    accuracies: dict[str, tuple[float, ...]] = {}
    for done, name in enumerate(CORRUPTIONS, 1):
        accuracies[name] = tuple(accuracy(name, severity) for severity in SEVERITIES)
        listener(Progress("corruptions", done, len(CORRUPTIONS), {"accuracy": float(np.mean(accuracies[name]))}))
    return Robustness(opened.data.name, opened.split, len(source), clean, accuracies)
