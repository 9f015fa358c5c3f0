"""Temperature scaling: one number by which logits are divided, so that probabilities mean what they say (arXiv 1706.04599)."""

import numpy as np
from jaxtyping import Float64, Int64

from vitral.classifier.calibration import LEAST, MOST

Logits = Float64[np.ndarray, "examples classes"]
Labels = Int64[np.ndarray, " examples"]


def log_probabilities(logits: Logits, temperature: float) -> Logits:
    """Return the logarithms of the softmax of logits that are divided by a temperature."""
    scaled = logits / temperature
    shifted = scaled - scaled.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def negative_log_likelihood(logits: Logits, labels: Labels, temperature: float = 1.0) -> float:
    """Return the mean negative log-likelihood of the true classes in nats."""
    return float(-log_probabilities(logits, temperature)[np.arange(len(labels)), labels].mean())


def fit_temperature(logits: Logits, labels: Labels) -> float | None:
    """Return the temperature of the least negative log-likelihood, between 0.05 and 20; None where the images tell none.

    The likelihood is concave in the inverse temperature, so that it has one maximum: where its slope, the mean logit that the
    probabilities expect less the true class's, is zero. Where every image's true class has the largest logit, no finite
    temperature is best.

    Args:
        logits: The logits, one row per image.
        labels: The true classes.
    """
    from scipy.optimize import brentq  # half a second of start-up for all who fit nothing

    own = logits[np.arange(len(labels)), labels]
    if bool((own >= logits.max(axis=1)).all()):
        return None

    def slope(inverse: float) -> float:
        expected = (np.exp(log_probabilities(logits, 1 / inverse)) * logits).sum(axis=1)
        return float((expected - own).mean())

    if slope(1 / MOST) >= 0:
        return MOST
    if slope(1 / LEAST) <= 0:
        return LEAST
    return 1 / float(brentq(slope, 1 / MOST, 1 / LEAST, xtol=1e-12, rtol=1e-12))
