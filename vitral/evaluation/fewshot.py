"""What frozen features are worth: simple classifiers on them and on the raw pixels, within a time limit, without tuning."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset
from vitral.evaluation.evaluate import BATCH_SIZE
from vitral.evaluation.probes import PENALTIES, Features, knn_accuracy, linear_probe_accuracy, nearest_accuracy
from vitral.events import Listener, ignore
from vitral.inference.batching import collect
from vitral.models.model import Images
from vitral.seeds import generator

Labels = Int64[Tensor, " examples"]

PURPOSE = "extract features"  # as the listener hears of it
MOST_TRAINING = 4000  # images for a baseline: more would hold up the training that it is to be compared with
MOST_TEST = 2000
PIXELS = 16  # to which an image is shrunk, height and width, where the bare pixels are looked at
WARMING, TIMED = 2, 32  # images that say how long the others will take
LEAST_TEST = 30  # images, fewer than which say nothing
SHARES = tuple(0.8**exponent for exponent in range(30))  # of the images, the largest for which there is time
UNIT_SIDE = 192  # rows and columns of the matrix whose decomposition is timed


@dataclass(frozen=True)
class Baselines:
    """What simple classifiers reach on the frozen features, and on the bare pixels: a fine-tuned network should beat all.

    Attributes:
        knn: accuracy of the nearest neighbours, 0 to 1.
        linear_probe: accuracy of the linear probe, 0 to 1.
        split: where they were scored.
        num_train: training images used.
        num_test: images scored.
        pixel_neighbour: accuracy of the nearest neighbour among the images themselves, shrunk to 16 pixels; None if unknown.
        pixel_linear: accuracy of a linear model on them; None if unknown.
    """

    knn: float
    linear_probe: float
    split: str
    num_train: int
    num_test: int
    pixel_neighbour: float | None = None
    pixel_linear: float | None = None

    def sentence(self) -> str:
        """Return the figures in one sentence."""
        pixels = ""
        if self.pixel_neighbour is not None and self.pixel_linear is not None:
            pixels = (
                f"; on bare pixels: nearest neighbour {self.pixel_neighbour:.1%}, linear model {self.pixel_linear:.1%}"
            )
        return (
            f"Before training, on the network's frozen features: k-nearest-neighbour {self.knn:.1%}, "
            f"linear probe {self.linear_probe:.1%}{pixels}, of {self.num_test} {self.split} images."
        )


def score_baselines(
    classifier: Classifier,
    data: DataSet,
    *,
    seed: int = 0,
    batch_size: int = BATCH_SIZE,
    seconds: float = math.inf,
    listener: Listener = ignore,
) -> Baselines | None:
    """Score simple classifiers on the network's features as they are, and on the images' pixels.

    At most 4,000 training images and 2,000 test images are used, drawn by `seed`: on the test split where there
    is one, so that the figures stand next to the fine-tuned network's, else on the validation split. If they would take
    longer than `seconds`, by the time that the first images take, there are fewer of both.

    Returns:
        The figures; None if there is no time for enough images to mean something.

    Raises:
        ImageError: an image cannot be read.
    """
    stopwatch = _Stopwatch(seconds)
    split = data.scored_split()
    train = _sample(data.splits["train"], MOST_TRAINING, seed=seed, purpose="baseline training images")
    test = _sample(data.splits[split], MOST_TEST, seed=seed, purpose="baseline test images")
    if seconds < math.inf:
        counts = distributed.broadcast(_affordable(classifier, train, test, stopwatch, len(data.class_names)))
        if counts is None:
            return None
        train, test = (_thinned(source, count) for source, count in zip((train, test), counts, strict=True))
    parts = [_described(classifier, source, batch_size=batch_size, listener=listener) for source in (train, test)]
    (features, pixels, labels), (test_features, test_pixels, test_labels) = parts
    return Baselines(
        knn=knn_accuracy(features, labels, test_features, test_labels),
        linear_probe=linear_probe_accuracy(features, labels, test_features, test_labels),
        split=split,
        num_train=len(train),
        num_test=len(test),
        pixel_neighbour=nearest_accuracy(pixels, labels, test_pixels, test_labels),
        pixel_linear=linear_probe_accuracy(pixels, labels, test_pixels, test_labels),
    )


class _Stopwatch:
    def __init__(self, seconds: float) -> None:
        self.ends = time.perf_counter() + seconds

    def left(self) -> float:
        return self.ends - time.perf_counter()


def _affordable(
    classifier: Classifier, train: Source, test: Source, stopwatch: _Stopwatch, classes: int
) -> tuple[int, int] | None:
    """Return how many images of each there is time for, by what the first take; None where they would be too few."""
    few = Subset(train, range(min(WARMING, len(train))))
    _described(classifier, few, batch_size=len(few))  # the first allocate, and say little
    some = Subset(train, range(min(TIMED, len(train))))
    before = stopwatch.left()
    features, pixels, _ = _described(classifier, some, batch_size=len(some))
    an_image = (before - stopwatch.left()) / len(some)
    if stopwatch.left() < (LEAST_TEST + classes) * an_image:
        return None
    unit = _unit_seconds()
    for share in SHARES:
        here = int(share * len(train))
        there = min(len(test), max(LEAST_TEST, int(share * len(test))))
        fitting = sum(_units(here, values.shape[1], classes) for values in (features, pixels)) * unit
        if (here + there) * an_image + fitting <= stopwatch.left():
            return (here, there) if share == 1.0 or here >= classes else None
    return None


def _units(images: int, features: int, classes: int) -> float:
    """Return what the fit of a linear probe costs: its decomposition, and its products for every penalty, which go faster."""
    return images * min(images, features) * (features + 0.1 * len(PENALTIES) * (classes + 1))


def _unit_seconds() -> float:
    """Return the seconds of a unit, by a small decomposition."""
    values = torch.from_numpy(generator(0, "timing").standard_normal((UNIT_SIDE, UNIT_SIDE)))
    before = time.perf_counter()
    torch.linalg.svd(values, full_matrices=False)
    return (time.perf_counter() - before) / UNIT_SIDE**3


def _thinned(source: Source, count: int) -> Source:
    return source if count == len(source) else Subset(source, np.linspace(0, len(source) - 1, count).astype(int))


def _described(
    classifier: Classifier, source: Source, *, batch_size: int, listener: Listener = ignore
) -> tuple[Features, Features, Labels]:
    """Return the network's features, the shrunk pixels and the label of every image of a source."""
    pixels = 3 * PIXELS**2

    def compute(images: Images) -> Float[Tensor, "batch values"]:
        shrunk = functional.adaptive_avg_pool2d(images, PIXELS).flatten(1)
        return torch.cat([classifier.predictor.features(images), shrunk], dim=1)

    values, labels = collect(
        compute,
        source,
        classifier.preprocessing,
        batch_size=batch_size,
        workers=0,
        limit=None,
        purpose=PURPOSE,
        listener=listener,
    )
    return values[:, :-pixels], values[:, -pixels:], labels


def extract_features(
    classifier: Classifier,
    source: Source,
    *,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    limit: int | None = None,
    listener: Listener = ignore,
) -> tuple[Features, Labels]:
    """Return the network's pooled representation and the label of every image of a source, in order.

    Args:
        classifier: the network with its preprocessing.
        source: images and labels.
        batch_size: images computed at once.
        workers: processes that decode; 0 decodes here.
        limit: images to take of an endless source; a finite one is always taken whole.
        listener: receives progress.

    Raises:
        ImageError: an image cannot be read.
    """
    return collect(
        classifier.predictor.features,
        source,
        classifier.preprocessing,
        batch_size=batch_size,
        workers=workers,
        limit=limit,
        purpose=PURPOSE,
        listener=listener,
    )


def _sample(source: Source, most: int, *, seed: int, purpose: str) -> Source:
    if source.endless:
        return Subset(source, range(min(most, len(source))))
    if len(source) <= most:
        return source
    indices = generator(seed, purpose).choice(len(source), size=most, replace=False)
    return Subset(source, sorted(indices.tolist()))
