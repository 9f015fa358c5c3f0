"""An image may have several labels, or none: each is a decision of its own, scored by average precision, F1, exact matches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.advice import counted
from vitral.errors import DataError
from vitral.notebook import table
from vitral.objectives.classification import sigmoid_cross_entropy
from vitral.tasks.shown import Table, Tile, class_table, numbers, percent, photos_of, shares
from vitral.tasks.task import (
    Describe,
    Figure,
    Label,
    Logits,
    Probabilities,
    Result,
    Targets,
    Task,
    check_probabilities,
    marked,
    several_classes,
)

THRESHOLD = 0.5  # the probability from which on a label is given


@dataclass(frozen=True)
class MultiLabelEvaluation(Result):
    """The scores of a multi-label classifier on one split.

    Attributes:
        num_examples: The number of images, each counted once.
        mean_average_precision: The mean over the labels that some image has, 0 to 1.
        average_precision: The average precision of each label; None for a label that no image has.
        f1_micro: The F1 score over all decisions at a probability of 0.5.
        f1_macro: The mean of the labels' own F1 scores.
        exact_match: The share of images whose labels are all right, and no other given.
        support: The number of images of each label.
    """

    num_examples: int
    class_names: tuple[str, ...]
    mean_average_precision: float
    average_precision: tuple[float | None, ...]
    f1_micro: float
    f1_macro: float
    exact_match: float
    support: tuple[int, ...]

    def __repr__(self) -> str:
        """Return the figures that matter most in one line; `to_json` gives them all."""
        return (
            f"MultiLabelEvaluation: mean average precision {self.mean_average_precision:.1%}, F1 {self.f1_micro:.1%}, "
            f"{counted(self.num_examples, 'photo')}, {counted(len(self.class_names), 'label')}"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        photos = counted(self.num_examples, "photo")
        facts = [
            ("Mean average precision", f"{self.mean_average_precision:.1%} on {photos}"),
            ("Labels", f"{len(self.class_names):,}"),
            ("F1", f"{self.f1_micro:.1%}"),
            ("Exactly right", f"{self.exact_match:.1%}"),
        ]
        return table("Evaluation", facts)

    def scores(self) -> dict[str, float]:
        """Return the figures that a classifier keeps of itself."""
        return {"map": self.mean_average_precision, "f1": self.f1_micro, "exact_match": self.exact_match}

    def sentence(self, split: str) -> str:
        """Return the result in one sentence."""
        return (
            f"Mean average precision {self.mean_average_precision:.1%}, F1 {self.f1_micro:.1%} on "
            f"{photos_of(split, self.num_examples)} with {counted(len(self.class_names), 'label')}."
        )

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        return (
            f"{counted(self.num_examples, 'photo')}, {counted(len(self.class_names), 'label')}",
            f"mean average precision  {self.mean_average_precision:.2%}",
            f"F1  {self.f1_micro:.2%} over all decisions, {self.f1_macro:.2%} the labels' mean",
            f"exactly the right labels  {self.exact_match:.2%}",
        )

    def tiles(self, split: str) -> tuple[Tile, ...]:
        """Return mean average precision, F1 and exact matches."""
        images = f"mean average precision on {photos_of(split, self.num_examples)}"
        return (
            Tile(percent(self.mean_average_precision), (images,)),
            Tile(percent(self.f1_micro), ("F1 over all decisions", "at a probability of 0.5")),
            Tile(percent(self.exact_match), ("of the photos have exactly the right labels",)),
        )

    def lead(self, split: str) -> str:
        """Return of what the scores are, in one sentence."""
        labels = f"each with any number of {len(self.class_names):,} labels"
        return f"{photos_of(split, self.num_examples)}, {labels}."

    def tables(self) -> tuple[Table, ...]:
        """Return every label, the worst first."""
        columns = [("Average precision", shares(self.average_precision)), ("Photos", numbers(self.support))]
        return (class_table(("Label", self.class_names), self.average_precision, self.support, columns),)


@dataclass(frozen=True)
class MultiLabel(Task):
    """An image has any number of the classes; of each the network says yes or no."""

    name: ClassVar[str] = "multi-label"
    labelled: ClassVar[str] = "may have several labels"
    noun: ClassVar[str] = "labels"
    meaning: ClassVar[str] = "each is a probability of its own"
    headline: ClassVar[Figure] = Figure("map", "mean average precision")
    result: ClassVar[type[Result]] = MultiLabelEvaluation
    objectives: ClassVar[tuple[str, ...]] = ("sigmoid",)
    fewest_classes: ClassVar[int] = 1

    def label(self, classes: Sequence[int]) -> Label:
        """Return the classes, ascending, each once."""
        return several_classes(classes)

    def takes(self, label: Label) -> bool:
        """Tell whether a label is of several classes, or of none."""
        return isinstance(label, tuple)

    def encode(self, labels: Sequence[Label], num_classes: int) -> Targets:
        """Return 0 or 1 for each class (batch, classes)."""
        listed = [label for label in labels if isinstance(label, tuple)]
        if len(listed) < len(labels):
            raise DataError("An image has no list of labels, which is what the network learns.")
        return marked(listed, num_classes)

    def probabilities(self, logits: Logits) -> Probabilities:
        """Return the sigmoids: of each class how probable it is, whatever the others are."""
        return logits.float().sigmoid()

    def loss(self, logits: Logits, targets: Targets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        """Return the sigmoid cross-entropy, summed over the classes."""
        return sigmoid_cross_entropy(logits, targets, label_smoothing=label_smoothing)

    def right(self, logits: Logits, targets: Targets) -> Bool[Tensor, " batch"]:
        """Tell whether the most probable class is one of the image's; of an image without any, whether none is probable."""
        largest = targets.amax(dim=1)
        picked = targets.gather(1, logits.argmax(dim=1)[:, None])[:, 0]
        return torch.where(largest > 0, picked == largest, logits.amax(dim=1) < 0)

    def validate(self, probabilities: Probabilities, targets: Targets) -> dict[str, float]:
        """Return mean average precision and F1."""
        names = [str(index) for index in range(probabilities.shape[1])]
        scores = self.score(probabilities, targets, class_names=names, describe=str)
        return {"map": scores.mean_average_precision, "f1": scores.f1_micro}

    def score(
        self, probabilities: Probabilities, targets: Targets, *, class_names: Sequence[str], describe: Describe
    ) -> MultiLabelEvaluation:
        """Score predicted probabilities against the labels, 0 or 1 each."""
        from sklearn.metrics import average_precision_score, f1_score  # a second of start-up, for scoring alone

        values, truth = probabilities.double().numpy(), targets.numpy() > 0
        check_probabilities(values)
        given = values >= THRESHOLD
        precision = tuple(
            float(average_precision_score(truth[:, index], values[:, index])) if truth[:, index].any() else None
            for index in range(truth.shape[1])
        )
        known = [value for value in precision if value is not None]
        return MultiLabelEvaluation(
            num_examples=len(values),
            class_names=tuple(class_names),
            mean_average_precision=float(np.mean(known)) if known else 0.0,
            average_precision=precision,
            f1_micro=float(f1_score(truth, given, average="micro", zero_division=0.0)),
            f1_macro=float(f1_score(truth, given, average="macro", zero_division=0.0)),
            exact_match=float((given == truth).all(axis=1).mean()),
            support=tuple(int(count) for count in truth.sum(axis=0)),
        )


MULTI_LABEL = MultiLabel()
