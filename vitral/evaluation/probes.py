"""Simple classifiers on frozen features: nearest neighbours, a linear layer in closed form, few-shot ridge regression.

Few-shot accuracy is as the authors of ViT compute it (paper sections 4.1 and 4.3); the arithmetic is that of big_vision's
evaluators/fewshot_lsr.py: features whitened by the mean and the population's standard deviation (plus 1e-5) of the few images,
a constant feature of 100 as the bias, targets of -1 and +1, a penalty of 2^10 on all squared weights, the bias's too. Each draw
permutes every class's images, classes in order, by one generator, and takes the first of each. The earlier code took the first
images in the dataset's order, and for each number of shots the penalty of the best mean rank over nine datasets by their test
images, which one dataset cannot follow.

Where we differ: images are prepared as the classifier prepares them, not always resized to 256 and cropped to 224 pixels.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.errors import DataError, ModelError
from vitral.evaluation.rebalanced import Rebalanced, rebalanced
from vitral.models.model import Model
from vitral.objectives.unequal import ClassWeights, balanced_weights
from vitral.tasks.class_sizes import ClassSizes

Features = Float[Tensor, "examples features"]

NEIGHBOURS = 20
ALIKE = 1e-9  # share of the squares of features by which they differ where they are all alike
BIAS = 100.0  # so large a constant feature that the penalty hardly touches the bias
# The penalties that the original's few-shot evaluation swept (Scenic's port of it).
UNTOLD_PENALTY = 2.0**10  # where the left-out images tell nothing: big_vision's of few shots, evaluators/fewshot_lsr.py
PENALTIES = tuple(2.0**exponent for exponent in range(-10, 20))
QUERIES_AT_ONCE = 1024
COSINES_AT_ONCE = 1 << 26  # half a gigabyte of them, of ImageNet's training images those of 52 queries
MANY = 2  # images a feature, beyond which their products are decomposed instead of the features themselves
SHOTS = (1, 5, 10, 25)
DRAWS = 3
PENALTY = 2.0**10

Indices = Int64[np.ndarray, " images"]


def knn_accuracy(
    train_features: Float[Tensor, "train features"],
    train_labels: Int64[Tensor, " train"],
    test_features: Float[Tensor, "test features"],
    test_labels: Int64[Tensor, " test"],
    *,
    k: int = NEIGHBOURS,
) -> float:
    """Return the accuracy, 0 to 1, of a vote among the `k` training images of the nearest direction.

    A neighbour at cosine c votes with weight (1 + c) / 2: nearer ones count more, and no vote ever counts against its
    class. With fewer training images than `k` all of them vote.
    """
    train = functional.normalize(train_features.double(), dim=1)
    classes = int(train_labels.max()) + 1

    def vote(queries: Features) -> Int64[Tensor, " queries"]:
        cosines = functional.normalize(queries.double(), dim=1) @ train.T
        nearest = cosines.topk(min(k, len(train)), dim=1)
        votes = nearest.values.new_zeros(len(queries), classes)
        votes.scatter_add_(1, train_labels[nearest.indices], (1 + nearest.values) / 2)
        return votes.argmax(dim=1)

    return _accuracy(
        vote, test_features, test_labels, at_once=max(1, min(QUERIES_AT_ONCE, COSINES_AT_ONCE // len(train)))
    )


def effective_rank(features: Features) -> float:
    """Return how many dimensions features fill: the exponential of the entropy of their normalised singular values.

    As RankMe (arXiv 2210.02885), but about their mean, which every network's features share. Of features that differ no more
    than rounding does it is 1.
    """
    wide = features.double()
    centred = wide - wide.mean(dim=0)
    if float(centred.square().sum()) <= ALIKE * float(wide.square().sum()):
        return 1.0
    values = torch.linalg.svdvals(centred)
    shares = values / values.sum()
    return float(torch.exp(torch.special.entr(shares).sum()))


def nearest_accuracy(
    train_features: Float[Tensor, "train features"],
    train_labels: Int64[Tensor, " train"],
    test_features: Float[Tensor, "test features"],
    test_labels: Int64[Tensor, " test"],
) -> float:
    """Return the accuracy, 0 to 1, of taking the class of the one training image at the least Euclidean distance."""
    return _accuracy(
        lambda queries: train_labels[torch.cdist(queries, train_features).argmin(dim=1)], test_features, test_labels
    )


def _accuracy(
    predict: Callable[[Features], Int64[Tensor, " queries"]],
    features: Features,
    labels: Int64[Tensor, " examples"],
    *,
    at_once: int = QUERIES_AT_ONCE,
) -> float:
    """Return how often predictions, made for some examples at a time, are the labels, 0 to 1."""
    right = 0
    pairs = zip(torch.split(features, at_once), torch.split(labels, at_once), strict=True)
    for queries, truth in pairs:
        right += int((predict(queries) == truth).sum())
    return right / len(labels)


@dataclass(frozen=True)
class LinearProbe:
    """A linear layer in closed form, over plain features; float64.

    Attributes:
        left_out: The outputs for each training image of the fit without it, (train, classes).
        rebalanced: What weights of the classes changed on those; None for a fit without.
    """

    weight: Float[Tensor, "classes features"]
    bias: Float[Tensor, " classes"]
    left_out: Float[Tensor, "train classes"]
    rebalanced: Rebalanced | None = None

    def right(self, labels: Int64[Tensor, " train"]) -> Bool[Tensor, " train"]:
        """Tell which training images the fits without them get right."""
        return self.left_out.argmax(dim=1) == labels

    def accuracy(self, features: Features, labels: Int64[Tensor, " examples"]) -> float:
        """Return the accuracy, 0 to 1, on images."""
        return float((self.predict(features) == labels).double().mean())

    def predict(self, features: Features) -> Int64[Tensor, " examples"]:
        """Return the most probable class of each image."""
        return (features.double() @ self.weight.T + self.bias).argmax(dim=1)

    @torch.no_grad()
    def become_head(self, model: Model, *, scale: float = 1.0) -> None:
        """Give a network this layer as its head, its outputs times `scale`."""
        head, second = model.head, getattr(model, "distillation_head", None)
        if second is not None:  # the network gives the mean of both heads
            second.weight.zero_()
            second.bias.zero_()
            scale *= 2.0
        head.weight.copy_(scale * self.weight)
        head.bias.copy_(scale * self.bias)


def fit_probe(
    features: Float[Tensor, "train features"],
    labels: Int64[Tensor, " train"],
    *,
    classes: int | None = None,
    penalty: float | None = None,
    class_weights: Float[Tensor, " classes"] | None = None,
) -> LinearProbe:
    """Return regularised least squares onto targets of -1 and +1 (paper section 4.1).

    Features are whitened by the training images' mean and standard deviation, and a constant feature of 100 is the
    bias, as in big_vision's evaluators/fewshot_lsr.py.

    Args:
        features: Frozen features to fit on.
        labels: The classes of the images.
        classes: The number of classes; None for as many as the labels name.
        penalty: The penalty on the squared weights. big_vision takes 2^10 always, which is too much for a few images per class;
            None takes, of the original's sweep from 2^-10 to 2^19, the one with the best leave-one-out accuracy on the
            training images, the largest among equals; with weights of the classes the accuracy is weighted by them, too.
        class_weights: What an image's squared error counts, by its class; None for 1.

    Raises:
        ModelError: A feature is no finite number.
    """
    check_features(features)
    mean, scale = features.double().mean(dim=0), features.double().std(dim=0, correction=0) + 1e-5
    train = functional.pad((features.double() - mean) / scale, (0, 1), value=BIAS)
    targets = 2.0 * functional.one_hot(labels, classes or -1).double() - 1.0
    ridge = Ridge(train, targets, weight_roots(class_weights, labels))
    if penalty is None:
        penalty = ridge.best_penalty(labels)
    weights = ridge.weights(penalty)
    weight = (weights[:-1] / scale[:, None]).T
    return LinearProbe(weight, BIAS * weights[-1] - weight @ mean, ridge.left_out(penalty))


def weight_roots(
    class_weights: Float[Tensor, " classes"] | None, labels: Int64[Tensor, " train"]
) -> Float[Tensor, "train 1"] | None:
    """Return the square roots of what each image's squared error counts; None for 1."""
    return None if class_weights is None else class_weights.double()[labels, None].sqrt()


