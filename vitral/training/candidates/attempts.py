"""The ways to learn that a run tries in turn, each in a folder of its own, and the best of them as the run's classifier."""

import copy
import gc
import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.classifier.folder import read, save
from vitral.data.loader import TrainingBatches
from vitral.errors import ModelError, TrainingDiverged, TrainingError, TrainingInterrupted
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.layout import CLASSIFIER
from vitral.training.candidates.choice import Candidate, Choice, choose
from vitral.training.candidates.deliver import Outcome, complete, figure_of, first_outcome, validated
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
    free_checkpoints,
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
from vitral.training.scoring.validation import run_validation
from vitral.training.settings.recipe import load_recipe

LENGTH = ("steps", "epochs")  # settings that the recipe of a classifier that is there does not follow any more
SAVING_SECONDS = 1.0  # of an idle core like ours, for the classifier of an attempt that is finished
KEEPING = ("checkpoint.keep", "checkpoint.archive_steps")  # settings by which a user says which checkpoints stay
TOO_LARGE = "It does not fit into memory."


def attempt(rehearsed: Rehearsed, batches: TrainingBatches, first: First | None, listener: Listener) -> Outcome:
    """Try the ways to learn that are planned, and return the best of them and the first classifier.

    Those that were finished before the run was stopped are not repeated; the one that was begun goes on; one that diverges, or
    that the network or the memory does not allow, is given up. Of a run that gets more time the best goes on, and what it was
    before is kept unless more time makes it better.

    Args:
        rehearsed: the run, with what its budget allows.
        batches: training images by step.
        first: the first classifier; None where that of a run which goes on is lost, and there is no time to make it again.
        listener: hears of each attempt.

    Raises:
        TrainingInterrupted: a signal stopped the run, which saved itself; its classifier is the best so far.
        TrainingError: another process of the job was lost, or there is no classifier to deliver.
        StorageError: the disk is full.
    """
    run = rehearsed.run
    note_attempts(run.folder, run.plan.attempts)
    records = _judged_now(rehearsed, first, distributed.broadcast(_records(run)), listener)
    pending = distributed.broadcast(_pending(run, records))
    for line in distributed.broadcast(_left_alone(run, records, pending)):
        listener(Message(line))
    _free_checkpoints(run, records, pending)
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
        training = _tried(rehearsed, one, batches, budget, first, listener)
        if isinstance(training, str):
            note_outcome(attempt_folder(run.folder, one), GIVEN_UP)
            what = "stays as it was" if one.name in records else GIVEN_UP
            listener(Message(f"{_named(one)}: {what}. {training}", warning=True))
            continue
        last = one == pending[-1]
        records[one.name] = _finished(rehearsed, one, training, first, records, listener, last=last)
        _free_checkpoints(run, records, pending[index + 1 :])
        if training.stopped is not None and not last:
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


def _judged_now(
    rehearsed: Rehearsed, first: First | None, records: dict[str, Record], listener: Listener
) -> dict[str, Record]:
    """Return what is known of the attempts, those that were judged by data that changed since judged by the present ones."""
    run, judged = rehearsed.run, dict(records)
    for one in run.plan.attempts:
        record = records.get(one.name)
        if record is None or record.data in ("", run.data.fingerprint):
            continue
        folder = attempt_folder(run.folder, one)
        figure = validated(rehearsed, read(folder / CLASSIFIER).to(training_device()).model)
        images, data = _judging(rehearsed, first), run.data.fingerprint
        judged[one.name] = now = replace(record, figure=figure, images=images, data=data)
        if torchrun.is_main():
            write_record(folder, now)
        made = _candidate(now)
        reached = made.text(run.data.task.headline)
        listener(Message(f"{_named(one)}, of the data as they were: {reached} of {made.of()} as they are now."))
    return judged


def _pending(run: Run, records: dict[str, Record]) -> list[Attempt]:
    """Return the attempts that are to be trained: those that are not over, and the best where the run gets more."""
    best = _best_trained(run, records)
    return [
        one
        for one in run.plan.attempts
        if not is_over(attempt_folder(run.folder, one)) or (one == best and _gets_more(run, one, records[one.name]))
    ]


