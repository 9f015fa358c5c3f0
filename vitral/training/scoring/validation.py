"""The measurements on the validation split while a run trains."""

import math
from collections.abc import Callable

import torch

from vitral.errors import Stopped
from vitral.evaluation.evaluate import predict_probabilities
from vitral.events import Listener
from vitral.models.model import Model
from vitral.training.loop import Validate
from vitral.training.methods.method import method_of
from vitral.training.scoring.within_time import Scoring
from vitral.training.session import Run

VALIDATION_IMAGES = 2000  # of an endless source
FEW_IMAGES = 5000  # below this number starting workers takes longer than they save


def run_validation(run: Run, scoring: Scoring) -> Validate | None:
    """Return the function that scores the network on a run's validation images; None if there is nothing to score."""
    if not run.validate:
        return None
    # An untrained head is not scored.
    scored, live = scoring.validating if method_of(run.recipe).trains_head(run.recipe) else None, scoring.live
    if scored is None and live is None:
        return None

    def validate(model: Model, listener: Listener, stop: Callable[[], bool]) -> dict[str, float] | None:
        classifier, task, workers = run.classifier_of(model), run.data.task, scoring_workers(run)
        figures: dict[str, float] = {}
        try:
            if scored is not None:
                probabilities, targets = predict_probabilities(
                    classifier, scored, limit=VALIDATION_IMAGES, workers=workers, listener=listener, stop=stop
                )
                finite = bool(torch.isfinite(probabilities).all())
                known = task.validate(probabilities, targets) if finite else {task.headline.name: math.nan}
                figures = {f"validation/{name}": value for name, value in known.items()}
            if live is not None and all(map(math.isfinite, figures.values())):
                figures |= live.figures(classifier, workers, listener, stop)
        except Stopped:
            return None
        return figures

    return validate


def scoring_workers(run: Run) -> int:
    """Return the number of processes that read the images to score."""
    return 0 if len(run.splits["train"]) < FEW_IMAGES else run.recipe.workers
