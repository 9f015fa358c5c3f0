"""The ways to learn that a run tries in turn, each in a folder of its own, and the best of them as the run's classifier."""

import copy
import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.classifier.folder import read, save
from vitral.data.loader import TrainingBatches
from vitral.errors import TrainingDiverged, TrainingInterrupted
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.layout import CLASSIFIER
from vitral.training.candidates.choice import Candidate, Choice, choose
from vitral.training.candidates.deliver import Outcome, complete, figure_of, first_outcome
from vitral.training.candidates.first import First
from vitral.training.loop import TrainingResult, going_on, train
from vitral.training.methods.batches import augmentations
from vitral.training.optimization.precision import training_device
from vitral.training.planning.attempts import Attempt
from vitral.training.planning.budget import Budget, Reserve, machine_slowness
from vitral.training.planning.plan import Run
from vitral.training.planning.prepare import set_rates
from vitral.training.planning.rehearsal import DOUBT, Rehearsed
from vitral.training.records.attempts import (
    GIVEN_UP,
    NO_TIME,
    Record,
    attempt_folder,
    is_over,
    note_attempts,
    note_outcome,
    read_outcome,
    read_record,
    write_record,
)
from vitral.training.records.description import remarks_on
from vitral.training.records.logs import METRICS_FILE, read_metrics
from vitral.training.records.recipe_file import RECIPE_FILE
from vitral.training.records.resume import asks_for_more
from vitral.training.scoring.validation import run_validation
from vitral.training.settings.recipe import load_recipe

LENGTH = ("steps", "epochs")  # settings that the recipe of a classifier that is there does not follow any more
SAVING_SECONDS = 1.0  # of an idle core like ours, for the classifier of an attempt that is finished


def attempt(rehearsed: Rehearsed, batches: TrainingBatches, first: First, listener: Listener) -> Outcome:
    """Try the ways to learn that are planned, and return the best of them and the first classifier.

    Those that were finished before the run was stopped are not repeated; the one that was begun goes on; one that diverges is
    given up. Of a run that gets more time the best goes on, and what it was before is kept unless more time makes it better.

    Raises:
        TrainingInterrupted: a signal stopped the run, which saved itself; its classifier is the best so far.
        TrainingError: another process of the job was lost.
        StorageError: the disk is full.
    """
    run = rehearsed.run
    note_attempts(run.folder, run.plan.attempts)
    records = distributed.broadcast(_records(run))
    pending = distributed.broadcast(_pending(run, records))
    for line in distributed.broadcast(_left_alone(run)):
        listener(Message(line))
    for index, one in enumerate(pending):
        budget = _budget(rehearsed, pending[index:])
        if budget is None:
            note_outcome(attempt_folder(run.folder, one), NO_TIME)
            what = (
                "stays as it is, for there is no time left for more"
                if one.name in records
                else "not tried, for there is no time left for it"
            )
            listener(Message(f"{_named(one)}: {what}."))
            continue
        try:
            training = _trained(rehearsed, one, batches, budget, first, listener)
        except TrainingDiverged as failure:  # in every process of a job alike
            note_outcome(attempt_folder(run.folder, one), GIVEN_UP)
            what = "stays as it was" if one.name in records else GIVEN_UP
            listener(Message(f"{_named(one)}: {what}. {failure}", warning=True))
            continue
        records[one.name] = _finished(rehearsed, one, training, first, records, listener)
        if training.stopped is not None and one != pending[-1]:
            name = signal.Signals(training.stopped).name
            raise TrainingInterrupted(
                f"Stopped by {name} after {one.name}", advice=going_on(run.folder), exit_code=128 + training.stopped
            )
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
    """Return what is known of the attempts that made a classifier, by name, the cheapest first."""
    read = {one.name: read_record(attempt_folder(run.folder, one)) for one in run.plan.attempts}
    return {name: record for name, record in read.items() if record is not None}


def _pending(run: Run, records: dict[str, Record]) -> list[Attempt]:
    """Return the attempts that are to be trained: those that are not over, and the best where the run gets more."""
    best = None
    if records and asks_for_more(run.session):
        best = choose([_candidate(record) for record in records.values()], run.data.task.headline).kept
    return [one for one in run.plan.attempts if one.name == best or not is_over(attempt_folder(run.folder, one))]


def _left_alone(run: Run) -> list[str]:
    """Return a line for each attempt that an earlier command did not train to its end, and that is not tried again."""
    again = f"more {argument('time')} or {argument('overrides', ['steps=N'])} tries it again"
    said = [(one, read_outcome(attempt_folder(run.folder, one))) for one in run.plan.attempts]
    return [f"{_named(one)}: {outcome}, as before; {again}." for one, outcome in said if outcome]


