"""Whether probabilities mean what they say: images in bins by their top probability, and how far that is from being right."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from vitral.tasks.shown import ReliabilityBin

RELIABILITY_BINS = 15


def reliability(
    confidences: Float[np.ndarray, " examples"],
    correct: Bool[np.ndarray, " examples"],
    *,
    num_bins: int = RELIABILITY_BINS,
) -> tuple[ReliabilityBin, ...]:
    """Sort images into bins of equal width by their top probability, 0 to 1."""
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    # The edges are exactly those that are shown, so that a probability on an edge falls into the expected bin.
    bins = np.searchsorted(edges[1:-1], confidences, side="left")
    return tuple(
        _bin(float(edges[index]), float(edges[index + 1]), confidences[bins == index], correct[bins == index])
        for index in range(num_bins)
    )


def _bin(
    low: float, high: float, confidences: Float[np.ndarray, " members"], correct: Bool[np.ndarray, " members"]
) -> ReliabilityBin:
    if not len(confidences):
        return ReliabilityBin(low, high, 0, None, None)
    return ReliabilityBin(low, high, len(confidences), float(confidences.mean()), float(correct.mean()))


def expected_calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the mean distance between confidence and accuracy over the bins, weighted by their images, 0 to 1."""
    total = sum(bin.count for bin in bins)
    gaps = (
        bin.count * abs(bin.confidence - bin.accuracy)
        for bin in bins
        if bin.confidence is not None and bin.accuracy is not None
    )
    return sum(gaps) / total if total else 0.0
