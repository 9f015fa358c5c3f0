"""What is measured on the validation split while a run trains."""

import math

import numpy as np
import torch

from vitral.data.source import Source
from vitral.evaluation.evaluate import predict_probabilities
from vitral.evaluation.multilabel import evaluate_multi_label
from vitral.events import Listener
from vitral.models.model import Model
from vitral.training.loop import Validate
from vitral.training.planning.plan import Run

VALIDATION_IMAGES = 2000  # of an endless source, which has no last image
FEW_IMAGES = 5000  # for which starting workers takes longer than they save


def run_validation(run: Run, source: Source | None) -> Validate | None:
    """Return what measures the network on some images; None where there are none, or nothing is to be measured on them."""
    if source is None or not run.session.validate or run.recipe.objective.name == "masked-patches":
        return None  # a head that nothing has trained has nothing to say

    def validate(model: Model, listener: Listener) -> dict[str, float]:
        classifier = run.classifier_of(model)
        probabilities, labels = predict_probabilities(
            classifier, source, limit=VALIDATION_IMAGES, workers=scoring_workers(run), listener=listener
        )
        if not torch.isfinite(probabilities).all():
            return {"validation/accuracy": math.nan}
        if run.data.multi_label:
            scores = evaluate_multi_label(probabilities, labels, class_names=classifier.class_names)
            return {"validation/map": scores.mean_average_precision, "validation/f1": scores.f1_micro}
        correct = probabilities.argmax(dim=1) == labels
        picked = probabilities[torch.arange(len(labels)), labels].clamp_min(1e-12)
        return {
            "validation/accuracy": float(correct.float().mean()),
            "validation/loss": float(-np.log(picked.double().numpy()).mean()),
        }

    return validate


def scoring_workers(run: Run) -> int:
    """Return the processes that read the images to score on."""
    return 0 if len(run.data.splits["train"]) < FEW_IMAGES else run.recipe.workers
