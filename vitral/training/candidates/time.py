"""How many images the first classifier is fitted on, by the time that there is."""

import math
from dataclasses import dataclass
from functools import partial

from vitral import distributed
from vitral.data.source import Source
from vitral.evaluation.features import SHARES, Stopwatch, fewest, fit_units, image_seconds, thinned, unit_seconds
from vitral.training.optimization.precision import autocast, training_device
from vitral.training.planning.plan import Run

FEW = 4  # images that say how long one takes to judge by


@dataclass(frozen=True, eq=False)
class Affordable:
    """What there is time for.

    Attributes:
        train: images to fit on.
        network: whether they go through the network, or are looked at as pixels only.
    """

    train: Source
    network: bool


def affordable(run: Run, train: Source, seconds: float, *, others: int, trained: bool) -> Affordable | None:
    """Return what there is time for: the network's features if they are worth anything, else the pixels; None for neither.

    Args:
        run: what was asked, decided and read.
        train: all images to fit on.
        seconds: that there are; infinite for all of it.
        others: images that are to be put through the classifier in the same time.
        trained: whether the network comes with trained weights.
    """
    if seconds == math.inf:
        return Affordable(train, trained)
    stopwatch = Stopwatch(seconds)
    for network in (True, False) if trained else (False,):
        count = distributed.broadcast(_count(run, train, stopwatch, others, network=network))
        if count is not None:
            return Affordable(thinned(train, count), network)
    return None


def least(run: Run, train: Source) -> Affordable:
    """Return the least that a classifier is fitted on: the pixels of so few images that they hardly take any time."""
    return Affordable(thinned(train, fewest(len(train), len(run.data.class_names))), network=False)


def _count(run: Run, train: Source, stopwatch: Stopwatch, others: int, *, network: bool) -> int | None:
    """Return how many images there is time to fit on; None where they would be too few."""
    if distributed.broadcast(stopwatch.left() <= 0):  # the processes share the images out
        return None
    classes = len(run.data.class_names)
    context = partial(autocast, training_device(), run.recipe.precision)
    an_image, described = image_seconds(run.classifier, train, network=network, context=context)
    # The others are computed as the classifier will predict, which may take longer.
    scoring = image_seconds(run.classifier, train, network=network, timed=FEW)[0] if others else 0.0
    unit = unit_seconds()
    for share in SHARES:
        count = int(share * len(train))
        if count < fewest(len(train), classes):
            return None
        fitting = sum(fit_units(count, values.shape[1], classes) for values in described.values) * unit
        if count * an_image + others * scoring + fitting <= stopwatch.left():
            return count
    return None
