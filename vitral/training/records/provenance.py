"""What a classifier folder says of the run that it comes from."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vitral.classifier.provenance import BASELINE, BASELINE_IMAGES, IMAGES, Provenance
from vitral.evaluation.baselines import Baselines
from vitral.tasks.task import Result
from vitral.training.candidates.choice import Choice
from vitral.training.loop import TrainingResult
from vitral.training.planning.plan import Run
from vitral.training.records.data_record import data_changes
from vitral.training.records.environment import environment


def provenance(
    run: Run, training: TrainingResult, scores: Mapping[str, float], choice: Choice | None = None
) -> Provenance:
    """Return where a run's trained classifier comes from: start, data, recipe, length and machine, and what else was tried."""
    return Provenance(
        source=run.classifier.provenance.source,
        training={
            "kind": run.kind,
            "data": run.session.request.asked.required_data(),
            "data_fingerprint": run.data.fingerprint,
            "data_changes": data_changes(run.folder),
            "steps": training.steps,
            "skipped_batches": list(training.skipped),
            "recipe": run.recipe.model_dump(mode="json"),
            "environment": environment(),
            **tried(choice, run),
        },
        scores=scores,
    )


def tried(choice: Choice | None, run: Run) -> dict[str, Any]:
    """Return the entry of a classifier's training, and of other descriptions, that says what was tried and what was kept."""
    if choice is None:
        return {}
    return {"choice": {**choice.to_json(), "sentence": choice.sentence(run.data.task.headline)}}


def named_scores(evaluation: Result, baselines: Baselines | None, split: str) -> dict[str, float]:
    """Return a run's scores and those of its baselines, named by the split, with how many images each are of."""
    scores = {f"{split}/{name}": value for name, value in evaluation.scores().items()}
    if baselines is None or baselines.split != split:
        return scores
    beside = dataclasses.asdict(baselines).items()
    figures = {f"{split}{BASELINE}{name}": value for name, value in beside if isinstance(value, float)}
    counts = {f"{split}{IMAGES}": evaluation.num_examples, f"{split}{BASELINE_IMAGES}": baselines.num_test}
    return {**scores, **figures, **counts}