def _gets_more(run: Run, attempt: Attempt, record: Record) -> bool:
    """Tell whether an attempt that is over has updates to make: the run was given more time, or another length.

    A length that an earlier command gave it, and that it failed at, is none.
    """
    folder = attempt_folder(run.folder, attempt)
    path, planned = folder / RECIPE_FILE, _of(run, attempt).recipe.steps or 0
    longer = path.is_file() and planned > (load_recipe(path).steps or 0)
    return planned > record.reached and (run.session.further or longer) and not read_outcome(folder)


def _left_alone(run: Run, records: dict[str, Record], pending: Sequence[Attempt]) -> list[str]:
    """Return a line for each attempt that could be expected to be trained, and is not.

    Those are the ones that an earlier command did not train to their end, and the best where the run gets more time.
    """
    length = argument("overrides", ["steps=N"])
    said = [(one, read_outcome(attempt_folder(run.folder, one))) for one in run.plan.attempts]
    lines = [
        f"{_named(one)}: {outcome}, as before; more {argument('time')} or {length} tries it again."
        for one, outcome in said
        if outcome
    ]
    best = _best_trained(run, records)
    if best is not None and best not in pending and run.session.further:
        lines.append(f"{_named(best)}, the best so far, made all its steps; another length by {length} gives it more.")
    return lines


def _best_trained(run: Run, records: dict[str, Record]) -> Attempt | None:
    """Return the best of the attempts that made a classifier, of equals the cheapest; None where there is none."""
    made = [one for one in run.plan.attempts if one.name in records]
    if not made:
        return None
    best = choose([_candidate(records[one.name]) for one in made], run.data.task.headline).kept
    return next(one for one in made if one.name == best)


def _free_checkpoints(run: Run, records: dict[str, Record], pending: Sequence[Attempt]) -> None:
    """Delete, in the main process, what no command goes on from: all of an attempt that lost, of the best all but the newest.

    Of one whose longer training was no better the newest stays, for its record does not know the time that this took; of one
    that was given up there, and may be tried again, all. Who said which are kept keeps those.

    Args:
        run: what was asked, decided and read.
        records: of the attempts that made a classifier.
        pending: attempts that are yet to be trained, and keep what they have.
    """
    if not torchrun.is_main() or any(key in run.session.request.told for key in KEEPING):
        return
    best = _best_trained(run, records)
    for one in run.plan.attempts:
        folder, record = attempt_folder(run.folder, one), records.get(one.name)
        if record is not None and one not in pending and is_over(folder) and not read_outcome(folder):
            free_checkpoints(folder, newest=one == best or record.reached > record.steps)


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


def _tried(
    rehearsed: Rehearsed,
    attempt: Attempt,
    batches: TrainingBatches,
    budget: Budget,
    first: First | None,
    listener: Listener,
) -> TrainingResult | str:
    """Train an attempt; return what that gave, or in a sentence or two why it is given up."""
    try:
        return _trained(rehearsed, attempt, batches, budget, first, listener)
    except (TrainingDiverged, ModelError) as failure:  # in every process of a job alike
        return str(failure)
    except torch.OutOfMemoryError:
        if distributed.world() > 1:  # the others may have had enough, and wait for this one
            raise
    gc.collect()  # once the error is gone, which holds the network
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return TOO_LARGE


