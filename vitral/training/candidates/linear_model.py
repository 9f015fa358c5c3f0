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

    @property
    def every(self) -> Bool[Tensor, " all"]:
        """Which images of both kinds it gets right."""
        return torch.cat([self.right, self.left_out])

    def weighed(self, changed: Rebalanced) -> str:
        """Return what the same weight for every class changed, in one sentence."""
        said = changed.sentence("training photos, each left out of the fit that judges it")
        return f"Every class has the same weight in the {self.candidate.name}: {said}."

    def better_than(self, other: "LinearModel", headline: Figure) -> bool:
        """Tell whether it is the better one, by the images of both kinds where those of validation are equal."""
        if self.candidate.figure != other.candidate.figure:
            return headline.improves(self.candidate.figure, other.candidate.figure)
        return int(self.left_out.sum()) > int(other.left_out.sum())


def poor_start(pixels: LinearModel, probe: LinearModel, headline: Figure) -> str | None:
    """Return a line where what trained weights see tells classes apart hardly better than bare pixels do; else None.

    So it was with a network that had learned CIFAR-10 and 81 kinds of groceries: 19 % in eight minutes, from scratch 67 % in
    five (docs/decisions.md). What counts is the share of the pixels' mistakes that the start avoids, of the training images,
    too, where they judge both fairly; of few images nothing is said.
    """
    fair = len(probe.left_out) == len(pixels.left_out)
    ours, others = (each.every if fair else each.right for each in (probe, pixels))
    avoided = int(ours.sum()) - int(others.sum())
    if len(ours) < TELLING or avoided > HELPFUL * int((~others).sum()):
        return None
    return (
        f"These weights hardly help with such photos: the {probe.candidate.title} on them has "
        f"{probe.candidate.reached(headline)}, the {PIXELS} {pixels.candidate.text(headline)}. Training from scratch, "
        f"without {argument('source')}, may do better in the same time."
    )
