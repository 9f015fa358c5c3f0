"""The ways to learn that a run tries in turn, each in a folder of its own, and the best of them as the run's classifier."""

import copy
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_type_hints

from vitral import distributed
from vitral.advice import argument
from vitral.classifier.folder import is_classifier, read, save
from vitral.data.loader import TrainingBatches
from vitral.described import fits
from vitral.errors import TrainingDiverged, TrainingInterrupted
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.layout import CLASSIFIER
from vitral.training.candidates.choice import Candidate, Choice, choose
from vitral.training.candidates.deliver import Outcome, complete, figure_of, first_outcome
from vitral.training.candidates.first import First
from vitral.training.loop import TrainingResult, train
from vitral.training.optimization.precision import training_device
from vitral.training.planning.attempts import Attempt
from vitral.training.planning.budget import Budget, Reserve, machine_slowness
from vitral.training.planning.plan import Run
from vitral.training.planning.rehearsal import DOUBT, Rehearsed
from vitral.training.records.attempts import attempt_folder, note_attempts
from vitral.training.records.description import remarks_on
from vitral.training.records.logs import METRICS_FILE, read_metrics
from vitral.training.records.recipe_file import RECIPE_FILE
from vitral.training.records.run_folder import ATTEMPT_FILE
from vitral.training.scoring.validation import run_validation
from vitral.training.settings.recipe import load_recipe

SAVING_SECONDS = 1.0  # of an idle core like ours, for the classifier of an attempt that is finished


@dataclass(frozen=True)
class Record:
    """What is known of an attempt that is finished; see `Candidate` and `TrainingResult`."""

    name: str
    figure: float
    images: int
    steps: int
    best_step: int | None
    best_accuracy: float | None
    seconds: float
    images_per_second: float
    skipped: tuple[int, ...] = ()

    @property
    def candidate(self) -> Candidate:
        """What it is and how good."""
        return Candidate(self.name, self.figure, self.images)


def attempt(rehearsed: Rehearsed, batches: TrainingBatches, first: First, listener: Listener) -> Outcome:
    """Try the ways to learn that are planned, and return the best of them and the first classifier.

    Those that were finished before the run was stopped are not repeated; the one that was begun goes on; one that diverges is
    given up.

    Raises:
        TrainingInterrupted: a signal stopped the run, which saved itself; its classifier is the best so far.
        TrainingError: another process of the job was lost.
        StorageError: the disk is full.
    """
    run = rehearsed.run
    note_attempts(run.folder, run.plan.attempts)
    records = distributed.broadcast(_records(run))
    pending = [one for one in run.plan.attempts if one.name not in records]
    for index, one in enumerate(pending):
        budget = _budget(rehearsed, pending[index:])
        if budget is None:
            listener(Message(f"{_named(one)}: not tried, for there is no time left for it."))
            continue
        try:
            training = _trained(rehearsed, one, batches, budget, first, listener)
        except TrainingDiverged as failure:  # in every process of a job alike
            listener(Message(f"{_named(one)}: given up. {failure}", warning=True))
            continue
        records[one.name] = _finished(rehearsed, one, training, first, records, listener)
    return _best(run, first, records)


def _named(attempt: Attempt) -> str:
    return attempt.name[0].upper() + attempt.name[1:]


def _of(run: Run, attempt: Attempt) -> Run:
    """Return the run of one attempt, with the recipe that it began with."""
    path = attempt_folder(run.folder, attempt) / RECIPE_FILE
    plan = run.plan.of(attempt)
    if path.is_file():
        plan = replace(plan, recipe=load_recipe(path, run.session.request.said))
    return replace(run, plan=plan)


def _records(run: Run) -> dict[str, Record]:
    """Return what is known of the attempts that are finished, by name; of a run that gets more time all but the best."""
    read = {one.name: _read(attempt_folder(run.folder, one)) for one in run.plan.attempts}
    finished = {name: record for name, record in read.items() if record is not None}
    if finished and (run.session.further or "steps" in run.session.request.told):
        candidates = [record.candidate for record in finished.values()]
        del finished[choose(candidates, run.data.task.headline).kept]
    return finished