def _trained(
    rehearsed: Rehearsed,
    attempt: Attempt,
    batches: TrainingBatches,
    budget: Budget,
    first: First | None,
    listener: Listener,
) -> TrainingResult:
    run, model = _of(rehearsed.run, attempt), copy.deepcopy(rehearsed.run.classifier.model)
    size = run.recipe.image_size
    if size is not None and model.image_size != (size, size):
        model.resize(size)
    set_rates(model, run.recipe)
    head = first.begin_with_head(model) if first is not None and run.plan.from_probe else ()
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
    first: First | None,
    before: dict[str, Record],
    listener: Listener,
    *,
    last: bool,
) -> Record:
    """Keep what an attempt made, in its folder and, where it is the best so far, as the run's classifier; and say so.

    Where it had made a classifier before, and the longer training is no better, that one is kept.
    """
    run, headline = _of(rehearsed.run, attempt), rehearsed.run.data.task.headline
    folder, earlier = attempt_folder(run.folder, attempt), before.get(attempt.name)
    figure, images = figure_of(rehearsed, training), _judging(rehearsed, first)
    made = _record(attempt, training, figure, images, folder, run.data.fingerprint)
    improved = earlier is None or headline.improves(made.figure, earlier.figure)
    record = made if improved or earlier is None else replace(earlier, reached=made.reached)
    choice = _choice(rehearsed.run, first, before | {attempt.name: record})
    best = choice.kept == attempt.name
    if torchrun.is_main():
        if improved:
            described = Outcome(run, run.classifier_of(training.model), training, True, choice).described({})
            save(described, folder / CLASSIFIER)
            if best:
                save(described, run.folder / CLASSIFIER)
        write_record(folder, record)
    distributed.barrier()
    became = "not better" if not best else "saved" if improved else "no better than it was, and kept as it was"
    said = f"{_named(attempt)} {_candidate(made).text(headline)} of {_candidate(made).of()}, {became}"
    listener(Message(f"{said}{'.' if last else '; going on.'}"))
    return record


def _judging(rehearsed: Rehearsed, first: First | None) -> int:
    """Return how many validation images an attempt is judged by."""
    if first is not None:
        return first.candidate.images
    assert rehearsed.validating is not None, "what was validated has images for it"
    return len(rehearsed.validating)


def _record(attempt: Attempt, training: TrainingResult, figure: float, images: int, folder: Path, data: str) -> Record:
    return Record(
        name=attempt.name,
        figure=figure,
        images=images,
        steps=training.steps,
        reached=training.steps,
        recipe=(folder / RECIPE_FILE).read_text(encoding="utf-8"),
        best_step=training.best_step,
        best_accuracy=training.best_accuracy,
        seconds=training.seconds,
        images_per_second=training.images_per_second,
        skipped=training.skipped,
        data=data,
    )


def _choice(run: Run, first: First | None, records: dict[str, Record]) -> Choice:
    """Return the choice among what was tried, the cheapest first, whatever the order in which it was finished."""
    made = [_candidate(records[one.name]) for one in run.plan.attempts if one.name in records]
    return choose(made if first is None else [first.candidate, *made], run.data.task.headline)


def _best(run: Run, first: First | None, records: dict[str, Record]) -> Outcome:
    """Return what is delivered, and give the run the recipe and the log of the best attempt.

    Raises:
        TrainingError: there is nothing to deliver.
    """
    best = _best_trained(run, records)
    if best is None:
        return _untrained(run, first)
    choice = _choice(run, first, records)
    folder, record = attempt_folder(run.folder, best), records[best.name]
    history = [row for row in read_metrics(folder) if row["step"] <= record.steps]  # a longer training may follow
    if torchrun.is_main():
        write_file(run.folder / RECIPE_FILE, record.recipe)
        write_file(run.folder / METRICS_FILE, "".join(f"{json.dumps(row)}\n" for row in history))
    distributed.barrier()
    said = [change for change in run.session.request.said if not change.startswith(LENGTH)]
    own = replace(run, plan=replace(run.plan.of(best), recipe=load_recipe(run.folder / RECIPE_FILE, said)))
    kept = choice.kept == best.name
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
    delivered = classifier if kept or first is None else first.load().to(training_device())
    return Outcome(own, delivered, training, kept, choice)


def _untrained(run: Run, first: First | None) -> Outcome:
    if first is None:
        raise TrainingError(
            f"The run in '{run.folder}' lost its first classifier, and no way to learn made another; go on with more "
            f"{argument('time')}."
        )
    return first_outcome(run, first)
