"""Which images to label next: those of which a classifier is unsure, and that are unlike the known and the chosen ones."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.advice import counted
from vitral.classifier.novelty import KnownImages, Space
from vitral.evaluation.probes import fit_probe
from vitral.evaluation.unknown_classes import FEWEST, chosen
from vitral.models.model import Features
from vitral.seeds import generator
from vitral.tasks.task import Probabilities

PART = 1024  # images whose distances are computed at once
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the images, that the curve is measured with
DRAWS = 3
RESAMPLES = 500
POINT = 0.01
LEVEL = (0.025, 0.975)


def unsureness(probabilities: Probabilities) -> Float[Tensor, " images"]:
    """Return how near the second class of each image comes to the first: 0 for sure, 1 for equal (margin sampling)."""
    first, second = probabilities.topk(2, dim=1).values.T
    return 1 - (first - second)


def select(space: Space, features: Features, unsure: Float[Tensor, " images"], count: int) -> Int64[Tensor, " chosen"]:
    """Return the images to label next, the first first: in turn that of the largest product of unsureness and distance.

    The distance is that to the nearest image that is known or was chosen before, as an angle in the space in which images of
    none of the classes are told, so that no two that are alike are chosen together. docs/selection.csv compares it with chance.

    Args:
        space: The images that are known.
        features: Those of the images to choose from.
        unsure: How unsure the classifier is of each.
        count: The number of images to choose; all if there are fewer.
    """
    directions = functional.normalize(space.place(features), dim=1)
    far = torch.cat([1 - (part @ space.directions.T).amax(dim=1) for part in torch.split(directions, PART)])
    left, chosen = torch.ones(len(far), dtype=torch.bool), []
    for _ in range(min(count, len(far))):
        score = (far * unsure).masked_fill(~left, -1.0)
        best = int(score.argmax())
        chosen.append(best)
        left[best] = False
        far = torch.minimum(far, 1 - directions @ directions[best])
    return torch.tensor(chosen)


@dataclass(frozen=True)
class LearningCurve:
    """How many more images one point of accuracy takes, by a linear head on the frozen features.

    Attributes:
        images: The images that the head was fitted on.
        errors: The share of held-out images that is wrong, 0 to 1, by the number of images.
        more: The further images for one point; infinite where more do not help.
        interval: Its 95 % interval, by resampling the held-out images.
    """

    images: int
    errors: dict[int, float]
    more: float
    interval: tuple[float, float]

    def sentence(self) -> str:
        """Return it in one sentence."""
        if math.isinf(self.more):
            return "More photos of this kind would hardly help: the error does not fall as they grow in number."
        low, high = (format(round(end), ",") if math.isfinite(end) else "any number" for end in self.interval)
        return (
            f"One point more of accuracy would take about {counted(round(self.more), 'more photo')} (95% interval {low} to "
            f"{high}), chosen by chance, with the same network; from {self.images:,} a linear head gets "
            f"{1 - self.errors[self.images]:.1%} right."
        )


def learning_curve(known: KnownImages, classes: int) -> LearningCurve | None:
    """Return how many more images one point of accuracy takes; None where too few are held out, or nothing is left to gain.

    Heads are fitted on an eighth of the images, a quarter, a half and all, three draws each, and a power law on their errors
    (arXiv 1712.00409); the interval is the percentile bootstrap's over the held-out images.
    """
    judged, learned = known.where(known.held_out), known.where(~known.held_out)
    sizes = sorted({count for share in SHARES if (count := round(share * len(learned.labels))) >= 2 * classes})
    if len(judged.labels) < FEWEST or len(sizes) < 2:
        return None
    wrong = np.stack([_wrong(learned, judged, size, classes) for size in sizes])
    errors = wrong.mean(axis=1)
    if errors[-1] <= POINT:
        return None
    random, count = generator(0, "resamples of a learning curve"), wrong.shape[1]
    resampled = [further(sizes, wrong[:, random.integers(0, count, count)].mean(axis=1)) for _ in range(RESAMPLES)]
    low, high = np.quantile(resampled, LEVEL, method="nearest")
    by_size = dict(zip(sizes, errors.tolist(), strict=True))
    return LearningCurve(sizes[-1], by_size, further(sizes, errors), (float(low), float(high)))


def _wrong(learned: KnownImages, judged: KnownImages, size: int, classes: int) -> Float[np.ndarray, " judged"]:
    """Return how often each held-out image is wrong, by heads that are fitted on so many images."""
    found: list[Bool[Tensor, " judged"]] = []
    for draw in range(1 if size == len(learned.labels) else DRAWS):
        rows = chosen(learned.labels, size, seed=draw)
        probe = fit_probe(learned.features[rows], learned.labels[rows], classes=classes)
        found.append(probe.predict(judged.features) != judged.labels)
    return torch.stack(found).double().mean(dim=0).numpy()


def further(sizes: list[int], errors: Float[np.ndarray, " sizes"]) -> float:
    """Return how many further images take the error a point down, by a power law through errors at some sizes."""
    slope, begin = np.polyfit(np.log(sizes), np.log(np.maximum(errors, POINT / 2)), 1)
    last = math.exp(begin + slope * math.log(sizes[-1]))
    if slope >= 0 or last <= POINT:
        return math.inf
    exponent = math.log((last - POINT) / last) / slope
    return sizes[-1] * math.expm1(exponent) if exponent < 50 else math.inf