def _candidate(record: Record) -> Candidate:
    return Candidate(record.name, record.figure, record.images)


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
    session, whole, an_image = rehearsed.run.session, rehearsed.budget, pending[0].an_image
    if whole.seconds is None:
        return whole
    slowest = max(one.an_image for one in rehearsed.run.plan.attempts)  # of what may be scored at the end
    if len(pending) == 1 and slowest == 1:
        return None if rehearsed.too_short() else whole
    seconds = share_of_time(session.left(), slowest * rehearsed.ending, [one.share for one in pending])
    reserve = Reserve(validation=an_image * whole.reserve.validation, fixed=SAVING_SECONDS)
    step = an_image * rehearsed.run.recipe.batch_size / rehearsed.run.cost.images_per_second
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
    size = run.recipe.image_size
    if size is not None and model.image_size != (size, size):
        model.resize(size)
    set_rates(model, run.recipe)
    head = first.begin_with_head(model) if run.plan.from_probe else ()
    listener(Message(f"{_named(attempt)}: {attempt.reason}."))
    try:
        training = train(
            model,
            batches.at(model.image_size, augmentations(run.recipe, run.plan.augmentation)),
            recipe=run.recipe,
            normalize=run.classifier.preprocessing.normalize,
            class_names=run.data.class_names,
            folder=attempt_folder(run.folder, attempt),
            validate=run_validation(run, rehearsed.validating, rehearsed.live),
            resume=True,
            further=run.session.further,
            remarks=(*remarks_on(run), *head),
            budget=budget,
            listener=listener,
        )
    except TrainingInterrupted as stop:
        raise TrainingInterrupted(stop.done, advice=going_on(run.folder), exit_code=stop.exit_code) from stop
    complete(run, training, rehearsed.completing, listener)
    return training


def _finished(
    rehearsed: Rehearsed,
    attempt: Attempt,
    training: TrainingResult,
    first: First,
    before: dict[str, Record],
    listener: Listener,
) -> Record:
    """Keep what an attempt made, in its folder and, where it is the best so far, as the run's classifier; and say so.

    Where it had made a classifier before, and the longer training is no better, that one is kept.
    """
    run, headline = _of(rehearsed.run, attempt), rehearsed.run.data.task.headline
    folder, earlier = attempt_folder(run.folder, attempt), before.get(attempt.name)
    made = _record(attempt, training, figure_of(rehearsed, training), first, folder)
    improved = earlier is None or headline.improves(made.figure, earlier.figure)
    record = made if improved or earlier is None else replace(earlier, reached=made.reached)
    choice = _choice(rehearsed.run, first, before | {attempt.name: record})
    better = improved and choice.kept == attempt.name
    if torchrun.is_main():
        if improved:
            described = Outcome(run, run.classifier_of(training.model), training, True, choice).described({})
            save(described, folder / CLASSIFIER)
            if better:
                save(described, run.folder / CLASSIFIER)
        write_record(folder, record)
    distributed.barrier()
    last = attempt == rehearsed.run.plan.attempts[-1]
    said = f"{_named(attempt)} {_candidate(made).text(headline)} of {_candidate(made).of()}"
    listener(Message(f"{said}{', saved' if better else ', not better'}{'.' if last else '; going on.'}"))
    return record


def _record(attempt: Attempt, training: TrainingResult, figure: float, first: First, folder: Path) -> Record:
    return Record(
        name=attempt.name,
        figure=figure,
        images=first.candidate.images,
        steps=training.steps,
        reached=training.steps,
        recipe=(folder / RECIPE_FILE).read_text(encoding="utf-8"),
        best_step=training.best_step,
        best_accuracy=training.best_accuracy,
        seconds=training.seconds,
        images_per_second=training.images_per_second,
        skipped=training.skipped,
    )


def _choice(run: Run, first: First, records: dict[str, Record]) -> Choice:
    """Return the choice among what was tried, the cheapest first, whatever the order in which it was finished."""
    made = [_candidate(records[one.name]) for one in run.plan.attempts if one.name in records]
    return choose([first.candidate, *made], run.data.task.headline)


def _best(run: Run, first: First, records: dict[str, Record]) -> Outcome:
    """Return what is delivered, and give the run the recipe and the log of the best attempt."""
    if not records:
        return first_outcome(run, first)
    choice = _choice(run, first, records)
    trained = choose(choice.candidates[1:], run.data.task.headline).kept
    best = next(one for one in run.plan.attempts if one.name == trained)
    folder, record = attempt_folder(run.folder, best), records[trained]
    history = [row for row in read_metrics(folder) if row["step"] <= record.steps]  # a longer training may follow
    if torchrun.is_main():
        write_file(run.folder / RECIPE_FILE, record.recipe)
        write_file(run.folder / METRICS_FILE, "".join(f"{json.dumps(row)}\n" for row in history))
    distributed.barrier()
    said = [change for change in run.session.request.said if not change.startswith(LENGTH)]
    own = replace(run, plan=replace(run.plan.of(best), recipe=load_recipe(run.folder / RECIPE_FILE, said)))
    kept = choice.kept == trained
    classifier = read(folder / CLASSIFIER).to(training_device())
    training = TrainingResult(
        model=classifier.model,
        steps=record.steps,
        best_step=record.best_step,
        best_accuracy=record.best_accuracy,
        history=history,
        seconds=record.seconds,
        images_per_second=record.images_per_second,
        skipped=record.skipped,
    )
    delivered = classifier if kept else first.load().to(training_device())
    return Outcome(own, delivered, training, kept, choice)
