"""One run, whatever its kind: images, baselines, training, classifier, scores, all in one folder.

runs/photos/
  recipe.toml        the settings as resolved; running it again gives the same weights
  run.json           command, data, machine, versions
  images/          what the network saw
  baselines.json     k-nearest-neighbour and linear probe on the frozen features, before training
  metrics.jsonl      loss, accuracy and learning rate by step
  tensorboard/       the same for TensorBoard
  checkpoints/       what a resumed run goes on from
  classifier/        the result
  evaluation.json    its scores on the test split
"""

import dataclasses
import json
import time

from vitral import distributed
from vitral.classifier.folder import save, update_provenance
from vitral.data.loader import TrainingBatches
from vitral.evaluation.evaluate import evaluate_source
from vitral.evaluation.fewshot import Baselines
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.layout import CLASSIFIER
from vitral.models.catalog import describe
from vitral.models.cost import count_parameters
from vitral.training.loop import TrainingResult, train
from vitral.training.mixing import mixes
from vitral.training.planning.plan import Plan
from vitral.training.planning.rehearsal import within_time
from vitral.training.records.asked import ask_again
from vitral.training.records.description import remarks_on, write_description
from vitral.training.records.provenance import named_scores, provenance
from vitral.training.records.resume import check_resumed
from vitral.training.records.training_images import write_training_images
from vitral.training.result import RunResult
from vitral.training.scoring.baselines import run_baselines
from vitral.training.scoring.diagnosis import diagnose_run, merged
from vitral.training.scoring.head import fit_head
from vitral.training.scoring.validation import VALIDATION_IMAGES, run_validation, scoring_workers

UNSCORED = (
    "There are no images to validate or score on, so the scores will be of the training images themselves: give a class at "
    "least three images, or put some into a val/ folder."
)


def execute(plan: Plan, listener: Listener) -> RunResult:
    """Carry out a plan."""
    _announce(plan, listener)
    whole = plan
    plan, validating, budget = within_time(plan, listener)
    batches = TrainingBatches(
        plan.data.splits["train"],
        batch_size=plan.recipe.batch_size,
        image_size=plan.classifier.model.image_size,
        augmentation=plan.augmentation,
        seed=plan.recipe.seed,
        num_classes=len(plan.data.class_names) if plan.data.multi_label else None,
        rank=distributed.rank(),
        world=distributed.world(),
        lead=mixes(plan.recipe.mixing),
        fill=plan.classifier.preprocessing.mean_colour,
    )
    check_resumed(plan, listener)
    if distributed.is_main():
        write_description(whole)
        if plan.resume:
            ask_again(
                plan.folder,
                budget_seconds=plan.asked.budget_seconds if plan.further else None,
                overrides=plan.asked.overrides,
            )
        write_training_images(plan.folder, plan.data, batches, keep=plan.resume)
    baselines = run_baselines(plan, listener)
    training = train(
        plan.classifier.model,
        batches,
        recipe=plan.recipe,
        normalize=plan.classifier.preprocessing.normalize,
        folder=plan.folder,
        validate=run_validation(plan, validating),
        resume=plan.resume,
        further=plan.further,
        remarks=remarks_on(plan),
        budget=budget,
        listener=listener,
    )
    return _finish(plan, training, baselines, listener)


def _announce(plan: Plan, listener: Listener) -> None:
    model = plan.classifier.model
    counts = ", ".join(f"{name} {count}" for name, count in plan.data.counts().items())
    lines = [
        f"Found {plan.data.name}: {len(plan.data.class_names)} classes; images: {counts}.",
        *plan.data.notes,
        f"Network: {describe(model.config)}, {count_parameters(model):,} parameters, images of "
        f"{model.image_size[0]}x{model.image_size[1]} pixels, from {plan.classifier.provenance.source}.",
        *plan.reasons,
        f"Run folder: {plan.folder}",
    ]
    for line in lines:
        listener(Message(line))
    if plan.data.scored_split() == "train":
        listener(Message(UNSCORED, warning=True))
    for bad in plan.data.bad_images:
        listener(Message(f"Left out: {bad.path} ({bad.reason})", warning=True))


def _finish(plan: Plan, training: TrainingResult, baselines: Baselines | None, listener: Listener) -> RunResult:
    split = plan.data.scored_split()
    trained = plan.classifier_of(training.model)
    if plan.recipe.objective.name == "masked-patches":
        fit_head(trained, plan.data.splits["train"], listener)
    folder = plan.folder / CLASSIFIER
    if distributed.is_main():  # before all else: no figure and no drawing is worth a trained network
        save(plan.classifier_of(training.model, provenance(plan, training, {})), folder)
    evaluation = evaluate_source(
        trained, plan.data.splits[split], limit=VALIDATION_IMAGES, workers=scoring_workers(plan), listener=listener
    )
    diagnosis = diagnose_run(plan, training, baselines, evaluation)
    scored = provenance(plan, training, named_scores(evaluation, baselines, split))
    classifier = plan.classifier_of(training.model.cpu(), scored)
    if distributed.is_main():
        update_provenance(classifier, folder)
        said = {"diagnosis": [dataclasses.asdict(found) for found in diagnosis], **evaluation.to_json()}
        write_file(plan.folder / "evaluation.json", json.dumps(said, indent=2))
    distributed.barrier()
    for found in merged(diagnosis):
        listener(Message(found.sentence(), warning=True, verdict=True))
    seconds = time.monotonic() - plan.started
    return RunResult(plan, training, classifier, folder, baselines, evaluation, seconds, diagnosis)
