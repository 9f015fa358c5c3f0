"""A linear layer in closed form, as a first classifier: how good it is, and whether a start is of help to it."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from vitral.advice import argument
from vitral.evaluation.rebalanced import Rebalanced
from vitral.models.model import Model
from vitral.tasks.task import Figure
from vitral.training.candidates.result import PIXELS, Candidate

TELLING = 100  # images, of fewer of which no start is said to be of no help
HELPFUL = 0.2  # of the mistakes of a linear model on pixels, that a start which helps avoids


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear layer in closed form, and how good it is.

    Attributes:
        candidate: what it is called, and its figure.
        model: it, and what it is on.
        right: which images it gets right: those of validation, where there are any.
        left_out: which training images it gets right by the fit without them; empty where that would not be fair.
        rebalanced: what the same weight for every class changed; None where an image has the same weight as any other.
    """

    candidate: Candidate
    model: Model
    right: Bool[Tensor, " images"]
    left_out: Bool[Tensor, " others"]
    rebalanced: Rebalanced | None = None

    def weighed(self, changed: Rebalanced) -> str:
        """Return what the same weight for every class changed, in one sentence."""
        said = changed.sentence("training photos, each left out of the fit that judges it")
        return f"Every class has the same weight in the {self.candidate.name}: {said}."

    def beside(self, other: "LinearModel", commonest: float) -> float:
        """Return how many images it gets right for each that another does, beyond those that are right by chance.

        `commonest` is the share of the commonest class, which is right where that is the answer to every image.
        """
        ours, others = (float(right.double().mean()) - commonest for right in _judged_alike(self, other))
        return max(ours, 0.0) / others if others > 0 else 1.0

    def better_than(self, other: "LinearModel", headline: Figure) -> bool:
        """Tell whether it, on trained weights, is no worse, by all images that judge both fairly, not only those of validation.

        Of these there may be few, which cannot tell. What trained weights see is of more worth than pixels where all are equal.
        """
        if not headline.counts:
            return not headline.improves(other.candidate.figure, self.candidate.figure)
        ours, others = _judged_alike(self, other)
        return int(ours.sum()) >= int(others.sum())


def poor_start(pixels: LinearModel, probe: LinearModel, headline: Figure) -> str | None:
    """Return a line where what trained weights see tells classes apart hardly better than bare pixels do; else None.

    So it was with a network that had learned CIFAR-10 and 81 kinds of groceries: 19 % in eight minutes, from scratch 67 % in
    five (docs/decisions.md). What counts is the share of the pixels' mistakes that the start avoids, of the training images,
    too, where they judge both fairly; of few images nothing is said.
    """
    ours, others = _judged_alike(probe, pixels)
    avoided = int(ours.sum()) - int(others.sum())
    if len(ours) < TELLING or avoided > HELPFUL * int((~others).sum()):
        return None
    return (
        f"These weights hardly help with such photos: the {probe.candidate.title} on them has "
        f"{probe.candidate.reached(headline)}, the {PIXELS} {pixels.candidate.text(headline)}. Training from scratch, "
        f"without {argument('source')}, may do better in the same time."
    )


def _judged_alike(*models: LinearModel) -> list[Bool[Tensor, " all"]]:
    """Return which images each gets right: those of validation, and of training where all are judged fairly by these."""
    fair = len({len(each.left_out) for each in models}) == 1
    return [torch.cat([each.right, each.left_out]) if fair else each.right for each in models]
