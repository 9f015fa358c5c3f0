"""What a run's folder and its classifier tell of the run: how it began, on what, what it made and what else was tried."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitral.classifier.provenance import BASELINE, BASELINE_IMAGES, IMAGES, Provenance
from vitral.data.loader import TrainingBatches
from vitral.data.source import DataSet
from vitral.evaluation.baselines import Baselines
from vitral.files import write_file
from vitral.images.drawing import contact_sheet
from vitral.tasks.task import Result, classes_of
from vitral.training.candidates.choice import Choice
from vitral.training.loop import TrainingResult
from vitral.training.records.data_record import Further, data_changes, keep_data
from vitral.training.records.environment import environment, git_state
from vitral.training.records.run_file import read_run, update_run
from vitral.training.resume import RESUMED
from vitral.training.session import Run

DRAWN = 32  # images on the contact sheet


def write_description(run: Run, further: Further) -> None:
    """Write into the run folder how the run began, and with which further data; how it began is written once."""
    began = run.classifier.provenance
    start = {"from": None if run.kind == "pre-train" else run.plan.start, "source": began.source}
    if "environment" in read_run(run.folder):
        update_run(run.folder, start)  # which may have been chosen anew, where nothing was trained before
        return
    update_run(
        run.folder,
        {
            **asked(run),
            "further_data": {
                name: {"data": data.name, "fingerprint": data.fingerprint} for name, data in further.items()
            },
            **start,
            "class_names": list(run.data.class_names),
            "images": run.data.counts(),
            "notes": list(run.data.notes),
            "bad_images": [dataclasses.asdict(bad) for bad in run.data.bad_images],
            "environment": environment(),
            "git": git_state(),
        },
    )
    keep_data(run.folder, run.data, further)


def asked(run: Run) -> dict[str, Any]:
    """Return the kind of a run and its data, as its folder and its classifiers tell them."""
    return {"kind": run.kind, "data": run.request.required_data(), "data_fingerprint": run.data.fingerprint}


def remarks_on(run: Run) -> tuple[str, ...]:
    """Return why running the recipe again would not give the same weights, one line each."""
    remarks = [f"the data changed after step {change.get('after_step')}" for change in data_changes(run.folder)]
    if read_run(run.folder).get(RESUMED):
        remarks.append("it was gone on with by other means (threads, versions or processor; see run.json)")
    return tuple(remarks)


def write_training_images(folder: Path, data: DataSet, batches: TrainingBatches, *, keep: bool) -> None:
    """Draw images of the first batch, as augmented, with their class names.

    Args:
        folder: The run folder.
        data: Where they are from.
        batches: What the network learns from.
        keep: Whether a sheet that is there stays.
    """
    path = folder / "images" / "training.png"
    if keep and path.is_file():
        return
    batch = batches.batch(0)
    images = list(batch.images[:DRAWN].permute(0, 2, 3, 1).numpy())
    labels = [data.splits["train"].label(index) for index in batch.indices[:DRAWN].tolist()]
    names = [", ".join(data.class_names[number] for number in classes_of(label)) for label in labels]
    write_file(path, contact_sheet(images, names))


def provenance(run: Run, training: TrainingResult, scores: Mapping[str, float], choice: Choice | None) -> Provenance:
    """Return where a run's trained classifier comes from: start, data, recipe, length and machine, and what else was tried."""
    began = run.classifier.provenance
    return Provenance(
        source=began.source,
        training={
            **asked(run),
            "data_changes": data_changes(run.folder),
            "steps": training.steps,
            "skipped_batches": list(training.skipped),
            "recipe": run.recipe.model_dump(mode="json"),
            "environment": environment(),
            **choice_entry(choice),
        },
        scores=scores,
    )


def choice_entry(choice: Choice | None) -> dict[str, Any]:
    """Return the entry of a classifier's description for what was tried and what of it is delivered; empty without a choice."""
    return {} if choice is None else {"choice": choice.to_json()}


def named_scores(evaluation: Result, baselines: Baselines | None, split: str) -> dict[str, float]:
    """Return a run's scores and those of its baselines, named by the split, with how many images each are of."""
    scores = {f"{split}/{name}": value for name, value in evaluation.scores().items()}
    if baselines is None or baselines.split != split:
        return scores
    beside = dataclasses.asdict(baselines).items()
    figures = {f"{split}{BASELINE}{name}": value for name, value in beside if isinstance(value, float)}
    counts = {f"{split}{IMAGES}": evaluation.num_examples, f"{split}{BASELINE_IMAGES}": baselines.num_test}
    return {**scores, **figures, **counts}
