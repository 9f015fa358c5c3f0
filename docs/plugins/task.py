"""Classes that have an order, such as grades: --plugin task.py --set task=ordinal. One file is a whole task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import vitral
from vitral.tasks.shown import Table
from vitral.tasks.task import Figure, Label, Mistake, Result, Task


@dataclass(frozen=True)
class Grades(Result):
    """How far off the answers are, in classes."""

    num_examples: int
    class_names: tuple[str, ...]
    mae: float
    by_class: tuple[float | None, ...]
    mistakes: tuple[Mistake, ...] = ()

    def headline(self) -> float:
        return self.mae

    def scores(self) -> dict[str, float]:
        return {"mae": self.mae}

    def sentence(self, split: str) -> str:
        return f"Off by {self.mae:.2f} classes in the mean, on {self.num_examples} {split} images."

    def lines(self) -> tuple[str, ...]:
        return (self.sentence("scored"),)

    def tables(self) -> tuple[Table, ...]:
        off = zip(self.class_names, self.by_class, strict=True)
        return (Table("Every class", ("Class", "Off by"), tuple((name, f"{value or 0:.2f}") for name, value in off)),)


@dataclass(frozen=True)
class Ordinal(Task):
    """One logit for each step from a class to the next: is the image beyond it? (arXiv 1901.07884)."""

    name = "ordinal"
    labelled = "have one class each"
    headline = Figure("mae", "mean absolute error", more_is_better=False, is_share=False)

    def outputs(self, num_classes: int) -> int:
        return num_classes - 1

    def label(self, classes: Sequence[int]) -> Label:
        return classes[0]

    def takes(self, label: Label) -> bool:
        return isinstance(label, int)

    def encode(self, labels: Sequence[Label], num_classes: int) -> Tensor:
        return (torch.tensor(labels)[:, None] > torch.arange(num_classes - 1)).float()

    def loss(self, logits: Tensor, targets: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
        return functional.binary_cross_entropy_with_logits(logits.float(), targets)

    def probabilities(self, logits: Tensor) -> Tensor:
        beyond = functional.pad(logits.float().sigmoid().cummin(dim=1).values, (1, 0), value=1.0)
        return beyond - functional.pad(beyond[:, 1:], (0, 1))

    def right(self, logits: Tensor, targets: Tensor) -> Tensor:
        return ((logits > 0).float() - targets).abs().sum(dim=1) < 1

    def validate(self, probabilities: Tensor, targets: Tensor) -> dict[str, float]:
        return {"mae": float(self._off(probabilities, targets).mean())}

    def score(
        self, probabilities: Tensor, targets: Tensor, *, class_names: Sequence[str], describe: Callable[[int], str]
    ) -> Grades:
        off, truth = self._off(probabilities, targets), targets.sum(dim=1).long()
        values, picked = probabilities.max(dim=1)
        wrong = (off > 1).nonzero()[:, 0].tolist()  # the next class is no mistake
        return Grades(
            len(off),
            tuple(class_names),
            float(off.mean()),
            tuple(float(off[truth == k].mean()) if (truth == k).any() else None for k in range(len(class_names))),
            tuple(
                Mistake(i, describe(i), class_names[truth[i]], class_names[picked[i]], float(values[i])) for i in wrong
            ),
        )

    def _off(self, probabilities: Tensor, targets: Tensor) -> Tensor:
        return (probabilities.argmax(dim=1) - targets.sum(dim=1)).abs()

    def read(self, values: Mapping[str, Any]) -> Grades:
        mistakes = tuple(Mistake(**mistake) for mistake in values["mistakes"])
        names, off = tuple(values["class_names"]), tuple(values["by_class"])
        return Grades(**{**values, "class_names": names, "by_class": off, "mistakes": mistakes})


vitral.register("task", "ordinal", Ordinal())
