"""What simple classifiers reach on a network's frozen features and on the bare pixels, within a time limit, without tuning.

What they look at, the features and the shrunk images, and how many there is time for, is computed here.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn import functional

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.loader import CLASS_NUMBERS, Encode
from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset, spread_over
from vitral.evaluation.evaluate import BATCH_SIZE
from vitral.evaluation.feature_engine import Context, feature_column
from vitral.evaluation.heads import fit_head
from vitral.evaluation.kept_features import KeptColumn, collect_kept, keep, missing_share, name_of
from vitral.evaluation.probes import (
    PENALTIES,
    Features,
    LinearProbe,
    fit_probe,
    fit_rebalanced,
    knn_accuracy,
    nearest_accuracy,
)
from vitral.events import Listener, ignore
from vitral.models.catalog import SHRUNK
from vitral.models.model import Images
from vitral.objectives.unequal import ClassWeights
from vitral.seeds import generator
from vitral.tasks.shown import photos_of

Labels = Int64[Tensor, " examples"]

PURPOSE = "read photos"  # as the listener hears of it
TIMED = 32  # images that say how long the others will take
KEPT = 0.01  # of an image's time that one takes at most whose features are kept
LONG = 1.0  # seconds for those, of which set-up would explain little
FEWEST = 30  # images to fit on, fewer than which are taken only where there are no more
SHARES = tuple(0.8**exponent for exponent in range(30))  # of the images, the largest for which there is time
UNIT_SIDE = 192  # rows and columns of the matrix whose decomposition is timed
MOST_TRAINING = 4000  # images for a baseline: more would hold up the training that it is to be compared with
MOST_TEST = 2000
SEED = 0  # by which images are drawn
LEAST_TEST = 30  # images, fewer than which say nothing


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
    """

    features: Features | None
    pixels: Features
    labels: Labels

    @property
    def values(self) -> tuple[Features, ...]:
        """What a linear model may be fitted on."""
        return (self.pixels,) if self.features is None else (self.features, self.pixels)


@dataclass(frozen=True, eq=False)
class Describer:
    """Describes images for simple classifiers, and tells how long that takes; what computes them is made once for both.

    Attributes:
        columns: What is computed of each image: the network's features, where they are wanted, then the pixels.
    """

    classifier: Classifier
    columns: Sequence[KeptColumn]

    @classmethod
    def of(cls, classifier: Classifier, *, network: bool = True, context: Context = nullcontext) -> "Describer":
        """Return what describes images, by the features as well if `network` says so; these are computed within the context."""
        pixels = KeptColumn(lambda source: _shrunk, name_of(classifier.preprocessing, SHRUNK))
        return cls(classifier, [feature_column(classifier, context), pixels] if network else [pixels])

    @property
    def network(self) -> bool:
        """Whether the network's features are computed."""
        return len(self.columns) > 1

    def describe(
        self,
        source: Source,
        *,
        columns: Sequence[KeptColumn] | None = None,
        batch_size: int = BATCH_SIZE,
        limit: int | None = None,
        listener: Listener = ignore,
    ) -> Described:
        """Return the shrunk pixels and the label of every image of a source, and in the same pass the network's features.

        `columns` are other ones to compute; `limit` is the number of images to take of an endless source, since a finite one is
        always taken whole.

        Raises:
            ImageError: An image cannot be read.
        """
        values, labels = collect_kept(
            self.columns if columns is None else columns,
            source,
            self.classifier.preprocessing,
            batch_size=batch_size,
            limit=limit,
            purpose=PURPOSE,
            listener=listener,
            encode=CLASS_NUMBERS,
        )
        return Described(values[0] if self.network else None, values[-1], labels)

    def image_seconds(self, source: Source, timed: int = TIMED) -> tuple[float, Described]:
        """Return the seconds that one image of a source takes, by its first `timed`, and what was learned of those.

        A first image is not timed: it has the engine made. The next pass pays for what is set up once for each size of a batch,
        ten times the images themselves; unless it takes long in any case, there is another, of the next images. Images whose
        features are kept take next to nothing, and those of the timed ones are kept.
        """
        share = max(KEPT, missing_share(self.columns, source))
        timing = [column.unkept(source) for column in self.columns]
        self.describe(Subset(source, [0]), columns=timing, batch_size=1)
        count, least, parts = min(timed, len(source)), math.inf, []
        for first in (0, count if 2 * count <= len(source) else 0):
            few = Subset(source, range(first, first + count))
            began = time.perf_counter()
            parts.append(self.describe(few, columns=timing, batch_size=count))
            least = min(least, time.perf_counter() - began)
            keep(self.columns, few, parts[-1].values)
            if distributed.broadcast(least > LONG):  # the processes share the images out, so that all go on or none
                break
        return share * least / count, parts[0]


def _shrunk(images: Images) -> Features:
    return functional.adaptive_avg_pool2d(images, SHRUNK).flatten(1)


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
    keep: bool = True,
) -> tuple[Features, Labels]:
    """Return the network's pooled representation and the label of every image of a source, in order.

    The arguments are those of `Describer.describe`, and of `collect`; `keep` says whether features may be kept and those that
    were kept before are taken, which a network that is being trained has no use for.

    Raises:
        Stopped: `stop` said so.
        ImageError: An image cannot be read.
    """
    values, labels = collect_kept(
        [feature_column(classifier, keep=keep)],
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
    return values[0], labels


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
        features = _listed({"k-nearest-neighbour": self.knn, "last layer alone": self.linear_probe})
        pixels = _listed({"nearest neighbour": self.pixel_neighbour, "linear model": self.pixel_linear})
        groups = {"the network's frozen features": features, "bare pixels": pixels}
        figures = "; ".join(f"on {where}: {listed}" for where, listed in groups.items() if listed)
        beaten = "all of them" if features else "that"
        photos = photos_of(self.split, self.num_test)
        return f"Simple classifiers, of {photos}: {figures}. Training should beat {beaten}."


def _listed(figures: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {figure:.1%}" for name, figure in figures.items() if figure is not None)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Training images as simple classifiers know them, with the linear models on their pixels and, if computed, features."""

    described: Described
    probe: LinearProbe | None
    pixel_probe: LinearProbe

    @classmethod
    def of(cls, described: Described, classes: int, weigh: ClassWeights = "none") -> "Fitted":
        """Fit what can be fitted on some training images; `weigh` is that of `fit_rebalanced`."""
        fit = partial(fit_rebalanced, labels=described.labels, classes=classes, weigh=weigh)
        features = described.features
        probe = None if features is None else fit(fit_head, features=features)
        return cls(described, probe, fit(fit_probe, features=described.pixels))


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

    Without `network` the features are worth nothing, and no image goes through it. `fitted` are the training images if they are
    known already; without features they serve only where none are wanted.

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
    describer = Describer.of(classifier, network=network, context=context)
    if seconds < math.inf:
        an_image, described = describer.image_seconds(train if fitted is None else test)
        fits = described.values if fitted is None else ()
        counts = distributed.broadcast(_affordable(an_image, fits, len(train), len(test), classes, stopwatch))
        if counts is None:
            return None
        train, test = (spread_over(source, count) for source, count in zip((train, test), counts, strict=True))
    if fitted is None:
        fitted = Fitted.of(describer.describe(train, listener=listener), classes)
    return _scored(fitted, describer.describe(test, listener=listener), split)


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
