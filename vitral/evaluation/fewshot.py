"""Few-shot accuracy as the authors of ViT compute it: ridge regression on frozen features of a few images a class.

Paper sections 4.1 and 4.3; the arithmetic is that of big_vision's evaluators/fewshot_lsr.py: features whitened by the mean and
the population's standard deviation (plus 1e-5) of the few images, a constant feature of 100 as the bias, targets of -1 and +1,
a penalty of 2^10 on all squared weights, the bias's too. Each draw permutes every class's images, classes in order, by one
generator, and takes the first of each. The earlier code took the first images in the dataset's order, and for each number of
shots the penalty of the best mean rank over nine datasets by their test images, which one dataset cannot follow.

Where we differ: images are prepared as the classifier prepares them, not always resized to 256 and cropped to 224 pixels.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vitral.errors import DataError
from vitral.evaluation.probes import Features, fit_probe

SHOTS = (1, 5, 10, 25)
DRAWS = 3
PENALTY = 2.0**10

Indices = Int64[np.ndarray, " images"]


@dataclass(frozen=True)
class FewShot:
    """The accuracy that a few images a class give.

    Attributes:
        shots: The number of images per class; of a class that has fewer, all are taken.
        accuracies: The accuracy of each draw, 0 to 1.
        images: The number of images of each draw.
    """

    shots: int
    accuracies: tuple[float, ...]
    images: int

    @property
    def mean(self) -> float:
        """The mean over the draws, 0 to 1."""
        return statistics.fmean(self.accuracies)

    @property
    def deviation(self) -> float:
        """The standard deviation over the draws, of a sample (n - 1); not a number of one draw."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        deviation = None if math.isnan(self.deviation) else self.deviation
        return {
            "shots": self.shots,
            "mean": self.mean,
            "deviation": deviation,
            "accuracies": list(self.accuracies),
            "images": self.images,
        }


@dataclass(frozen=True, eq=False)
class Draws:
    """By shots, for each draw the indices of its images in the training split, class after class."""

    images: dict[int, tuple[Indices, ...]]

    @classmethod
    def of(cls, labels: Indices, classes: int, *, shots: Sequence[int] = SHOTS, draws: int = DRAWS) -> "Draws":
        """Draw images of every class; the draws are numbered from 0, which are their seeds.

        Args:
            labels: The classes of the training split.
            classes: The number of classes.
            shots: The numbers of images per class.
            draws: The number of draws.

        Raises:
            DataError: A number of shots or of draws is below 1.
        """
        if draws < 1 or not shots or min(shots) < 1:
            raise DataError(f"Few-shot needs at least one image a class and one draw, not {list(shots)} and {draws}.")
        orders = [_orders(labels, classes, seed) for seed in range(draws)]
        return cls({few: tuple(np.concatenate([own[:few] for own in order]) for order in orders) for few in shots})

    def union(self) -> Indices:
        """Return the images of all draws, ascending, each once: those whose features are needed."""
        return np.unique(np.concatenate([indices for draws in self.images.values() for indices in draws]))


def _orders(labels: Indices, classes: int, seed: int) -> list[Indices]:
    rng = np.random.default_rng(seed)
    return [rng.permutation(np.flatnonzero(labels == label)) for label in range(classes)]


def score_few_shot(
    draws: Draws,
    indices: Indices,
    features: Float[Tensor, "known features"],
    labels: Int64[Tensor, " known"],
    test_features: Features,
    test_labels: Int64[Tensor, " examples"],
    *,
    classes: int,
) -> tuple[FewShot, ...]:
    """Return the accuracy of each number of shots, over all draws.

    Args:
        draws: The images of each fit.
        indices: The training images that are known, ascending, those of all draws among them.
        features: The frozen features of these images.
        labels: The classes of the images.
        test_features: The features to score.
        test_labels: The classes of those.
        classes: The number of classes.
    """
    scored = []
    for shots, several in draws.images.items():
        accuracies = []
        for drawn in several:
            rows = torch.from_numpy(np.searchsorted(indices, drawn))
            probe = fit_probe(features[rows], labels[rows], classes=classes, penalty=PENALTY)
            accuracies.append(probe.accuracy(test_features, test_labels))
        scored.append(FewShot(shots, tuple(accuracies), len(several[0])))
    return tuple(scored)
