"""Simple classifiers on frozen features: nearest neighbours and a linear layer in closed form; torch only."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

Features = Float[Tensor, "examples features"]

NEIGHBOURS = 20
BIAS = 100.0  # so large a constant feature that the penalty hardly touches the bias
# The penalties that the original's few-shot evaluation swept (Scenic's port of it).
PENALTIES = tuple(2.0**exponent for exponent in range(-10, 20))
QUERIES_AT_ONCE = 1024


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
    votes_of = functional.one_hot(train_labels).double()

    def vote(queries: Features) -> Int64[Tensor, " queries"]:
        cosines = functional.normalize(queries.double(), dim=1) @ train.T
        nearest = cosines.topk(min(k, len(train)), dim=1)
        votes = ((1 + nearest.values[:, :, None]) / 2 * votes_of[nearest.indices]).sum(dim=1)  # (queries, classes)
        return votes.argmax(dim=1)

    return _accuracy(vote, test_features, test_labels)


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
    predict: Callable[[Features], Int64[Tensor, " queries"]], features: Features, labels: Int64[Tensor, " examples"]
) -> float:
    """Return how often predictions, made for some examples at a time, are the labels, 0 to 1."""
    right = 0
    pairs = zip(torch.split(features, QUERIES_AT_ONCE), torch.split(labels, QUERIES_AT_ONCE), strict=True)
    for queries, truth in pairs:
        right += int((predict(queries) == truth).sum())
    return right / len(labels)


def linear_probe_accuracy(
    train_features: Float[Tensor, "train features"],
    train_labels: Int64[Tensor, " train"],
    test_features: Float[Tensor, "test features"],
    test_labels: Int64[Tensor, " test"],
    *,
    penalty: float | None = None,
) -> float:
    """Return the accuracy, 0 to 1, of regularised least squares onto targets of -1 and +1 (paper section 4.1).

    Features are whitened by the training images' mean and standard deviation, and a constant feature of 100 is the
    bias, as in big_vision's evaluators/fewshot_lsr.py.

    Args:
        train_features: frozen features to fit on.
        train_labels: their classes.
        test_features: features to score.
        test_labels: their classes.
        penalty: on the squared weights. big_vision takes 2^10 always, which is too much for a few images per class;
            None takes, of the original's sweep from 2^-10 to 2^19, the one with the best leave-one-out accuracy on the
            training images, the largest among equals. The test images have no part in it.
    """
    weight, bias = fit_linear_probe(train_features, train_labels, penalty=penalty)
    scores = test_features.double() @ weight.T + bias
    return float((scores.argmax(dim=1) == test_labels).double().mean())


def fit_linear_probe(
    features: Float[Tensor, "train features"], labels: Int64[Tensor, " train"], *, penalty: float | None = None
) -> tuple[Float[Tensor, "classes features"], Float[Tensor, " classes"]]:
    """Return weight and bias of the linear layer that `linear_probe_accuracy` scores, in float64, over plain features."""
    mean, scale = features.double().mean(dim=0), features.double().std(dim=0, correction=0) + 1e-5
    train = _with_bias((features.double() - mean) / scale)
    targets = 2.0 * functional.one_hot(labels).double() - 1.0
    left, singular, right = torch.linalg.svd(train, full_matrices=False)
    projected = left.T @ targets
    if penalty is None:
        penalty = _best_penalty(left, singular, projected, targets, labels)
    weights = right.T @ ((singular / (singular**2 + penalty))[:, None] * projected)
    weight = (weights[:-1] / scale[:, None]).T
    return weight, BIAS * weights[-1] - weight @ mean


def _with_bias(features: Features) -> Float[Tensor, "examples features_and_bias"]:
    return functional.pad(features, (0, 1), value=BIAS)


def _best_penalty(
    left: Float[Tensor, "train rank"],
    singular: Float[Tensor, " rank"],
    projected: Float[Tensor, "rank classes"],
    targets: Float[Tensor, "train classes"],
    labels: Int64[Tensor, " train"],
) -> float:
    def accuracy(penalty: float) -> float:
        shrink = singular**2 / (singular**2 + penalty)
        fitted = left @ (shrink[:, None] * projected)
        leverage = (left**2 @ shrink)[:, None]
        # What the fit without an image would say of it follows from the fit with all: no second fit is needed.
        held_out = (fitted - leverage * targets) / (1 - leverage).clamp_min(1e-9)
        return float((held_out.argmax(dim=1) == labels).double().mean())

    return max(reversed(PENALTIES), key=accuracy)
