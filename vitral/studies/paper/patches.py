"""Patch size and stride: tokens, cost, accuracy. Patches that overlap are T2T-ViT's and CvT's idea in its plainest form."""

import math
from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, TrialResult, against, by_series, ranked
from vitral.studies.paper.scale import Scale

APART = "patches side by side"
OVERLAPPING = "patches that overlap by half"


def _trials(scale: Scale) -> Sequence[Trial]:
    return tuple(
        Trial(
            f"patch{size}-stride{stride}",
            APART if size == stride else OVERLAPPING,
            f"patch {size}, stride {stride}",
            changes=(*scale.vits[-1].changes, f"patch_size={size}", f"patch_stride={stride}"),
        )
        for size, stride in scale.patches
    )


def _conclude(results: Results) -> str:
    sentences = [ranked(results)]
    series = by_series(results)
    for overlapping in series.get(OVERLAPPING, []):
        nearest = min(series.get(APART, []), key=lambda result: _factor(result, overlapping), default=None)
        if nearest is not None:
            sentences.append(f"At the nearest number of tokens: {against(overlapping, nearest)}.")
    return " ".join(sentences)


def _factor(first: TrialResult, second: TrialResult) -> float:
    """Return the logarithm of the factor by which two numbers of tokens differ."""
    return abs(math.log(first.facts.tokens / second.facts.tokens))


PATCHES = Experiment(
    "patches",
    "Patch size and overlap",
    "What do more tokens give, by smaller patches or by patches that overlap, and what do they cost?",
    Axis("tokens", log=True),
    _trials,
    _conclude,
    at=lambda facts: float(facts.tokens),
)
