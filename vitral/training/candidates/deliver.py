"""From what a run tried to what it delivers: the first classifier where there is one, and the better of it and training."""

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import read, save, update_provenance
from vitral.classifier.provenance import Provenance
from vitral.data.source import Source
from vitral.errors import WeightsError
from vitral.evaluation.baselines import Baselines
from vitral.evaluation.evaluate import evaluate_source
from vitral.evaluation.looks import TEST, note_look
from vitral.events import Listener, Message, ignore
from vitral.files import write_file
from vitral.layout import CLASSIFIER, RUN_FILE
from vitral.models.model import Model
from vitral.tasks.task import Result
from vitral.training.candidates.choice import TRAINED, Candidate, Choice, choose
from vitral.training.candidates.first import FIRST_SHARE, First, first_classifier
from vitral.training.loop import TrainingResult
from vitral.training.methods.method import method_of
from vitral.training.optimization.precision import training_device
from vitral.training.planning.budget import machine_slowness
from vitral.training.planning.durations import written
from vitral.training.planning.plan import Run
from vitral.training.planning.rehearsal import FIXED_SECONDS, REPORTED_IMAGES, Rehearsed, to_score
from vitral.training.planning.request import ADAPTED, SCRATCH
from vitral.training.records.asked import read_run
from vitral.training.records.attempts import states
from vitral.training.records.provenance import named_scores, provenance, tried
from vitral.training.result import RunResult
from vitral.training.scoring.diagnosis import diagnose_run, merged
from vitral.training.scoring.validation import VALIDATION_IMAGES, run_validation, scoring_workers

LATE = "a linear model of what a few seconds allow is made all the same"
LATE_SECONDS = 5.0  # for it


def try_first(rehearsed: Rehearsed, listener: Listener) -> tuple[First | None, str]:
    """Return the first classifier, and why nothing is trained after it; empty where the run goes on with training.

    Where the time is over before there is anything, a small one is made all the same: late is better than nothing.
    """
    run, session = rehearsed.run, rehearsed.run.session
    if run.why_no_first:
        return None, ""
    alone = bool(_why_alone(rehearsed))
    seconds, after = math.inf, 0
    if session.budget_seconds is not None:
        seconds = session.left() - FIXED_SECONDS * machine_slowness() if alone else FIRST_SHARE * session.left()
        after = min(run.scored or 0, VALIDATION_IMAGES) + REPORTED_IMAGES if alone else 0
    first = first_classifier(run, rehearsed.validating, listener, seconds=seconds, after=after)
    if first is None and (alone or rehearsed.too_short()):
        given = argument("time", written(session.budget_seconds or 0.0))
        listener(Message(f"{given} leaves no time for anything; {LATE}.", warning=True))
        first = first_classifier(run, rehearsed.validating, listener, seconds=LATE_SECONDS, after=0, late=True)
    if first is None:
        listener(Message(f"No first classifier: it would take longer than {seconds:.1f} s."))
        return None, ""
    why = _why_alone(rehearsed)
    if not _begun(run):  # else what was trained may have taken its place
        listener(Message(f"{first.sentence(run)}{'.' if why else '; going on.'}"))
    return first, why


def _begun(run: Run) -> bool:
    """Tell whether a run goes on with training that it began."""
    return run.session.resume and bool(distributed.broadcast(states(run.folder)))


