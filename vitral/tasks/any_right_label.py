"""Several labels of an image are right, and one answer is wanted: as ImageNet's reassessed labels (ReaL) are scored.

Beyer et al., "Are we done with ImageNet?" (arXiv 2006.07159): the share of the images, those without any label left out, of
which the most probable class is one of the labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from vitral.advice import counted
from vitral.errors import DataError
from vitral.tasks.metrics import SMALLEST_PROBABILITY, wilson_interval
from vitral.tasks.shown import Tile, fitting_digits, percent, photos_of
from vitral.tasks.task import (
    Describe,
    Figure,
    Label,
    Logits,
    Mistake,
    Probabilities,
    Result,
    Targets,
    Task,
    check_probabilities,
    marked,
    several_classes,
    surest_mistakes,
)


@dataclass(frozen=True)
class AnyRightLabelEvaluation(Result):
    """The scores of a classifier on one split of which images have several right labels.

    Attributes:
        num_examples: The number of images with a label, each counted once.
        top1: The share of images whose most probable class is one of the right ones, 0 to 1.
        top1_interval: Wilson's 95 % interval of `top1`.
        labels: The number of right labels of all images together.
        mistakes: At most 50 mistakes, the most confident first; the truth names all the right classes.
    """

    num_examples: int
    top1: float
    top1_interval: tuple[float, float]
    labels: int
    class_names: tuple[str, ...]
    mistakes: tuple[Mistake, ...]

    def scores(self) -> dict[str, float]:
        """Return the figures that a classifier keeps of itself."""
        return {"top1": self.top1, "top1_low": self.top1_interval[0]}

    def sentence(self, split: str) -> str:
        """Return the result in one sentence."""
        return f"Of {photos_of(split, self.num_examples)} {self.top1:.1%} are given one of their right labels."

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows."""
        low, high = self.top1_interval
        return (
            f"{counted(self.num_examples, 'photo')} with {self.labels:,} right labels, {len(self.class_names)} classes",
            f"accuracy, any right label  {self.top1:.2%}  (95% interval {low:.2%} to {high:.2%})",
        )

    def tiles(self, split: str) -> tuple[Tile, ...]:
        """Return the accuracy."""
        digits = fitting_digits(self.num_examples)
        low, high = (percent(bound, digits) for bound in self.top1_interval)
        images = f"of {photos_of(split, self.num_examples)} are given a right label"
        return (Tile(percent(self.top1, digits), (images, f"95% interval {low} to {high}")),)

    def lead(self, split: str) -> str:
        """Return of what the scores are, in one sentence."""
        return f"{photos_of(split, self.num_examples)}, each with the labels that are right for it."


@dataclass(frozen=True)
class AnyRightLabel(Task):
    """An image has one class or more, and any of them is a right answer."""

    name: ClassVar[str] = "any-right-label"
    labelled: ClassVar[str] = "may have several right labels"
    headline: ClassVar[Figure] = Figure("top1", "accuracy, any right label")
    result: ClassVar[type[Result]] = AnyRightLabelEvaluation

    def label(self, classes: Sequence[int]) -> Label:
        """Return the classes, ascending, each once."""
        return several_classes(classes)

    def takes(self, label: Label) -> bool:
        """Tell whether a label is of one class or more."""
        return isinstance(label, tuple) and len(label) > 0

    def encode(self, labels: Sequence[Label], num_classes: int) -> Targets:
        """Return 0 or 1 for each class (batch, classes).

        Raises:
            DataError: an image has no label.
        """
        named = [label for label in labels if isinstance(label, tuple) and label]
        if len(named) < len(labels):
            raise DataError("An image has no right label, so that no answer can be right; leave it out.")
        return marked(named, num_classes)

    def scoring(self, learned: Task) -> Task:
        """Return this task for a classifier of one class an image: its answer may be any of the right labels."""
        return self if learned.exclusive else learned

    def loss(self, logits: Logits, targets: Targets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        """Return the mean negative logarithm of the probability that the right classes have together."""
        shares = (1 - label_smoothing) * targets + label_smoothing / targets.shape[1]
        return -(logits.log_softmax(dim=1) + shares.log()).logsumexp(dim=1).mean()

    def right(self, logits: Logits, targets: Targets) -> Bool[Tensor, " batch"]:
        """Tell whether the most probable class is one of the image's."""
        return targets.gather(1, logits.argmax(dim=1)[:, None])[:, 0] > 0

    def validate(self, probabilities: Probabilities, targets: Targets) -> dict[str, float]:
        """Return the accuracy, and the negative logarithm of the right classes' probability, as "loss"."""
        own = (probabilities * targets).sum(dim=1).clamp_min(SMALLEST_PROBABILITY)
        accuracy = float(self.right(probabilities, targets).double().mean())
        return {"accuracy": accuracy, "loss": float(-own.double().log().mean())}

    def score(
        self, probabilities: Probabilities, targets: Targets, *, class_names: Sequence[str], describe: Describe
    ) -> AnyRightLabelEvaluation:
        """Score predicted probabilities against all the right classes."""
        check_probabilities(probabilities.numpy())
        right = self.right(probabilities, targets)
        confidences, picked = probabilities.max(dim=1)
        return AnyRightLabelEvaluation(
            num_examples=len(right),
            top1=float(right.double().mean()),
            top1_interval=wilson_interval(int(right.sum()), len(right)),
            labels=int(targets.sum()),
            class_names=tuple(class_names),
            mistakes=surest_mistakes(
                ~right.numpy(),
                picked.numpy(),
                confidences.numpy(),
                lambda index: " or ".join(class_names[label] for label in targets[index].nonzero()[:, 0].tolist()),
                class_names=class_names,
                describe=describe,
            ),
        )


ANY_RIGHT_LABEL = AnyRightLabel()
