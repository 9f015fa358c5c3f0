"""An image has exactly one of the classes: the paper's own task, scored by accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.errors import DataError
from vitral.objectives.classification import softmax_cross_entropy
from vitral.tasks.metrics import SMALLEST_PROBABILITY, Evaluation, evaluate_probabilities
from vitral.tasks.task import Describe, Figure, Label, Logits, Probabilities, Result, Targets, Task


@dataclass(frozen=True)
class SingleLabel(Task):
    """An image has one class."""

    name: ClassVar[str] = "single-label"
    labelled: ClassVar[str] = "have one class each"
    headline: ClassVar[Figure] = Figure("top1", "accuracy")
    result: ClassVar[type[Result]] = Evaluation
    objectives: ClassVar[tuple[str, ...]] = ("softmax", "sigmoid")
    exclusive: ClassVar[bool] = True
    closed_form: ClassVar[bool] = True
    mixable: ClassVar[bool] = True
    calibrated: ClassVar[bool] = True
    comparable: ClassVar[bool] = True
    folder_version: ClassVar[int] = 1

    def label(self, classes: Sequence[int]) -> Label:
        """Return the one class."""
        return classes[0]

    def takes(self, label: Label) -> bool:
        """Tell whether a label is one class."""
        return isinstance(label, int)

    def encode(self, labels: Sequence[Label], num_classes: int) -> Targets:
        """Return class numbers (batch,)."""
        if not all(isinstance(label, int) for label in labels):
            raise DataError("An image has not exactly one class, which is what the network learns.")
        return torch.tensor(labels, dtype=torch.int64)

    def loss(self, logits: Logits, targets: Targets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        """Return the softmax cross-entropy."""
        return softmax_cross_entropy(logits, targets, label_smoothing=label_smoothing)

    def right(self, logits: Logits, targets: Targets) -> Bool[Tensor, " batch"]:
        """Tell whether the most probable class is the image's, or that of its largest share."""
        picked = logits.argmax(dim=1)
        if targets.ndim == 1:
            return picked == targets
        return targets.gather(1, picked[:, None])[:, 0] == targets.amax(dim=1)

    def validate(self, probabilities: Probabilities, targets: Targets) -> dict[str, float]:
        """Return the accuracy and the negative log-likelihood in nats, as "loss"."""
        correct = probabilities.argmax(dim=1) == targets
        own = probabilities[torch.arange(len(targets)), targets].clamp_min(SMALLEST_PROBABILITY)
        return {"accuracy": float(correct.float().mean()), "loss": float(-np.log(own.double().numpy()).mean())}

    def score(
        self, probabilities: Probabilities, targets: Targets, *, class_names: Sequence[str], describe: Describe
    ) -> Evaluation:
        """Score predicted probabilities against the true classes."""
        descriptions = [describe(index) for index in range(len(targets))]
        return evaluate_probabilities(probabilities, targets, class_names=class_names, descriptions=descriptions)


SINGLE_LABEL = SingleLabel()