def _why_alone(rehearsed: Rehearsed) -> str:
    """Return why nothing is trained after the first classifier; empty if something is."""
    run = rehearsed.run
    if _begun(run):
        return ""
    if run.session.request.asked.quick:
        return f"Nothing else was asked for; {argument('resume', True)} goes on with training."
    if rehearsed.validating is None:
        recipe = ADAPTED if run.plan.origin == "weights" else SCRATCH
        return (
            "Nothing is trained, for there are no validation images to tell whether that would be better; "
            f"{argument('recipe', recipe)} trains all the same."
        )
    if run.plan.why_none:
        return f"Nothing is trained; give it more {argument('time')}."
    if rehearsed.too_short():
        enough = argument("time", written(rehearsed.worthwhile()))
        return f"Nothing is trained: there is no time left for it; {enough} would have room for some training."
    return ""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run delivers, and how it came to that.

    Attributes:
        run: with the recipe of the training.
        classifier: what is delivered, on the device that scores it.
        training: of the network that was trained, or of the best of several; None where nothing was trained.
        trained: whether it is that network which is delivered.
        choice: what was tried and what of it is kept; None where only one thing was to be tried.
    """

    run: Run
    classifier: Classifier
    training: TrainingResult | None
    trained: bool
    choice: Choice | None

    def described(self, scores: Mapping[str, float]) -> Classifier:
        """Return the classifier with what is known of it: of a trained one the run, of the first one what it said itself."""
        delivered, own = self.classifier, self.classifier.provenance
        if self.trained:
            assert self.training is not None, "a network that was trained has a training"
            said = provenance(self.run, self.training, scores, self.choice)
            return self.run.classifier_of(delivered.model, said)
        training = {**own.training, **tried(self.choice, self.run)}
        said = Provenance(own.source, training, {**own.scores, **scores}, own.notes)
        return Classifier(
            delivered.model, delivered.preprocessing, delivered.class_names, provenance=said, task=delivered.task
        )


def one_outcome(rehearsed: Rehearsed, training: TrainingResult, first: First | None, listener: Listener) -> Outcome:
    """Return the better of the first classifier, if there is one, and the one network that was trained.

    Where there is one, a finished run that was trained further keeps the network that it had unless the new one is better.
    """
    run = rehearsed.run
    complete(run, training, rehearsed.completing, listener)
    choice = None
    if first is not None:
        training, figure = _better(rehearsed, training, listener)
        network = Candidate(TRAINED, figure, first.candidate.images)
        choice = choose([first.candidate, network], run.data.task.headline)
        if choice.kept != TRAINED:
            return Outcome(run, first.load().to(training_device()), training, False, choice)
    return Outcome(run, run.classifier_of(training.model), training, True, choice)


def _better(rehearsed: Rehearsed, training: TrainingResult, listener: Listener) -> tuple[TrainingResult, float]:
    """Return the better of what was trained and of what the run had delivered before that, and its figure."""
    run, headline, now = rehearsed.run, rehearsed.run.data.task.headline, figure_of(rehearsed, training)
    steps, before = _before(run)
    if not distributed.broadcast(before is not None and steps < training.steps):
        return training, now
    assert before is not None, "the run's folder is the same in every process"
    was = validated(rehearsed, before)
    if headline.improves(now, was):
        return training, now
    listener(
        Message(
            f"Trained further, to {training.steps:,} steps, the network has {headline.text(now)} on the validation images, and "
            f"had {headline.text(was)} after {steps:,}: that one is kept."
        )
    )
    history = [row for row in training.history if row["step"] <= steps]
    return replace(training, model=before, steps=steps, history=history), was


def _before(run: Run) -> tuple[int, Model | None]:
    """Return the network that the run's classifier is so far, and the steps that made it; None where it was not trained."""
    if not run.session.resume:
        return 0, None
    try:
        before = read(run.folder / CLASSIFIER)
    except WeightsError:  # there is none, or a damaged one
        return 0, None
    steps = before.provenance.training.get("steps")
    if not isinstance(steps, int) or before.class_names != run.data.class_names:
        return 0, None
    return steps, before.to(training_device()).model


def first_outcome(run: Run, first: First) -> Outcome:
    """Return the first classifier as what a run delivers that trained nothing."""
    choice = choose([first.candidate], run.data.task.headline)
    return Outcome(run, first.load().to(training_device()), None, False, choice)


