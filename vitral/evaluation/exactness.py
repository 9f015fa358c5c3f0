"""How far a classifier's answers are from those of its network in float32, on images of the user's own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.advice import counted
from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.data.subset import spread_over
from vitral.events import Listener, ignore
from vitral.inference.predictor import collect
from vitral.models.model import Images
from vitral.tasks.task import Label, Probabilities, Targets

MOST_IMAGES = 256  # that are also computed in float32, spread over the source
BATCH_SIZE = 32


@dataclass(frozen=True)
class Difference:
    """What a faster computation, such as "packed in bf16", changes on images that were computed in float32 as well.

    `largest` is the largest difference of a probability, `same_top` the share of the images with the same most probable class.
    """

    computed_by: str
    images: int
    largest: float
    same_top: float

    def sentence(self) -> str:
        """Return it in one sentence."""
        return (
            f"Computed by {self.computed_by}; on {counted(self.images, 'photo')}, against torch in fp32, probabilities differ "
            f"by at most {self.largest:.2g}, and {self.same_top:.1%} have the same most probable class."
        )


def difference_from_exact(classifier: Classifier, source: Source, listener: Listener = ignore) -> Difference | None:
    """Compare a classifier's probabilities with those of its network in torch in float32; None if that is what computes them.

    At most `MOST_IMAGES` of the source's images are taken, spread evenly.

    Raises:
        ImageError: An image cannot be read.
    """
    predictor = classifier.predictor
    if predictor.exact is predictor:
        return None
    taken = spread_over(source, MOST_IMAGES)

    def both(images: Images) -> Float[Tensor, "batch values"]:
        exact = classifier.to_probabilities(predictor.exact.logits(images))
        return torch.cat([classifier.probabilities(images), exact], dim=1)

    values, _ = collect(
        both,
        taken,
        classifier.preprocessing,
        batch_size=BATCH_SIZE,
        purpose="compare with fp32",
        listener=listener,
        encode=no_labels,
    )
    fast, exact = values.chunk(2, dim=1)
    return Difference(predictor.computed_by, len(taken), *apart(fast, exact))


def apart(fast: Probabilities, exact: Probabilities) -> tuple[float, float]:
    """Return the largest difference of two computations' probabilities, and the share of rows with the same largest."""
    same = (fast.argmax(dim=1) == exact.argmax(dim=1)).double().mean()
    return float((fast - exact).abs().max()), float(same)


def no_labels(labels: Sequence[Label]) -> Targets:
    """Return as many targets that say nothing, for images that are only computed."""
    return torch.full((len(labels),), -1)
