"""Logit adjustment of a trained network for unequal classes, in its head's bias (arXiv 2007.07314, equation 9).

The strength is 1, at which the paper's rule is that of the least balanced error, unless the recipe says another. It stays where
the validation images show that it pays, or where the recipe names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.metadata import LOGIT_ADJUSTMENT, Provenance
from vitral.data.source import Source
from vitral.evaluation.evaluate import predict_probabilities
from vitral.evaluation.rebalanced import Rebalanced, rebalanced
from vitral.events import Message
from vitral.models.model import Model
from vitral.objectives.unequal import PerClass, log_prior
from vitral.training.scoring.validation import VALIDATION_IMAGES, Scoring, adjusts, scoring_workers
from vitral.training.session import Run

TAU = 1.0
KEY = "objective.posthoc_adjustment"


@dataclass(frozen=True)
class LogitAdjustment:
    """What was done to the logits of a trained network.

    Attributes:
        tau: The strength; 0 for nothing.
        changed: What a strength of 1 changes on validation images; None where it was not tried.
    """

    tau: float
    changed: Rebalanced | None = None

    def sentence(self) -> str:
        """Return it in one sentence; empty where nothing was tried or asked for."""
        if self.changed is None:
            return f"Logits are adjusted for unequal classes, tau {self.tau:g}, as requested." if self.tau else ""
        figures = self.changed.sentence("validation photos")
        if not self.tau:
            return f"Logits are not adjusted for unequal classes, which would give {figures}."
        return f"Logits are adjusted for unequal classes: {figures}; {argument('overrides', [f'{KEY}=0'])} leaves that out."

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a classifier's description."""
        return {
            "tau": self.tau,
            **({} if self.changed is None else self.changed.to_json()),
            "sentence": self.sentence(),
        }


def adjust(run: Run, classifier: Classifier, scoring: Scoring) -> tuple[LogitAdjustment, bool]:
    """Adjust the head of a trained classifier as the recipe says; return what was done, and whether its bias changed.

    An adjustment that an earlier command made gives way to this one.
    """
    asked, images, own = run.objective.posthoc_adjustment, run.data.class_images(), classifier.provenance
    before = _offsets(own.class_images, _strength(own), len(classifier.class_names))
    made = LogitAdjustment(0.0 if asked == "auto" else asked)
    if adjusts(run) and scoring.validating is not None:
        changed = _tried(run, classifier, scoring.validating, before)
        made = LogitAdjustment(TAU if changed.pays else 0.0, changed)
    difference = _offsets(images, made.tau, len(classifier.class_names)) - before
    shift(classifier.model, difference)
    if said := made.sentence():
        run.listener(Message(said, detail=True))
    return made, bool(difference.any())


def _strength(provenance: Provenance) -> float:
    """Return how strongly the logits of a classifier are adjusted already."""
    entry = provenance.training.get(LOGIT_ADJUSTMENT)
    tau = entry.get("tau") if isinstance(entry, dict) else None
    return float(tau) if isinstance(tau, int | float) else 0.0


def _offsets(images: Sequence[int], tau: float, classes: int) -> PerClass:
    """Return what an adjustment of some strength subtracts from the logits."""
    return tau * log_prior(images) if tau and len(images) == classes else torch.zeros(classes)


@torch.no_grad()
def shift(model: Model, offsets: PerClass) -> None:
    """Subtract something from a network's logits; of two heads, whose mean it gives, both are shifted."""
    for head in (model.head, getattr(model, "distillation_head", None)):
        if head is not None and offsets.any():
            head.bias -= offsets.to(head.bias)


def _tried(run: Run, classifier: Classifier, validating: Source, before: PerClass) -> Rebalanced:
    """Return what a strength of 1 changes on the validation images; `before` was subtracted from the logits already."""
    probabilities, labels = predict_probabilities(
        classifier, validating, limit=VALIDATION_IMAGES, workers=scoring_workers(run), listener=run.listener
    )
    logits = probabilities.double().clamp_min(torch.finfo(torch.float32).tiny).log() + before
    adjusted = logits - TAU * log_prior(run.data.class_images())
    return rebalanced(logits.argmax(dim=1) == labels, adjusted.argmax(dim=1) == labels, labels)
