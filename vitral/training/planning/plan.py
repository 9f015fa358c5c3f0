"""Everything that is decided of a run before its first step."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitral.classifier.classifier import Classifier
from vitral.classifier.provenance import Provenance
from vitral.data.source import DataSet
from vitral.images.augment import Augmentation
from vitral.models.model import Model
from vitral.training.planning.estimate import Cost
from vitral.training.records.asked import Asked
from vitral.training.settings.recipe import Recipe

Kind = Literal["fine-tune", "pre-train"]


@dataclass(frozen=True)
class Plan:
    """Everything decided before the first step.

    Attributes:
        kind: fine-tune or pre-train.
        folder: the run folder.
        data: what to learn.
        data_spec: how the user named it.
        start: what the weights came from, as `finetune` takes it; None where the recipe says it.
        classifier: the network in its starting state, with head, size, preprocessing and class names in place.
        recipe: the settings, resolved.
        augmentation: of the training images.
        reasons: why these settings, one line each.
        budget_seconds: the time that the run may take, measured from `started`; None for as long as it needs.
        started: `time.monotonic()` when the command began.
        cost: what training is expected to take.
        resume: whether the folder holds a run to go on with.
        baselines: whether to score the frozen features first.
        asked: what the user asked for.
        further: whether a run that is finished goes on: the user gave it more time.
        data_changed: whether the user said that the data may have changed since the run began.
        validate: whether to look at the validation split while training, and not only to score it at the end.
    """

    kind: Kind
    folder: Path
    data: DataSet
    data_spec: str
    start: str | None
    classifier: Classifier
    recipe: Recipe
    augmentation: Augmentation
    reasons: tuple[str, ...]
    budget_seconds: float | None
    started: float
    cost: Cost
    resume: bool
    baselines: bool
    asked: Asked
    further: bool = False
    data_changed: bool = False
    validate: bool = True

    def left(self) -> float:
        """Return the seconds until the command must have ended; infinite without a budget."""
        return math.inf if self.budget_seconds is None else self.budget_seconds - (time.monotonic() - self.started)

    def classifier_of(self, model: Model, provenance: Provenance | None = None) -> Classifier:
        """Return the plan's classifier with a network in the state that training gave it."""
        return Classifier(
            model,
            self.classifier.preprocessing,
            self.classifier.class_names,
            provenance=provenance,
            multi_label=self.data.multi_label,
        )
