"""Images without labels: the task of networks that learn from them, and the result where nothing is scored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.advice import argument, function
from vitral.errors import DataError, ModelError
from vitral.tasks.task import Describe, Figure, Label, Logits, Probabilities, Result, Targets, Task

CLASS = "unlabelled"  # the only class of a network without classes
NOTHING_SCORED = (
    "The network was trained without labels, so nothing is scored: what it is worth shows once it is fine-tuned."
)


@dataclass(frozen=True)
class Unscored(Result):
    """What is left of a score where there are no labels; one class stands for none."""

    num_examples: int
    class_names: tuple[str, ...]

    def headline(self) -> float:
        """Return the number of images: there is no figure by which two networks could be compared."""
        return float(self.num_examples)

    def scores(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    def sentence(self, split: str) -> str:
        """Return that nothing was scored."""
        return NOTHING_SCORED

    def lead(self, split: str) -> str:
        """Return that nothing was scored."""
        return NOTHING_SCORED


@dataclass(frozen=True)
class Unlabelled(Task):
    """An image of which nothing is known."""

    name: ClassVar[str] = CLASS
    labelled: ClassVar[str] = "have no labels"
    headline: ClassVar[Figure] = Figure("images", "images", is_share=False)
    result: ClassVar[type[Result]] = Unscored
    fewest_classes: ClassVar[int] = 1
    scored: ClassVar[bool] = False

    def label(self, classes: Sequence[int]) -> Label:
        """Return that there is none."""
        return None

    def takes(self, label: Label) -> bool:
        """Tell whether there is no label; labels are only ignored where the user says so."""
        return label is None

    def encode(self, labels: Sequence[Label], num_classes: int) -> Targets:
        """Return the number of the one class that stands for none (batch,)."""
        return torch.zeros(len(labels), dtype=torch.int64)

    def loss(self, logits: Logits, targets: Targets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        """Refuse to learn labels that are not there, by a DataError."""
        raise DataError(f"The images {self.labelled} to learn.")

    def right(self, logits: Logits, targets: Targets) -> Bool[Tensor, " batch"]:
        """Return false for each: there is nothing to get right."""
        return torch.zeros(len(logits), dtype=torch.bool, device=logits.device)

    def validate(self, probabilities: Probabilities, targets: Targets) -> dict[str, float]:
        """Return nothing."""
        return {}

    def score(
        self, probabilities: Probabilities, targets: Targets, *, class_names: Sequence[str], describe: Describe
    ) -> Unscored:
        """Return how many images there are."""
        return Unscored(len(targets), tuple(class_names))


UNLABELLED = Unlabelled()


def check_knows_classes(task: Task) -> None:
    """Refuse to ask a network for classes that learned without labels, by a ModelError."""
    if not task.scored:
        how = f"by {function('finetune')} with {argument('source')}"
        raise ModelError(f"The network was trained without labels and knows no classes; fine-tune it first, {how}.")


def check_classifies(task: Task, what: str) -> None:
    """Refuse a classifier that does not name the class of a photo as a whole, which a function, or "a page", needs.

    Raises:
        ModelError: It learned without labels, or finds regions.
    """
    check_knows_classes(task)
    if task.dense:
        raise ModelError(
            f"{what} is about the class of a photo as a whole, and photos of this classifier {task.labelled}; "
            f"{function('predict')}, {function('evaluate')} and {function('export')} take it."
        )