def fit_rebalanced(
    fit: Callable[..., LinearProbe],
    features: Float[Tensor, "train features"],
    labels: Int64[Tensor, " train"],
    *,
    classes: int,
    weigh: ClassWeights,
) -> LinearProbe:
    """Return the probe; of unequal classes that in which every class has the same weight, unless left-out images refute it.

    `fit` is `fit_probe` or `heads.fit_head`. `weigh` is "auto" for that, "balanced" for weights in any case, "none" for none.

    Raises:
        ModelError: A feature is no finite number.
    """
    plain = fit(features, labels, classes=classes)
    counts = torch.bincount(labels, minlength=classes).tolist()
    if weigh == "none" or not ClassSizes(tuple(counts)).unequal:
        return plain
    balanced = fit(features, labels, classes=classes, class_weights=balanced_weights(counts))
    changed = rebalanced(plain.right(labels), balanced.right(labels), labels)
    return replace(balanced, rebalanced=changed) if weigh == "balanced" or not changed.refuted else plain


def check_features(features: Features) -> None:
    """Refuse the features of a network with damaged weights, before they reach a decomposition that fails on them.

    Raises:
        ModelError: One is no finite number.
    """
    if not torch.isfinite(features).all():
        raise ModelError(
            "The network gives no finite numbers for these images: its weights are damaged, or its training diverged; "
            "load an earlier checkpoint."
        )