def _read(folder: Path) -> Record | None:
    """Return what is known of the attempt in a folder; None where it is not finished, or damaged."""
    try:
        values = json.loads((folder / ATTEMPT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    hints = get_type_hints(Record)
    if not isinstance(values, dict) or values.keys() != hints.keys() or not is_classifier(folder / CLASSIFIER):
        return None
    whole = all(fits(hints[name], value) for name, value in values.items())
    return Record(**(values | {"skipped": tuple(values["skipped"])})) if whole else None


def share_of_time(left: float, ending: float, shares: Sequence[float]) -> float:
    """Return the seconds of the first of several attempts.

    Args:
        left: seconds until the command must have ended.
        ending: seconds of what comes after the last attempt.
        shares: of the time, of this attempt and of those that are still to come.
    """
    return max(0.0, left - ending) * shares[0] / sum(shares)


def _budget(rehearsed: Rehearsed, pending: Sequence[Attempt]) -> Budget | None:
    """Return the time of the first of the attempts that are to come; None where it is too short for an update.

    What the earlier ones did not use up is shared out among the later ones, and the last one has all that is left.
    """
    session, whole = rehearsed.run.session, rehearsed.budget
    if whole.seconds is None:
        return whole
    if len(pending) == 1:
        return None if rehearsed.too_short() else whole
    seconds = share_of_time(session.left(), rehearsed.ending, [one.share for one in pending])
    reserve = Reserve(validation=whole.reserve.validation, fixed=SAVING_SECONDS)
    step = rehearsed.run.recipe.batch_size / rehearsed.run.cost.images_per_second
    needed = reserve.validation + reserve.fixed + DOUBT * step
    ends = whole.seconds - session.left() + seconds
    if distributed.broadcast(seconds < needed):
        return None
    return Budget(ends, started=session.started, reserve=reserve, slowness=machine_slowness)


def _trained(
    rehearsed: Rehearsed,
    attempt: Attempt,
    batches: TrainingBatches,
    budget: Budget,
    first: First,
    listener: Listener,
) -> TrainingResult:
    run, model = _of(rehearsed.run, attempt), copy.deepcopy(rehearsed.run.classifier.model)
    remarks = (*remarks_on(run), *first.begin_with_head(model))
    listener(Message(f"{_named(attempt)}: {attempt.reason}."))
    try:
        training = train(
            model,
            batches,
            recipe=run.recipe,
            normalize=run.classifier.preprocessing.normalize,
            folder=attempt_folder(run.folder, attempt),
            validate=run_validation(run, rehearsed.validating),
            resume=True,
            further=run.session.further,
            remarks=remarks,
            budget=budget,
            listener=listener,
        )
    except TrainingInterrupted as stop:
        advice = f"go on with {argument('resume', True)} {argument('out', str(run.folder))}"
        raise TrainingInterrupted(stop.done, advice=advice, exit_code=stop.exit_code) from stop
    complete(run, training, listener)
    return training


def _finished(
    rehearsed: Rehearsed,
    attempt: Attempt,
    training: TrainingResult,
    first: First,
    before: dict[str, Record],
    listener: Listener,
) -> Record:
    """Keep what an attempt made, in its folder and, where it is the best so far, as the run's classifier; and say so."""
    run, headline = _of(rehearsed.run, attempt), rehearsed.run.data.task.headline
    record = Record(
        name=attempt.name,
        figure=figure_of(rehearsed, training),
        images=first.candidate.images,
        steps=training.steps,
        best_step=training.best_step,
        best_accuracy=training.best_accuracy,
        seconds=training.seconds,
        images_per_second=training.images_per_second,
        skipped=training.skipped,
    )
    choice = _choice(rehearsed.run, first, before | {attempt.name: record})
    better = choice.kept == attempt.name
    if distributed.is_main():
        folder = attempt_folder(run.folder, attempt)
        described = Outcome(run, run.classifier_of(training.model), training, True, choice).described({})
        save(described, folder / CLASSIFIER)
        if better:
            save(described, run.folder / CLASSIFIER)
        write_file(folder / ATTEMPT_FILE, json.dumps(dataclasses.asdict(record)))
    distributed.barrier()
    last = attempt == rehearsed.run.plan.attempts[-1]
    said = f"{_named(attempt)} {record.candidate.text(headline)} of {record.candidate.of()}"
    listener(Message(f"{said}{', saved' if better else ', not better'}{'.' if last else '; going on.'}"))
    return record


def _choice(run: Run, first: First, records: dict[str, Record]) -> Choice:
    """Return the choice among what was tried, the cheapest first, whatever the order in which it was finished."""
    made = [records[one.name].candidate for one in run.plan.attempts if one.name in records]
    return choose([first.candidate, *made], run.data.task.headline)


def _best(run: Run, first: First, records: dict[str, Record]) -> Outcome:
    """Return what is delivered, and give the run the recipe and the log of the best attempt."""
    if not records:
        return first_outcome(run, first)
    choice = _choice(run, first, records)
    trained = choose(choice.candidates[1:], run.data.task.headline).kept
    best = next(one for one in run.plan.attempts if one.name == trained)
    folder = attempt_folder(run.folder, best)
    if distributed.is_main():
        for name in (RECIPE_FILE, METRICS_FILE):
            write_file(run.folder / name, (folder / name).read_bytes())
    distributed.barrier()
    own, kept = _of(run, best), choice.kept == trained
    classifier = read(folder / CLASSIFIER).to(training_device())
    record = records[trained]
    training = TrainingResult(
        model=classifier.model,
        steps=record.steps,
        best_step=record.best_step,
        best_accuracy=record.best_accuracy,
        history=read_metrics(folder),
        seconds=record.seconds,
        images_per_second=record.images_per_second,
        skipped=record.skipped,
    )
    delivered = classifier if kept else first.load().to(training_device())
    return Outcome(own, delivered, training, kept, choice)
