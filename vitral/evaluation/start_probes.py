"""Linear probes on the frozen features of starts: how accurate each is on the same images, what it costs, which to take."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.data.subset import spread_over
from vitral.evaluation.baselines import LEAST_TEST, SHARES, Describer, fewest, fit_units
from vitral.evaluation.comparison import LEVEL, mcnemar_exact
from vitral.evaluation.feature_engine import Context
from vitral.evaluation.heads import fit_head
from vitral.evaluation.probes import fit_probe
from vitral.events import Listener
from vitral.tasks.metrics import wilson_interval

TIMED_TRAINING = 8  # training images whose time is measured
TIMED_JUDGING = 4  # likewise of those that judge
ABOUT_AS_FAST = 1.25  # ratio of two measured times that says nothing


@dataclass(frozen=True, eq=False)
class Images:
    """The images that every start of a comparison sees.

    Attributes:
        judging: The images that judge it; None for the training images, each left out of the fit that judges it.
    """

    train: Source
    judging: Source | None
    classes: int

    @property
    def judged(self) -> int:
        """The number of images that judge."""
        return len(self.train if self.judging is None else self.judging)

    def thinned(self, train: int, judging: int) -> "Images":
        """Return fewer of them, evenly spaced: `train` and `judging` are the numbers of images."""
        fewer = None if self.judging is None else spread_over(self.judging, judging)
        return Images(spread_over(self.train, train), fewer, self.classes)


@dataclass(frozen=True, eq=False)
class Probed:
    """The linear probe of a start.

    Attributes:
        right: Whether each image that judges is classified right, in order.
        left_out: Where other images judge, whether each training image is classified right by the fit without it; empty if
            that would not be fair.
        image_seconds: Seconds for one training image, reading included.
        seconds: Seconds for everything: reading, features, fit.
    """

    right: Bool[Tensor, " images"]
    left_out: Bool[Tensor, " others"]
    image_seconds: float
    seconds: float

    @property
    def accuracy(self) -> float:
        """The share of images classified right, 0 to 1."""
        return float(self.right.double().mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of that share."""
        return wilson_interval(int(self.right.sum()), len(self.right))


def probe_start(
    classifier: Classifier, images: Images, listener: Listener, *, network: bool = True, context: Context = nullcontext
) -> Probed:
    """Fit a linear probe in closed form on a network's frozen features, and judge it.

    Training images are computed in `context`, those that judge as the network predicts, so that the accuracy is that of the
    first classifier of a run.

    Without `network` it is fitted on the images' pixels.

    Raises:
        ImageError: An image cannot be read.
        ModelError: The network gives no finite numbers.
    """
    began = time.perf_counter()
    train = Describer.of(classifier, network=network, context=context).describe(images.train, listener=listener)
    seconds_each = (time.perf_counter() - began) / len(train.labels)
    fit = fit_head if network else fit_probe
    probe = fit(train.values[0], train.labels, classes=images.classes)
    left_out = probe.left_out.argmax(dim=1) == train.labels
    if images.judging is None:
        return Probed(left_out, left_out[:0], seconds_each, time.perf_counter() - began)
    judged = Describer.of(classifier, network=network).describe(images.judging, listener=listener)
    right = probe.predict(judged.values[0]) == judged.labels
    return Probed(right, left_out, seconds_each, time.perf_counter() - began)


@dataclass(frozen=True)
class ProbeCost:
    """The seconds that a start takes on this machine, to load and for an image, and the features, on which the fit depends."""

    loading: float
    train_image: float
    judging_image: float
    features: int

    def seconds(self, train: int, judging: int, classes: int, unit: float) -> float:
        """Return the seconds for these numbers of images; `unit` is `unit_seconds`."""
        fit = fit_units(train, self.features, classes) * unit
        return self.loading + train * self.train_image + judging * self.judging_image + fit


def measure_cost(
    classifier: Classifier, images: Images, loading: float, *, network: bool = True, context: Context = nullcontext
) -> ProbeCost:
    """Measure what a start takes, on a few images; `loading` are the seconds that loading it took."""
    training = Describer.of(classifier, network=network, context=context)
    seconds, described = training.image_seconds(images.train, TIMED_TRAINING)
    judging = 0.0
    if images.judging is not None:
        judging, _ = Describer.of(classifier, network=network).image_seconds(images.judging, TIMED_JUDGING)
    return ProbeCost(loading, seconds, judging, described.values[0].shape[1])


def affordable(
    costs: Mapping[str, ProbeCost], train: int, judging: int, classes: int, *, seconds: float, unit: float
) -> tuple[tuple[int, int], list[str]]:
    """Return how many images all starts can see in a time, and the starts for which it is too short.

    All starts see the same images, as many as possible. If the time is too short even for the fewest images, the most expensive
    start is left out, and the next, until the others fit.

    `judging` is 0 if training images judge; `unit` is that of `ProbeCost.seconds`.

    Returns:
        The numbers of images to fit on and to judge by, and the names of the starts left out.
    """
    fewest_counts = fewest(train, classes), min(judging, LEAST_TEST)
    counts = [
        (max(fewest_counts[0], int(share * train)), max(fewest_counts[1], int(share * judging))) for share in SHARES
    ]
    counts = list(dict.fromkeys([*counts, fewest_counts]))
    fitting = sorted(costs, key=lambda name: costs[name].seconds(*fewest_counts, classes, unit))
    left_out: list[str] = []
    while fitting:
        for count in counts:
            if sum(costs[name].seconds(*count, classes, unit) for name in fitting) <= seconds:
                return count, left_out
        left_out.append(fitting.pop())
    return fewest_counts, left_out


def surely_better(first: Probed, second: Probed) -> bool:
    """Tell whether a start classifies more of the same images right than another, beyond chance.

    Only images that one of the two gets right tell them apart; by chance, each falls to either side alike (exact McNemar test,
    two-sided, 95 %). Training images count too, each judged by the fit without it: few validation images alone would leave
    nearly every comparison a tie.
    """
    fair = len(first.left_out) == len(second.left_out)
    ours, theirs = (torch.cat([each.right, each.left_out]) if fair else each.right for each in (first, second))
    wins, losses = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    return wins > losses and mcnemar_exact(wins, losses) < LEVEL


def decide(probed: Mapping[str, Probed]) -> tuple[str, tuple[str, ...]]:
    """Return the start to take: the most accurate, or of those that cannot be told from it the fastest.

    Of those that are about as fast, it is the most accurate again.

    Args:
        probed: The probes of the starts that may be taken, by name; of equals the earlier is preferred.

    Returns:
        The name of the start to take, and the names of those that cannot be told from the most accurate one, that one first.
        Empty without a start.
    """
    if not probed:
        return "", ()
    ranked = sorted(probed, key=lambda name: -probed[name].accuracy)
    tied = [name for name in ranked if not surely_better(probed[ranked[0]], probed[name])]
    fastest = min(probed[name].image_seconds for name in tied)
    best = next(name for name in tied if probed[name].image_seconds <= ABOUT_AS_FAST * fastest)
    return best, tuple(tied)
