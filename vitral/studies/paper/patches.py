"""Patch size and stride: tokens, cost, accuracy. Patches that overlap are T2T-ViT's and CvT's idea in its plainest form."""

import math
from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Result, Results, Trial, against, by_series, ranked
from vitral.studies.paper.scale import Scale

APART, OVERLAPPING = "patches side by side", "patches that overlap by half"


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
    said = [ranked(results)]
    series = by_series(results)
    for overlapping in series.get(OVERLAPPING, []):
        nearest = min(series.get(APART, []), key=lambda result: _factor(result, overlapping), default=None)
        if nearest is not None:
            said.append(f"At the nearest number of tokens: {against(overlapping, nearest)}.")
    return " ".join(said)


def _factor(first: Result, second: Result) -> float:
    """Return by which factor two differ in their tokens, as a logarithm."""
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
