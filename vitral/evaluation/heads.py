"""The linear head that frozen features are given without training: ridge regression on their directions.

How long an image's features are says less of its class than where they point, and of few images each feature's own deviation is
badly known. So every image counts by its direction, and all features are divided by one number, where big_vision's few-shot
regression divides each by its own (`fit_probe`). The head is a linear layer on plain features nevertheless, which takes every
image for one of the mean length. What that layer says of an image if it is fitted without it is known exactly; the penalty is
chosen, and how far apart the logits are, by the likelihood of those answers. docs/heads.csv has it beside other heads.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.evaluation.probes import ALIKE, BIAS, PENALTIES, Features, LinearProbe, Ridge, check_features, weight_roots

SWEPT = PENALTIES[::2]  # finer steps take as much longer, and found nothing better
QUARTERS = range(-8, 41)  # quarters of a power of two by which scores of about -1 and +1 are multiplied: 1/4 to 1024
# Where no class has a second image, and the fit without one knows nothing of its class: of penalties 1, 2^5, 2^10 and factors
# 1 to 32 those of about the least cross-entropy of test images, in the mean of the sets of docs/heads.csv.
LONE_PENALTY = 2.0**5
LONE_QUARTER = 4


def fit_head(
    features: Float[Tensor, "train features"],
    labels: Int64[Tensor, " train"],
    *,
    classes: int | None = None,
    class_weights: Float[Tensor, " classes"] | None = None,
) -> LinearProbe:
    """Return the linear head of some images' classes, its outputs as logits whose softmax is calibrated.

    `class_weights` are what an image's squared error, and its likelihood, counts, by its class; None for 1.

    Raises:
        ModelError: A feature is no finite number.
    """
    check_features(features)
    fit = _Directions(features.double(), labels, classes or int(labels.max()) + 1, class_weights)
    penalty, factor = _likeliest(fit, labels)
    weight, bias = fit.layer(penalty)
    return LinearProbe(factor * weight, factor * bias, factor * fit.left_out(penalty))


def logit_factor(scores: Float[Tensor, "train classes"], labels: Int64[Tensor, " train"]) -> float:
    """Return the factor that makes scores, by fits without each of the images, logits that are as sure as they are right."""
    return 2.0 ** (_calibrated(scores, labels, QUARTERS[-1], None)[1] / 4)


def _likeliest(fit: "_Directions", labels: Int64[Tensor, " train"]) -> tuple[float, float]:
    """Return the penalty, and the factor that makes scores logits."""
    best = math.inf, LONE_PENALTY, LONE_QUARTER
    quarter = QUARTERS[-1]
    for penalty in reversed(SWEPT if int(labels.bincount().max()) > 1 else ()):
        loss, quarter = _calibrated(fit.left_out(penalty), labels, quarter, fit.class_weights)
        best = min(best, (loss, penalty, quarter))
    return best[1], 2.0 ** (best[2] / 4)


def _calibrated(
    scores: Float[Tensor, "train classes"],
    labels: Int64[Tensor, " train"],
    near: int,
    class_weights: Float[Tensor, " classes"] | None,
) -> tuple[float, int]:
    """Return the least cross-entropy of scores times a factor, and that factor in quarters of a power of two.

    It is convex in the factor, which is found by going downhill from a nearby one. One more image is counted, of which each
    class is equally likely, so that few images that are all right do not make it sure without bounds.
    """
    unsure = 1 / (1 + len(labels))

    def loss(quarter: int) -> float:
        logits = 2.0 ** (quarter / 4) * scores
        return float(functional.cross_entropy(logits, labels, class_weights, label_smoothing=unsure))

    least = loss(near)
    for step in (-1, 1):
        while near + step in QUARTERS and (next_loss := loss(near + step)) < least:
            near, least = near + step, next_loss
    return least, near


class _Directions:
    """Least squares onto targets of -1 and +1 from the directions of features, as a layer on the features themselves.

    The layer takes features x of any length for some of the mean length r. So what it says of them lies on the line from what
    the fit says of no features at all to what it says of their direction, at |x| / r.
    """

    def __init__(
        self,
        features: Features,
        labels: Int64[Tensor, " train"],
        classes: int,
        class_weights: Float[Tensor, " classes"] | None,
    ) -> None:
        self.class_weights = None if class_weights is None else class_weights.double()
        lengths = features.norm(dim=1, keepdim=True).clamp_min(torch.finfo(features.dtype).tiny)
        directions = features / lengths
        self.length, self.mean = float(lengths.mean()), directions.mean(dim=0)
        spread = float((directions - self.mean).square().mean())
        self.scale = spread**0.5 if spread * len(self.mean) > ALIKE else 1.0
        self.relative = lengths / self.length
        train = functional.pad((directions - self.mean) / self.scale, (0, 1), value=BIAS)
        targets = 2.0 * functional.one_hot(labels, classes).double() - 1.0
        self.ridge = Ridge(train, targets, weight_roots(class_weights, labels))
        self.nothing = self.ridge.right @ functional.pad(-self.mean / self.scale, (0, 1), value=BIAS)

    def left_out(self, penalty: float) -> Float[Tensor, "train classes"]:
        """Return what the layer that is fitted without an image says of it."""
        ridge = self.ridge
        of_direction = ridge.left_out(penalty)
        gain = self.nothing * ridge.singular / (ridge.singular**2 + penalty)
        of_nothing = gain @ ridge.projected - (ridge.left @ gain)[:, None] * (
            ridge.targets - ridge.roots * of_direction
        )
        return self.relative * of_direction + (1 - self.relative) * of_nothing

    def layer(self, penalty: float) -> tuple[Float[Tensor, "classes features"], Float[Tensor, " classes"]]:
        """Return the weight and the bias."""
        weights = self.ridge.weights(penalty)
        weight = weights[:-1].T / self.scale
        return weight / self.length, BIAS * weights[-1] - weight @ self.mean
