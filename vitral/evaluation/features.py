"""What simple classifiers look at: the network's frozen features and the shrunk images, and how many there is time for."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.loader import CLASS_NUMBERS, Encode
from vitral.data.source import Source
from vitral.data.subset import Subset
from vitral.evaluation.evaluate import BATCH_SIZE
from vitral.evaluation.probes import PENALTIES, Features
from vitral.events import Listener, ignore
from vitral.inference.batching import collect
from vitral.models.catalog import SHRUNK
from vitral.models.model import Images
from vitral.seeds import generator

Labels = Int64[Tensor, " examples"]
Context = Callable[[], AbstractContextManager[object]]  # in which a network computes, such as autocast to bfloat16

PURPOSE = "extract features"  # as the listener hears of it
TIMED = 32  # images that say how long the others will take
LONG = 1.0  # seconds for those, of which set-up would explain little
FEWEST = 30  # images to fit on, fewer than which are taken only where there are no more
SHARES = tuple(0.8**exponent for exponent in range(30))  # of the images, the largest for which there is time
UNIT_SIDE = 192  # rows and columns of the matrix whose decomposition is timed


class Stopwatch:
    """Says how much of some seconds is left."""

    def __init__(self, seconds: float) -> None:
        self.ends = time.perf_counter() + seconds

    def left(self) -> float:
        """Return the seconds that are left; below 0 where they are over."""
        return self.ends - time.perf_counter()


@dataclass(frozen=True, eq=False)
class Described:
    """What simple classifiers know of the images of a source, one row an image, in order.

    Attributes:
        features: The network's pooled representations; None where they were not computed.
        pixels: The prepared images, shrunk to 16 pixels, as one row each.
        labels: The classes of the images.
    """

    features: Features | None
    pixels: Features
    labels: Labels

    @property
    def values(self) -> tuple[Features, ...]:
        """What a linear model may be fitted on."""
        return (self.pixels,) if self.features is None else (self.features, self.pixels)


def describe(
    classifier: Classifier,
    source: Source,
    *,
    network: bool = True,
    context: Context = nullcontext,
    batch_size: int = BATCH_SIZE,
    limit: int | None = None,
    listener: Listener = ignore,
) -> Described:
    """Return the shrunk pixels and the label of every image of a source, and in the same pass the network's features.

    Args:
        classifier: The network with its preprocessing.
        source: The images and their labels.
        network: Whether to compute the features.
        context: The context in which the network computes them.
        batch_size: The number of images computed at once.
        limit: The number of images to take of an endless source; a finite one is always taken whole.
        listener: The receiver of progress.

    Raises:
        ImageError: An image cannot be read.
    """
    pixels = 3 * SHRUNK**2

    def compute(images: Images) -> Float[Tensor, "batch values"]:
        shrunk = functional.adaptive_avg_pool2d(images, SHRUNK).flatten(1)
        if not network:
            return shrunk
        with context():
            features = classifier.predictor.features(images)
        return torch.cat([features, shrunk], dim=1)

    values, labels = collect(
        compute,
        source,
        classifier.preprocessing,
        batch_size=batch_size,
        limit=limit,
        purpose=PURPOSE,
        listener=listener,
    )
    return Described(values[:, :-pixels] if network else None, values[:, -pixels:], labels)


def extract_features(
    classifier: Classifier,
    source: Source,
    *,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    limit: int | None = None,
    listener: Listener = ignore,
    encode: Encode = CLASS_NUMBERS,
    stop: Callable[[], bool] | None = None,
) -> tuple[Features, Labels]:
    """Return the network's pooled representation and the label of every image of a source, in order.

    The arguments are those of `describe`, and of `collect`.

    Raises:
        Stopped: `stop` said so.
        ImageError: An image cannot be read.
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
        encode=encode,
        stop=stop,
    )


def image_seconds(
    classifier: Classifier, source: Source, *, network: bool = True, context: Context = nullcontext, timed: int = TIMED
) -> tuple[float, Described]:
    """Return the seconds that one image takes, by the first `timed` of a source, and what was learned of those.

    The first time pays for what is set up once for each size of a batch, ten times the images themselves; unless it takes long
    in any case, there is a second.
    """
    few = Subset(source, range(min(timed, len(source))))
    least = math.inf
    for _ in range(2):
        began = time.perf_counter()
        described = describe(classifier, few, network=network, context=context, batch_size=len(few))
        least = min(least, time.perf_counter() - began)
        if distributed.broadcast(least > LONG):  # the processes share the images out, so that all go on or none
            break
    return least / len(few), described


def fit_units(images: int, features: int, classes: int) -> float:
    """Return what the fit of a linear probe costs: its decomposition, and its products for every penalty, which go faster."""
    return images * min(images, features) * (features + 0.1 * len(PENALTIES) * (classes + 1))


def unit_seconds() -> float:
    """Return the seconds of a unit, by a small decomposition."""
    values = torch.from_numpy(generator(0, "timing").standard_normal((UNIT_SIDE, UNIT_SIDE)))
    before = time.perf_counter()
    torch.linalg.svd(values, full_matrices=False)
    return (time.perf_counter() - before) / UNIT_SIDE**3


def sample(source: Source, most: int, *, seed: int, purpose: str) -> Source:
    """Return a source, or so many of its images, drawn by the seed; of an endless one the first."""
    if source.endless:
        return Subset(source, range(min(most, len(source))))
    if len(source) <= most:
        return source
    indices = generator(seed, purpose).choice(len(source), size=most, replace=False)
    return Subset(source, sorted(indices.tolist()))


def fewest(images: int, classes: int) -> int:
    """Return the least of so many images that a probe is fitted on."""
    return min(images, max(FEWEST, classes))
