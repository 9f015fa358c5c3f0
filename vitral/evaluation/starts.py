"""How good a start is for some images, by a linear probe on its frozen features, and which of several is worth taking."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.evaluation.baselines import LEAST_TEST
from vitral.evaluation.features import SHARES, Context, describe, fewest, fit_units, image_seconds, thinned
from vitral.evaluation.paired import LEVEL, mcnemar_exact
from vitral.evaluation.probes import fit_probe
from vitral.events import Listener
from vitral.tasks.metrics import wilson_interval

TIMED, TIMED_JUDGED = 8, 4  # images that say how long one takes, to learn from and to judge by
ABOUT_AS_FAST = 1.25  # ratio of two measured times that says nothing


@dataclass(frozen=True, eq=False)
class Images:
    """The images that every start of a comparison sees.

    Attributes:
        train: to fit on.
        judging: to judge by; None for the training images, each left out of the fit that judges it.
        classes: how many there are.
    """

    train: Source
    judging: Source | None
    classes: int

    @property
    def judged(self) -> int:
        """How many images judge."""
        return len(self.train if self.judging is None else self.judging)

    def thinned(self, train: int, judging: int) -> "Images":
        """Return so many of them, evenly spaced."""
        judges = None if self.judging is None else thinned(self.judging, judging)
        return Images(thinned(self.train, train), judges, self.classes)


@dataclass(frozen=True, eq=False)
class Probed:
    """What a linear probe makes of a start.

    Attributes:
        right: which of the images that judge it gets right, in their order.
        left_out: which of the training images it gets right that are judged by the fit without them, where others judge it;
            empty where that would not be fair.
        image_seconds: that one training image takes, reading it included.
        seconds: of everything: reading, features, fit.
    """

    right: Bool[Tensor, " images"]
    left_out: Bool[Tensor, " others"]
    image_seconds: float
    seconds: float

    @property
    def accuracy(self) -> float:
        """The share that is right, 0 to 1."""
        return float(self.right.double().mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of that share."""
        return wilson_interval(int(self.right.sum()), len(self.right))


def probe_start(
    classifier: Classifier, images: Images, listener: Listener, *, network: bool = True, context: Context = nullcontext
) -> Probed:
    """Return what a linear probe in closed form makes of a network's frozen features.

    The training images go through the network in `context`, those that judge as it predicts: as with the first classifier of
    a run, whose figure this is.

    Args:
        classifier: the network with its preprocessing.
        images: to fit on and to judge by.
        listener: receives progress.
        network: whether its features are meant; if not, the images' pixels.
        context: in which training images are computed.

    Raises:
        ImageError: an image cannot be read.
        ModelError: the network gives no finite numbers.
    """
    began = time.perf_counter()
    train = describe(classifier, images.train, network=network, context=context, listener=listener)
    an_image = (time.perf_counter() - began) / len(train.labels)
    probe = fit_probe(train.values[0], train.labels, classes=images.classes)
    left_out = probe.left_out.argmax(dim=1) == train.labels
    if images.judging is None:
        return Probed(left_out, left_out[:0], an_image, time.perf_counter() - began)
    judged = describe(classifier, images.judging, network=network, listener=listener)
    right = probe.predict(judged.values[0]) == judged.labels
    return Probed(right, left_out, an_image, time.perf_counter() - began)


@dataclass(frozen=True)
class Cost:
    """What a start takes on this machine, in seconds.

    Attributes:
        loading: to load it.
        train_image: a training image.
        judging_image: an image to judge by.
        features: a row's values, on which the fit's time depends.
    """

    loading: float
    train_image: float
    judging_image: float
    features: int

    def seconds(self, train: int, judging: int, classes: int, unit: float) -> float:
        """Return what so many images take; `unit` is `unit_seconds`."""
        fit = fit_units(train, self.features, classes) * unit
        return self.loading + train * self.train_image + judging * self.judging_image + fit


def measure_cost(
    classifier: Classifier, images: Images, loading: float, *, network: bool = True, context: Context = nullcontext
) -> Cost:
    """Return what a start takes, by a few images."""
    see = partial(image_seconds, classifier, network=network)
    an_image, described = see(images.train, context=context, timed=TIMED)
    judging = 0.0 if images.judging is None else see(images.judging, timed=TIMED_JUDGED)[0]
    return Cost(loading, an_image, judging, described.values[0].shape[1])


def affordable(
    costs: Mapping[str, Cost], train: int, judging: int, classes: int, *, seconds: float, unit: float
) -> tuple[tuple[int, int], list[str]]:
    """Return how many images of both kinds all starts can see in some time, and which starts it has no room for.

    There are as many images as possible for all of them; where not even the fewest can be had, the dearest start is left out,
    and the next, until the others fit.

    Args:
        costs: of the starts, by name.
        train: images to fit on.
        judging: images to judge by; 0 where training images do that.
        classes: how many there are.
        seconds: that there are for all starts together.
        unit: see `Cost.seconds`.
    """
    counts = _counts(train, judging, classes)
    smallest = counts[-1]
    kept = sorted(costs, key=lambda name: costs[name].seconds(*smallest, classes, unit))
    left_out: list[str] = []
    while kept:
        for count in counts:
            if sum(costs[name].seconds(*count, classes, unit) for name in kept) <= seconds:
                return count, left_out
        left_out.append(kept.pop())
    return smallest, left_out


def _counts(train: int, judging: int, classes: int) -> list[tuple[int, int]]:
    """Return how many training images and images that judge there may be, all of them first and the fewest last."""
    least = fewest(train, classes), min(judging, LEAST_TEST)
    shares = ((max(least[0], int(share * train)), max(least[1], int(share * judging))) for share in SHARES)
    return list(dict.fromkeys([*shares, least]))


def surely_better(one: Probed, other: Probed) -> bool:
    """Tell whether one start gets more of the same images right than another, and not by chance.

    Only the images that one of them alone gets right tell them apart; by chance each of these would fall to either side alike
    (the exact sign test, which is McNemar's; two-sided, 95 %). Training images count too, each judged by the fit without it:
    few validation images alone would call nearly everything a tie.
    """
    fair = len(one.left_out) == len(other.left_out)
    ours, others = (torch.cat([each.right, each.left_out]) if fair else each.right for each in (one, other))
    mine, theirs = int((ours & ~others).sum()), int((others & ~ours).sum())
    return mine > theirs and mcnemar_exact(mine, theirs) < LEVEL


@dataclass(frozen=True)
class Decision:
    """Which start to take.

    Attributes:
        best: the one to take.
        tied: those that cannot be told from the most accurate one, that one first, `best` among them.
    """

    best: str
    tied: tuple[str, ...]


def decide(probed: Mapping[str, Probed]) -> Decision | None:
    """Return the start to take: the most accurate one, or, of those that cannot be told from it, the fastest.

    Of those that are about as fast, it is the most accurate again.

    Args:
        probed: the starts that may be taken, by name, in the order in which equals are preferred.
    """
    if not probed:
        return None
    ranked = sorted(probed, key=lambda name: -probed[name].accuracy)
    top = probed[ranked[0]]
    tied = [name for name in ranked if not surely_better(top, probed[name])]
    least = min(probed[name].image_seconds for name in tied)
    fast: Sequence[str] = [name for name in tied if probed[name].image_seconds <= ABOUT_AS_FAST * least]
    return Decision(fast[0], tuple(tied))
