"""How sure a classifier's answers are: the temperature of its probabilities, and how accurate the surest answers are.

Temperature scaling divides logits by one number, so that probabilities mean what they say (arXiv 1706.04599). Selective
prediction gives only the surest answers, from the probability on at which they are accurate enough.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from vitral.classifier.metadata import COLDEST, HOTTEST

FOLDS = 10  # parts of the images, each of which is judged by what the others choose
COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)  # that a table shows

Confidences = Float64[np.ndarray, " examples"]
Right = Bool[np.ndarray, " examples"]
Logits = Float64[np.ndarray, "examples classes"]
Labels = Int64[np.ndarray, " examples"]


def log_probabilities(logits: Logits, temperature: float) -> Logits:
    """Return the logarithms of the softmax of logits that are divided by a temperature."""
    scaled = logits / temperature
    shifted = scaled - scaled.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def negative_log_likelihood(logits: Logits, labels: Labels, temperature: float = 1.0) -> float:
    """Return the mean negative log-likelihood of the true classes in nats."""
    return float(_each_likelihood(logits, labels, temperature).mean())


def _each_likelihood(logits: Logits, labels: Labels, temperature: float) -> Float64[np.ndarray, " examples"]:
    return -log_probabilities(logits, temperature)[np.arange(len(labels)), labels]


def fit_temperature(logits: Logits, labels: Labels) -> float | None:
    """Return the temperature of the least negative log-likelihood, between 0.05 and 20; None where the images tell none.

    The likelihood is concave in the inverse temperature, so that it has one maximum: where its slope, the mean logit that the
    probabilities expect less the true class's, is zero. Where every image's true class has the largest logit, no finite
    temperature is best.
    """
    from scipy.optimize import brentq  # half a second of start-up for all who fit nothing

    own = logits[np.arange(len(labels)), labels]
    if bool((own >= logits.max(axis=1)).all()):
        return None

    def slope(inverse: float) -> float:
        expected = (np.exp(log_probabilities(logits, 1 / inverse)) * logits).sum(axis=1)
        return float((expected - own).mean())

    if slope(1 / HOTTEST) >= 0:
        return HOTTEST
    if slope(1 / COLDEST) <= 0:
        return COLDEST
    return 1 / float(brentq(slope, 1 / HOTTEST, 1 / COLDEST, xtol=1e-12, rtol=1e-12))


def temperature_helps(logits: Logits, labels: Labels, present: float) -> bool:
    """Tell whether fitting a temperature makes the probabilities of further images better than the present one does.

    Each tenth of the images is judged by the temperature that the other images choose. What is gained in negative
    log-likelihood must be more than its standard error: of few images a fitted temperature is often worse.
    """
    folds = min(FOLDS, len(labels))
    if folds < 2:
        return False
    gains = np.empty(len(labels))
    for fold in range(folds):
        out = np.arange(len(labels)) % folds == fold  # interleaved, since images often come class by class
        found = fit_temperature(logits[~out], labels[~out]) or present
        judged = logits[out], labels[out]
        gains[out] = _each_likelihood(*judged, present) - _each_likelihood(*judged, found)
    return bool(gains.mean() > gains.std(ddof=1) / math.sqrt(len(labels)))


@dataclass(frozen=True)
class Answered:
    """What is left when only the surest answers are given.

    Attributes:
        threshold: The least probability of an answer that is given, 0 to 1.
        coverage: Share of the images that are answered, 0 to 1.
        accuracy: Share of the answers that are right, 0 to 1; None where nothing is answered.
    """

    threshold: float
    coverage: float
    accuracy: float | None
    images: int


def accuracy_by_coverage(confidences: Confidences, right: Right) -> tuple[Answered, ...]:
    """Return what every threshold that tells images apart leaves, the one that leaves most last.

    Images of one probability are answered together or not at all.
    """
    order = np.argsort(-confidences, kind="stable")
    sorted_confidences, correct = confidences[order], np.cumsum(right[order])
    ends = np.flatnonzero(np.append(sorted_confidences[1:] != sorted_confidences[:-1], True))
    return tuple(
        Answered(
            threshold=float(sorted_confidences[end]),
            coverage=(end + 1) / len(right),
            accuracy=float(correct[end]) / (end + 1),
            images=end + 1,
        )
        for end in ends.tolist()
    )


def answered_from(confidences: Confidences, right: Right, threshold: float) -> Answered:
    """Return what a threshold leaves of some images."""
    given = confidences >= threshold
    accuracy = float(right[given].mean()) if given.any() else None
    return Answered(threshold, float(given.mean()), accuracy, int(given.sum()))


def fit_threshold(confidences: Confidences, right: Right, wanted: float) -> Answered | None:
    """Return the threshold that answers most images of those whose answers are accurate enough; None if none does."""
    least = wanted - 1e-12
    every = accuracy_by_coverage(confidences, right)
    return next((answered for answered in reversed(every) if (answered.accuracy or 0.0) >= least), None)


def at_coverages(confidences: Confidences, right: Right) -> tuple[Answered, ...]:
    """Return what is left where at least so many images are answered: all of them, 95 %, and so on."""
    every = accuracy_by_coverage(confidences, right)
    return tuple(
        next(answered for answered in every if answered.coverage >= coverage - 1e-12) for coverage in COVERAGES
    )


def area_under_risk(confidences: Confidences, right: Right) -> float:
    """Return the mean error of the surest answers over all coverages, 0 to 1 (AURC, arXiv 1805.08206); 0 is best."""
    order = np.argsort(-confidences, kind="stable")
    risks = np.cumsum(~right[order]) / np.arange(1, len(right) + 1)
    return float(risks.mean())
