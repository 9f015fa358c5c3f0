"""What simple classifiers reach: on a network's frozen features and on the bare pixels, within a time limit, without tuning."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet
from vitral.data.subset import spread_over
from vitral.evaluation.features import (
    SHARES,
    Context,
    Described,
    Stopwatch,
    describe,
    fit_units,
    image_seconds,
    sample,
    unit_seconds,
)
from vitral.evaluation.probes import Features, LinearProbe, fit_probe, knn_accuracy, nearest_accuracy
from vitral.events import Listener, ignore

MOST_TRAINING = 4000  # images for a baseline: more would hold up the training that it is to be compared with
MOST_TEST = 2000
SEED = 0  # by which images are drawn
LEAST_TEST = 30  # images, fewer than which say nothing


@dataclass(frozen=True)
class Baselines:
    """What simple classifiers reach on the frozen features, and on the bare pixels: a trained network should beat all.

    Attributes:
        knn: The accuracy of the nearest neighbours, 0 to 1; None where the features are random, because they say nothing.
        linear_probe: The accuracy of the linear probe, 0 to 1; None where the features are random.
        pixel_neighbour: The accuracy of the nearest neighbour among the images, shrunk to 16 pixels; None if unknown.
        pixel_linear: The accuracy of a linear model on the shrunk images; None if unknown.
    """

    knn: float | None
    linear_probe: float | None
    split: str
    num_train: int
    num_test: int
    pixel_neighbour: float | None = None
    pixel_linear: float | None = None

    @property
    def on_features(self) -> float | None:
        """The best on the frozen features; None where there is none."""
        return max((figure for figure in (self.knn, self.linear_probe) if figure is not None), default=None)

    @property
    def on_pixels(self) -> float | None:
        """The best on the bare pixels; None where there is none."""
        return max((figure for figure in (self.pixel_neighbour, self.pixel_linear) if figure is not None), default=None)

    def sentence(self) -> str:
        """Return the figures, and what they are for, in one line."""
        features = _listed({"k-nearest-neighbour": self.knn, "linear probe": self.linear_probe})
        pixels = _listed({"nearest neighbour": self.pixel_neighbour, "linear model": self.pixel_linear})
        groups = {"the network's frozen features": features, "bare pixels": pixels}
        figures = "; ".join(f"on {where}: {listed}" for where, listed in groups.items() if listed)
        beaten = "all of them" if features else "that"
        return f"Before training, {figures}, of {self.num_test:,} {self.split} images. Training should beat {beaten}."


def _listed(figures: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {figure:.1%}" for name, figure in figures.items() if figure is not None)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Training images as simple classifiers know them, with the linear models fitted on them.

    Attributes:
        described: The images.
        probe: The linear probe on the network's features; None where they were not computed.
        pixel_probe: The linear model on the shrunk pixels.
    """

    described: Described
    probe: LinearProbe | None
    pixel_probe: LinearProbe

    @classmethod
    def of(cls, described: Described, classes: int) -> "Fitted":
        """Fit what can be fitted on some training images."""
        labels = described.labels
        features, pixels = described.features, described.pixels
        probe = None if features is None else fit_probe(features, labels, classes=classes)
        return cls(described, probe, fit_probe(pixels, labels, classes=classes))


def score_baselines(
    classifier: Classifier,
    data: DataSet,
    *,
    network: bool = True,
    context: Context = nullcontext,
    seconds: float = math.inf,
    fitted: Fitted | None = None,
    listener: Listener = ignore,
) -> Baselines | None:
    """Score simple classifiers on the network's features as they are, and on the images' pixels.

    Of a network of random weights the linear model on pixels alone is worth telling: it is what a run can deliver instead.

    At most 4,000 training images and 2,000 test images are used, drawn by a fixed seed: on the test split where there
    is one, so that the figures stand next to the fine-tuned network's, else on the validation split. If they would take
    longer than `seconds`, by the time that the first images take, there are fewer of both.

    Args:
        classifier: The network with its preprocessing.
        data: The data that it is to learn.
        network: Whether the features are worth anything; if not, no image goes through the network.
        context: The context in which the network computes.
        seconds: The time that it may take.
        fitted: The training images if they are known already; without features they serve only where none are wanted.
        listener: The receiver of progress.

    Returns:
        The figures; None if there is no time for enough images to mean something.

    Raises:
        ImageError: An image cannot be read.
    """
    stopwatch = Stopwatch(seconds)
    split, classes = data.scored_split(), len(data.class_names)
    if fitted is not None and network and fitted.probe is None:
        fitted = None
    train = sample(data.splits["train"], MOST_TRAINING, seed=SEED, purpose="baseline training images")
    test = sample(data.splits[split], MOST_TEST, seed=SEED, purpose="baseline test images")
    look = partial(describe, classifier, network=network, context=context, listener=listener)
    if seconds < math.inf:
        an_image, described = image_seconds(
            classifier, train if fitted is None else test, network=network, context=context
        )
        fits = described.values if fitted is None else ()
        counts = distributed.broadcast(_affordable(an_image, fits, len(train), len(test), classes, stopwatch))
        if counts is None:
            return None
        train, test = (spread_over(source, count) for source, count in zip((train, test), counts, strict=True))
    if fitted is None:
        fitted = Fitted.of(look(train), classes)
    return _scored(fitted, look(test), split)


def _scored(fitted: Fitted, test: Described, split: str) -> Baselines:
    train, probe = fitted.described, fitted.probe
    linear = fitted.pixel_probe.accuracy(test.pixels, test.labels)
    simplest = Baselines(None, None, split, len(train.labels), len(test.labels), pixel_linear=linear)
    if train.features is None or test.features is None or probe is None:
        return simplest
    return replace(
        simplest,
        knn=knn_accuracy(train.features, train.labels, test.features, test.labels),
        linear_probe=probe.accuracy(test.features, test.labels),
        pixel_neighbour=nearest_accuracy(train.pixels, train.labels, test.pixels, test.labels),
    )


def _affordable(
    an_image: float, fits: Sequence[Features], train: int, test: int, classes: int, stopwatch: Stopwatch
) -> tuple[int, int] | None:
    """Return how many training and test images there is time for; None where they would be too few.

    `an_image` is the seconds that an image takes. `fits` are values such as linear models are fitted on; none where these are
    fitted, and no training image is needed.
    """
    if stopwatch.left() < (LEAST_TEST + (classes if fits else 0)) * an_image:
        return None
    unit = unit_seconds() if fits else 0.0
    for share in SHARES:
        here = int(share * train) if fits else 0
        there = min(test, max(LEAST_TEST, int(share * test)))
        fitting = sum(fit_units(here, values.shape[1], classes) for values in fits) * unit
        if (here + there) * an_image + fitting <= stopwatch.left():
            return (here, there) if share == 1.0 or not fits or here >= classes else None
    return None