def complete(run: Run, training: TrainingResult, images: Source, listener: Listener) -> None:
    """Do what the method does with a network once it is trained, by training images for which there is time."""
    method_of(run.recipe).complete(run.recipe, run.classifier_of(training.model), images, listener)


def finish(outcome: Outcome, baselines: Baselines | None, listener: Listener) -> RunResult:
    """Save and score what a run delivers, and say what is to be said of it.

    Args:
        outcome: what it delivers.
        baselines: scores of simple classifiers.
        listener: hears the choice, progress and problems.
    """
    outcome = replace(outcome, run=to_score(outcome.run))
    run, choice, split = outcome.run, outcome.choice, outcome.run.data.scored_split()
    folder = run.folder / CLASSIFIER
    if torchrun.is_main():  # before all else: no figure and no drawing is worth a trained network
        save(outcome.described({}), folder)
    if choice is not None and len(choice.candidates) > 1:
        listener(Message(choice.sentence(run.data.task.headline)))
    if split == TEST and torchrun.is_main():
        note_look(run.folder, run.data, run.kind)
    evaluation = _evaluated(outcome, split, listener)
    training = outcome.training or _untrained(outcome.classifier)
    beside = baselines if outcome.trained else None  # a simple classifier would be compared with itself
    diagnosis = diagnose_run(run, training, beside, evaluation)
    outcome.classifier.cpu()
    classifier = outcome.described(named_scores(evaluation, beside, split))
    if torchrun.is_main():
        update_provenance(classifier, folder)
        found = {"diagnosis": [dataclasses.asdict(finding) for finding in diagnosis]}
        said = {**found, **tried(choice, run), "split": split, **evaluation.to_json()}
        write_file(run.folder / "evaluation.json", json.dumps(said, indent=2))
        if choice is not None:
            write_file(run.folder / RUN_FILE, json.dumps(read_run(run.folder) | tried(choice, run), indent=2))
    distributed.barrier()
    for finding in merged(diagnosis):
        listener(Message(finding.sentence(), warning=True, verdict=True))
    seconds = time.monotonic() - run.session.started
    return RunResult(run, training, classifier, folder, baselines, evaluation, seconds, diagnosis, choice)


def _evaluated(outcome: Outcome, split: str, listener: Listener) -> Result:
    run, source = outcome.run, outcome.run.data.splits[split]
    if not run.data.task.scored:  # no image need be looked at for that
        unknown = torch.zeros(len(source), 0)
        return run.data.task.score(unknown, unknown, class_names=run.data.class_names, describe=source.describe)
    return evaluate_source(
        outcome.classifier, source, limit=VALIDATION_IMAGES, workers=scoring_workers(run), listener=listener
    )


def figure_of(rehearsed: Rehearsed, training: TrainingResult) -> float:
    """Return a trained network's figure on the validation images, in every process: the log's, of its last update."""
    return distributed.broadcast(_figure(rehearsed, training))


def validated(rehearsed: Rehearsed, model: Model) -> float:
    """Return a network's figure on the validation images as they are now, in every process."""
    return distributed.broadcast(_validated(rehearsed, model))


def _figure(rehearsed: Rehearsed, training: TrainingResult) -> float:
    last = [row for row in training.history if row.get("step") == training.steps]
    for row in reversed(last):
        for name, value in row.items():
            if name.startswith("validation/"):
                return float(value)
    return _validated(rehearsed, training.model)


def _validated(rehearsed: Rehearsed, model: Model) -> float:
    validate = run_validation(rehearsed.run, rehearsed.validating, rehearsed.live)
    figures = None if validate is None else validate(model, ignore, lambda: False)
    assert figures is not None, "the network was not validated"
    return next(iter(figures.values()))


def _untrained(delivered: Classifier) -> TrainingResult:
    return TrainingResult(
        model=delivered.model,
        steps=0,
        best_step=None,
        best_accuracy=None,
        history=[],
        seconds=0.0,
        images_per_second=0.0,
    )
