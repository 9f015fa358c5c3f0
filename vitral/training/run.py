"""One run, whatever its kind: images, baselines, training, classifier, scores, all in one folder.

runs/photos/
  recipe.toml        the settings as resolved; running it again gives the same weights
  run.json           command, data, machine, versions
  images/            what the network saw
  baselines.json     k-nearest-neighbour and linear probe on the frozen features, before training
  metrics.jsonl      loss, accuracy and learning rate by step
  tensorboard/       the same for TensorBoard
  checkpoints/       what a resumed run continues from
  classifier/        the result
  evaluation.json    its scores on the test split
"""

import dataclasses
import json
import time

from vitral import distributed
from vitral.classifier.folder import save, update_provenance
from vitral.evaluation.evaluate import evaluate_source
from vitral.evaluation.fewshot import Baselines
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.layout import CLASSIFIER
from vitral.training.loop import TrainingResult, train
from vitral.training.methods.batches import open_further, training_batches
from vitral.training.methods.registry import method_of
from vitral.training.planning.plan import Run, Session
from vitral.training.planning.prepare import prepare
from vitral.training.planning.rehearsal import within_time
from vitral.training.records.description import remarks_on, write_description
from vitral.training.records.provenance import named_scores, provenance
from vitral.training.records.resume import check_resumed, note_what_is_new
from vitral.training.records.training_images import write_training_images
from vitral.training.result import RunResult
from vitral.training.scoring.baselines import run_baselines
from vitral.training.scoring.diagnosis import diagnose_run, merged
from vitral.training.scoring.validation import VALIDATION_IMAGES, run_validation, scoring_workers

UNSCORED = (
    "There are no images to validate or score on, so the scores will be of the training images themselves: give a class at "
    "least three images, or put some into a val/ folder."
)


def run_once(session: Session) -> RunResult:
    """Plan a session as one run and carry it out."""
    return execute(prepare(session))


def execute(whole: Run) -> RunResult:
    """Carry out a plan."""
    listener = whole.session.listener
    _announce(whole, listener)
    run, validating, budget = within_time(whole, listener)
    further = open_further(run.recipe, listener)
    batches = training_batches(
        run.data.splits["train"],
        run.recipe,
        image_size=run.classifier.model.image_size,
        augmentation=run.plan.augmentation,
        task=run.data.task,
        num_classes=len(run.data.class_names),
        fill=run.classifier.preprocessing.mean_colour,
        further=further,
        listener=listener,
    )
    check_resumed(run, further, listener)
    if distributed.is_main():
        write_description(whole, further)
        if run.session.resume:
            note_what_is_new(run.session)
        write_training_images(run.folder, run.data, batches, keep=run.session.resume)
    baselines = run_baselines(run, listener)
    training = train(
        run.classifier.model,
        batches,
        recipe=run.recipe,
        normalize=run.classifier.preprocessing.normalize,
        folder=run.folder,
        validate=run_validation(run, validating),
        resume=run.session.resume,
        further=run.session.further,
        remarks=remarks_on(run),
        budget=budget,
        listener=listener,
    )
    return _finish(run, training, baselines, listener)


def _announce(run: Run, listener: Listener) -> None:
    for line in (*run.lines(), f"Run folder: {run.folder}"):
        listener(Message(line))
    if run.data.scored_split() == "train":
        listener(Message(UNSCORED, warning=True))
    for bad in run.data.bad_images:
        listener(Message(f"Left out: {bad.path} ({bad.reason})", warning=True))


def _finish(run: Run, training: TrainingResult, baselines: Baselines | None, listener: Listener) -> RunResult:
    split = run.data.scored_split()
    trained = run.classifier_of(training.model)
    method_of(run.recipe).complete(trained, run.data.splits["train"], listener)
    folder = run.folder / CLASSIFIER
    if distributed.is_main():  # before all else: no figure and no drawing is worth a trained network
        save(run.classifier_of(training.model, provenance(run, training, {})), folder)
    evaluation = evaluate_source(
        trained, run.data.splits[split], limit=VALIDATION_IMAGES, workers=scoring_workers(run), listener=listener
    )
    diagnosis = diagnose_run(run, training, baselines, evaluation)
    scored = provenance(run, training, named_scores(evaluation, baselines, split))
    classifier = run.classifier_of(training.model.cpu(), scored)
    if distributed.is_main():
        update_provenance(classifier, folder)
        said = {"diagnosis": [dataclasses.asdict(finding) for finding in diagnosis], **evaluation.to_json()}
        write_file(run.folder / "evaluation.json", json.dumps(said, indent=2))
    distributed.barrier()
    for finding in merged(diagnosis):
        listener(Message(finding.sentence(), warning=True, verdict=True))
    seconds = time.monotonic() - run.session.started
    return RunResult(run, training, classifier, folder, baselines, evaluation, seconds, diagnosis)