def _decomposed(
    train: Float[Tensor, "train features"],
) -> tuple[Float[Tensor, "train rank"], Float[Tensor, " rank"], Float[Tensor, "rank features"]]:
    """Return the singular value decomposition; of many images by the eigenvectors of the features' products, which is faster.

    What is left out then has a singular value below the rounding of those products, for which the least penalty leaves nothing.
    """
    count, width = train.shape
    if count <= MANY * width:
        left, singular, right = torch.linalg.svd(train, full_matrices=False)
        return left, singular, right
    squares, vectors = torch.linalg.eigh(train.T @ train)
    known = squares > squares[-1] * torch.finfo(squares.dtype).eps * width
    singular, vectors = squares[known].sqrt(), vectors[:, known]
    return train @ vectors / singular, singular, vectors.T


class Ridge:
    """Least squares whose squared weights are penalised: one decomposition serves all penalties.

    `roots` are the square roots of what each image's squared error counts, (train, 1); None for 1.
    """

    def __init__(
        self,
        train: Float[Tensor, "train features"],
        targets: Float[Tensor, "train classes"],
        roots: Float[Tensor, "train 1"] | None = None,
    ) -> None:
        self.roots = torch.ones(len(train), 1, dtype=train.dtype) if roots is None else roots
        self.left, self.singular, self.right = _decomposed(train if roots is None else roots * train)
        self.targets = self.roots * targets
        self.projected = self.left.T @ self.targets

    def weights(self, penalty: float) -> Float[Tensor, "features classes"]:
        """Return the weights of the fit with all images."""
        return self.right.T @ ((self.singular / (self.singular**2 + penalty))[:, None] * self.projected)

    def left_out(self, penalty: float) -> Float[Tensor, "train classes"]:
        """Return what the fit without an image would say of it; it follows from the fit with all, without a second one."""
        shrink = self.singular**2 / (self.singular**2 + penalty)
        fitted = self.left @ (shrink[:, None] * self.projected)
        leverage = (self.left**2 @ shrink)[:, None]
        return (fitted - leverage * self.targets) / (1 - leverage).clamp_min(1e-9) / self.roots

    def best_penalty(self, labels: Int64[Tensor, " train"]) -> float:
        """Return the penalty whose fits without an image are right most often, the largest among equals."""

        def accuracy(penalty: float) -> float:
            right = self.left_out(penalty).argmax(dim=1) == labels
            return float((self.roots[:, 0].square() * right).mean())

        best = max(reversed(PENALTIES), key=accuracy)
        # With one image a class the fit without it cannot know its class, and tells no penalty from another.
        return best if accuracy(best) > 0 else UNTOLD_PENALTY


def sharpness(scores: Float[Tensor, "examples classes"], labels: Int64[Tensor, " examples"]) -> float:
    """Return the factor, 1 to 32, that makes of scores the logits whose probabilities fit the labels best (by likelihood).

    Least squares give scores of about -1 and +1, whose softmax would be far too unsure.
    """

    def loss(factor: float) -> float:
        return float(functional.cross_entropy(factor * scores, labels))

    return min((2.0 ** (exponent / 4) for exponent in range(21)), key=loss)


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

    `indices` are the training images that are known, ascending, those of all draws among them.
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
