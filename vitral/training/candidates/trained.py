"""The attempts of a run, trained in turn, and the best of them and of the first classifier as what the run delivers."""

import copy
import gc
import json
from collections.abc import Sequence
from dataclasses import replace

import torch

from vitral import distributed, torchrun
from vitral.advice import argument, counted
from vitral.classifier.folder import read, save
from vitral.data.loader import TrainingBatches
from vitral.errors import ModelError, TrainingDiverged, TrainingError, TrainingInterrupted, VitralError
from vitral.events import Message, ignore
from vitral.files import write_file
from vitral.models.model import Model
from vitral.paths import CLASSIFIER, METRICS_FILE, RECIPE_FILE
from vitral.training.candidates.beside import AttemptBehind, compared
from vitral.training.candidates.deliver import Outcome, first_outcome
from vitral.training.candidates.first import FirstClassifier, first_classifier, time_alone
from vitral.training.candidates.result import Candidate, Choice, choose, provenance, remarks_on
from vitral.training.clock import SAVING_SECONDS, STEP_DOUBT, Pacer, Reserve, machine_slowness
from vitral.training.loop import TrainingResult, advice_to_resume, stopped, train
from vitral.training.methods.method import augmentations, method_of
from vitral.training.optimization.optimizers import training_device
from vitral.training.plan import Attempt
from vitral.training.records.attempts import (
    GIVEN_UP,
    NO_TIME,
    Record,
    free_checkpoints,
    is_over,
    note_outcome,
    read_outcome,
    read_record,
    recipe_steps,
    write_record,
)
from vitral.training.records.logs import read_metrics
from vitral.training.scoring.validation import Scoring, is_too_short, run_validation
from vitral.training.session import Run
from vitral.training.settings.recipe import load_recipe, may_change
from vitral.training.starting.prepare import begin_network, set_rates

# Settings that the recipe of a classifier that is there does not follow any more.
LENGTH = frozenset(("steps", "epochs", "schedule.bends"))
KEEPING = ("checkpoint.keep", "checkpoint.archive_steps")  # settings by which a user keeps checkpoints
TOO_LARGE = "It does not fit into memory."


def try_attempts(run: Run, scoring: Scoring, batches: TrainingBatches, first: FirstClassifier | None) -> Outcome:
    """Train what is planned, and return the best of it and of the first classifier.

    Attempts that were finished before the run was stopped are not repeated; the one that was begun continues. Of several, one
    that diverges, or that the network or the memory does not allow, is given up. Where a run gets more time the best attempt
    continues, and what it made before is delivered unless more time makes it better.

    Args:
        run: The run.
        scoring: What it validates and scores.
        batches: Training images by step.
        first: The first classifier; None where there is none.

    Raises:
        TrainingInterrupted: A signal stopped the run, which saved itself; its classifier is the best so far.
        TrainingDiverged: The only attempt diverged.
        TrainingError: Another process of the job was lost, or there is no classifier to deliver.
        StorageError: The disk is full.
    """
    attempts = _Attempts(run, scoring, batches, first)
    attempts.carry_out()
    return attempts.outcome()


class _Attempts:
    """The attempts of a run, with the record of each that made a classifier."""

    def __init__(self, run: Run, scoring: Scoring, batches: TrainingBatches, first: FirstClassifier | None) -> None:
        self.run, self.scoring, self.batches, self.first = run, scoring, batches, first
        self.plan, self.data, self.task, self.listener = run.plan, run.data, run.data.task, run.listener
        self.attempts, self.several, self.more_time = run.plan.attempts, run.plan.several, run.more_time
        self.compares = self.several or (first is not None and scoring.validating is not None)
        self.folders = run.plan.folders(run.folder)
        read = {name: read_record(folder) for name, folder in self.folders.items()}
        self.records = distributed.broadcast({name: record for name, record in read.items() if record is not None})
        self.networks: dict[str, Model] = {}  # that this command trained, and that are as good as their records say
        self.runs: dict[str, Run] = {}

    def carry_out(self) -> None:
        """Train each attempt that is not over, in the time that there is for it."""
        self._judge_again()
        pending = distributed.broadcast(self._pending())
        for line in distributed.broadcast(self._left_alone(pending)):
            self.listener(Message(line))
        self._free_checkpoints(pending)
        for index, attempt in enumerate(pending):
            pacer = self._pacer(pending[index:])
            if pacer is None:
                self._leave_untried(attempt)
                continue
            training = self._tried(attempt, pacer)
            if not isinstance(training, TrainingResult):
                note_outcome(self.folders[attempt.name], GIVEN_UP)
                became = "stays as it was" if attempt.name in self.records else GIVEN_UP
                behind = isinstance(training, AttemptBehind)
                self.listener(Message(f"{attempt.title}: {became}. {training}", warning=not behind))
                continue
            last = attempt == pending[-1]
            self._finished(attempt, training, last=last)
            self._free_checkpoints(pending[index + 1 :])
            if training.stopped is not None and not last:
                raise stopped(training.stopped, f"after {attempt.name}", self.run.folder)
        self._make_first_anew()

    def _make_first_anew(self) -> None:
        """Make the first classifier anew, on more photos, where nothing that was trained is better and time is left."""
        if (first := self.first) is None or first.whole or ((choice := self._choice()) is not None and choice.trained):
            return
        seconds, after = time_alone(self.run, self.scoring)
        made = first_classifier(self.run, self.scoring.validating, None, seconds=seconds, after=after, former=first)
        if made is not None:
            self.first = made
            self.listener(Message(made.sentence(self.run)))

    def outcome(self) -> Outcome:
        """Return what is delivered, if there is anything, and give the run the recipe and the log of the best attempt."""
        first, best = self.first, self._best()
        if best is None:
            if first is None:
                raise TrainingError(
                    f"The run in '{self.run.folder}' lost its first classifier, and no attempt made another; continue it with "
                    f"more {argument('time')}."
                )
            return first_outcome(self.run, first)
        run = self._run_of(best)
        record, folder, model = self.records[best.name], self.folders[best.name], self.networks.get(best.name)
        history = [row for row in read_metrics(folder) if row["step"] <= record.steps]  # a longer training may follow
        if self.several and torchrun.is_main():
            write_file(run.folder / RECIPE_FILE, record.recipe)
            write_file(run.folder / METRICS_FILE, "".join(f"{json.dumps(row)}\n" for row in history))
        distributed.barrier()
        free = may_change() - LENGTH
        request = run.request
        changes = [f"{key}={value}" for key, value in request.overridden.items() if key in free]
        run = run.with_recipe(load_recipe(run.folder / RECIPE_FILE, changes))
        choice, is_saved, fitted_on = self._choice(), False, None
        if first is not None and choice is not None and not choice.trained:
            classifier, fitted_on = first.load().to(training_device()), first.fitted_on
            model = run.classifier.model if model is None else model
        elif model is None:
            classifier = read(folder / CLASSIFIER).to(training_device())
            model = classifier.model
        else:
            classifier, is_saved = run.classifier_of(model), True
        training = TrainingResult(
            model=model,
            steps=record.steps,
            best_step=record.best_step,
            best_accuracy=record.best_accuracy,
            history=history,
            seconds=record.seconds,
            images_per_second=record.images_per_second,
            skipped=record.skipped,
        )
        return Outcome(run, classifier, training, choice, is_saved, fitted_on)

    def _judge_again(self) -> None:
        """Judge by the present data what was judged by data that changed since, or by none as nothing was compared."""
        fingerprint = self.data.fingerprint
        for attempt in self.attempts:
            record = self.records.get(attempt.name)
            if record is None or not self.compares or (record.figure is not None and record.data == fingerprint):
                continue
            folder = self.folders[attempt.name]
            network = read(folder / CLASSIFIER).to(training_device())
            if "steps" not in network.provenance.training:  # the first classifier: the network is in its checkpoint
                del self.records[attempt.name]
                continue
            figure = self._validated(attempt, network.model)
            now = replace(record, figure=figure, images=self._images(), data=fingerprint)
            self.records[attempt.name] = now
            write_record(folder, now)
            if record.data != fingerprint:
                reached = _candidate(now).reached(self.task.headline)
                self.listener(Message(f"{attempt.title}, of the data as they were: {reached} as they are now."))

    def _pending(self) -> list[Attempt]:
        """Return the attempts that are to be trained: those that are not over, and the best where the run gets more."""
        best = self._best()
        return [attempt for attempt in self.attempts if self._is_pending(attempt, best)]

    def _is_pending(self, attempt: Attempt, best: Attempt | None) -> bool:
        folder = self.folders[attempt.name]
        if not is_over(folder) or (attempt.name not in self.records and not read_outcome(folder)):
            return True
        return attempt == best and self._gets_more(attempt)

    def _gets_more(self, attempt: Attempt) -> bool:
        """Tell whether an attempt that is over has updates to make: the run was given more time, or another length.

        A length that an earlier command gave it, and that it failed at, is none.
        """
        folder, planned = self.folders[attempt.name], attempt.recipe.steps or 0
        before = recipe_steps(folder)
        more = self.more_time or (before is not None and planned > before)
        return planned > self.records[attempt.name].reached and more and not read_outcome(folder)

    def _left_alone(self, pending: Sequence[Attempt]) -> list[str]:
        """Return a line for each attempt that could be expected to be trained, and is not."""
        length, best = argument("overrides", ["steps=N"]), self._best()
        if not self.several:
            if pending or best is None:
                return []
            more = "" if self.more_time else f"more {argument('time')}, or "
            steps = self.records[best.name].reached
            return [
                f"This training is finished: it made its {counted(steps, 'step')}. It continues with {more}another length by "
                f"{length}."
            ]
        outcomes = [(attempt, read_outcome(self.folders[attempt.name])) for attempt in self.attempts]
        lines = [
            f"{attempt.title}: {outcome}, as before; more {argument('time')} or {length} tries it again."
            for attempt, outcome in outcomes
            if outcome
        ]
        if best is not None and best not in pending and self.more_time:
            lines.append(
                f"{best.title}, the best so far, made all its steps; another length by {length} gives it more."
            )
        return lines

    def _best(self) -> Attempt | None:
        """Return the best of the attempts that made a classifier, of equals the cheapest; None where there is none."""
        made = {attempt.name: attempt for attempt in self.attempts if attempt.name in self.records}
        if len(made) < 2:
            return next(iter(made.values()), None)
        return made[choose([_candidate(self.records[name]) for name in made], self.task.headline).best]

    def _free_checkpoints(self, pending: Sequence[Attempt]) -> None:
        """Delete, in the main process, the checkpoints from which no command continues.

        Of several attempts those are all of one that lost, and of the best all but the newest. Of one whose longer training
        was no better the newest stays, because its record does not know the time that this took; of one that was given up
        there, and may be tried again, all. Who sets which are kept keeps those.
        """
        request = self.run.request
        if not (self.several and torchrun.is_main()) or any(key in request.overridden for key in KEEPING):
            return
        best = self._best()
        for attempt in self.attempts:
            folder, record = self.folders[attempt.name], self.records.get(attempt.name)
            if record is not None and attempt not in pending and is_over(folder) and not read_outcome(folder):
                free_checkpoints(folder, newest=attempt == best or record.reached > record.steps)

    def _pacer(self, pending: Sequence[Attempt]) -> Pacer | None:
        """Return what paces the first of the attempts that are to come; None where there is no time for an update.

        What the earlier ones did not use up is shared out among the later ones, and the last one has all that is left.
        """
        whole, clock, cost = self.scoring.pacer, self.run.clock, pending[0].relative_cost
        if whole.seconds is None:
            return whole
        if not self.several:
            return Pacer(clock, reserve=whole.reserve.beside(cost), slowness=whole.slowness) if cost < 1 else whole
        slowest = max(1.0, *(attempt.relative_cost for attempt in self.attempts))  # of what may be scored at the end
        if len(pending) == 1 and cost == slowest == 1:
            return None if is_too_short(self.run, self.scoring) else whole
        seconds = share_of_time(clock.left(), slowest * self.scoring.ending, [attempt.share for attempt in pending])
        reserve = Reserve(validation=cost * whole.reserve.validation, fixed=SAVING_SECONDS)
        needed = reserve.validation + reserve.fixed + STEP_DOUBT * cost * self.plan.step_seconds
        ends = whole.seconds - clock.left() + seconds
        if distributed.broadcast(seconds < needed):
            return None
        return Pacer(replace(clock, seconds=ends), reserve=reserve, slowness=machine_slowness)

    def _leave_untried(self, attempt: Attempt) -> None:
        note_outcome(self.folders[attempt.name], NO_TIME)
        if attempt.name in self.records:
            line = "stays as it is, because there is no time left for more"
        else:
            line = "not tried, because there is no time left for it"
        self.listener(Message(f"{attempt.title}: {line}."))

    def _tried(self, attempt: Attempt, pacer: Pacer) -> TrainingResult | VitralError:
        """Train an attempt; return what that gave, or why one of several is given up, in a sentence or two."""
        try:
            return self._trained(attempt, pacer)
        except (AttemptBehind, TrainingDiverged, ModelError) as failure:  # in every process of a job alike
            if not (self.several or isinstance(failure, AttemptBehind)):
                raise
            return failure
        except torch.OutOfMemoryError:
            if not self.several or distributed.world() > 1:  # the others may have had enough, and wait for this one
                raise
        gc.collect()  # once the error is gone, which holds the network
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return ModelError(TOO_LARGE)

    def _trained(self, attempt: Attempt, pacer: Pacer) -> TrainingResult:
        recipe, shared, run = attempt.recipe, self.plan.recipe, self._run_of(attempt)
        model, preprocessing = run.classifier.model, run.classifier.preprocessing
        if self.several:
            model = copy.deepcopy(model)
            self.listener(Message(f"Training {attempt.name}: {attempt.reason}."))
        if recipe != shared and not attempt.network:
            if recipe.image_size is not None and model.image_size != (recipe.image_size, recipe.image_size):
                model.resize(recipe.image_size)
            set_rates(model, recipe)
        remarks: tuple[str, ...] = ()
        if self.first is not None and attempt.from_probe:
            smaller = (recipe.image_size or 0) < (shared.image_size or 0)
            remarks = self.first.give_head(model, run, smaller=smaller)
        if attempt.network:
            batches = run.batches()
        else:
            views = augmentations(recipe, recipe.augmentation or self.plan.augmentation)
            batches = self.batches.at(model.image_size, views)
        validate = run_validation(run, self.scoring)
        if attempt.network and self.first is not None and validate is not None:
            validate = compared(validate, self.task.headline, pacer, self.scoring.pacer, self._choice)
        try:
            training = train(
                model,
                batches,
                recipe=recipe,
                normalize=preprocessing.normalize,
                class_names=self.data.class_names,
                folder=self.folders[attempt.name],
                validate=validate,
                resume=True,
                further=self.more_time,
                remarks=(*remarks_on(run), *remarks),
                pacer=pacer,
                listener=self.listener,
            )
        except TrainingInterrupted as stop:
            advice = advice_to_resume(run.folder)
            raise TrainingInterrupted(stop.done, advice=advice, exit_code=stop.exit_code) from stop
        trained = run.classifier_of(training.model)
        method_of(recipe).complete(recipe, trained, self.scoring.completing, self.listener)
        return training

    def _run_of(self, attempt: Attempt) -> Run:
        """Return the run as an attempt has it: with the attempt's recipe, and its network in the starting state."""
        if attempt.name not in self.runs:
            run = self.run.with_recipe(attempt.recipe)
            if attempt.network:
                plan = self.plan.of_network(attempt)
                run = replace(self.run, plan=plan, classifier=begin_network(self.run, plan, None))
            self.runs[attempt.name] = run
        return self.runs[attempt.name]

    def _finished(self, attempt: Attempt, training: TrainingResult, *, last: bool) -> None:
        """Keep what an attempt made, in its folder and, where it is the best so far, as the run's classifier; and say so.

        Where it had made a classifier before, and the longer training is no better, that one is kept.
        """
        name, folder, headline = attempt.name, self.folders[attempt.name], self.task.headline
        made, earlier = self._record(attempt, training), self.records.get(name)
        kept = None  # what the attempt had made before, where that is no worse
        if earlier is not None and made.figure is not None:
            kept = None if headline.improves(made.figure, _candidate(earlier).figure) else earlier
        self.records[name] = record = made if kept is None else replace(kept, reached=made.reached)
        choice = self._choice()
        best = choice is None or choice.best == name
        if torchrun.is_main() and kept is None:
            run = self._run_of(attempt)
            described = run.classifier_of(training.model, provenance(run, training, {}, choice))
            for place in dict.fromkeys((folder, run.folder) if best else (folder,)):
                if best or self.several:
                    save(described, place / CLASSIFIER)
        write_record(folder, record)
        distributed.barrier()
        if kept is None:
            self.networks = {name: training.model}
        if self.several:
            became = "the best so far, saved" if kept is None else "no better than before, so the earlier one stays"
            line = f"{attempt.title}: {_candidate(made).reached(headline)}, {became if best else 'not better'}"
            self.listener(Message(f"{line}."))
        elif kept is not None:
            now, was = (headline.text(_candidate(each).figure) for each in (made, kept))
            self.listener(
                Message(
                    f"Trained further, to {made.steps:,} steps, it reaches {now} on the validation photos, and reached "
                    f"{was} after {kept.steps:,}: the earlier one is selected."
                )
            )

    def _record(self, attempt: Attempt, training: TrainingResult) -> Record:
        return Record(
            name=attempt.name,
            figure=self._figure(attempt, training) if self.compares else None,
            images=self._images() if self.compares else 0,
            steps=training.steps,
            reached=training.steps,
            recipe=(self.folders[attempt.name] / RECIPE_FILE).read_text(encoding="utf-8"),
            best_step=training.best_step,
            best_accuracy=training.best_accuracy,
            seconds=training.seconds,
            images_per_second=training.images_per_second,
            skipped=training.skipped,
            data=self.data.fingerprint,
        )

    def _images(self) -> int:
        """Return by how many validation images an attempt is judged."""
        if (first := self.first) is not None:
            return first.candidate.images
        assert self.scoring.validating is not None, "what was validated has images for it"
        return len(self.scoring.validating)

    def _figure(self, attempt: Attempt, training: TrainingResult) -> float:
        """Return a trained network's figure on the validation images, in every process: the log's, of its last update."""
        last = [row for row in training.history if row.get("step") == training.steps]
        logged = [value for row in reversed(last) for name, value in row.items() if name.startswith("validation/")]
        figure = distributed.broadcast(float(logged[0]) if logged else None)
        return self._validated(attempt, training.model) if figure is None else figure

    def _validated(self, attempt: Attempt, model: Model) -> float:
        """Return the figure of an attempt's network on the validation images as they are now, in every process."""
        validate = run_validation(self._run_of(attempt), self.scoring)
        figures = None if validate is None else validate(model, ignore, lambda: False)
        assert figures is not None, "the network was not validated"
        return float(distributed.broadcast(next(iter(figures.values()))))

    def _choice(self) -> Choice | None:
        """Return the choice among what was tried, the cheapest first, whatever the order in which it was finished."""
        if not self.compares:
            return None
        made = [_candidate(self.records[attempt.name]) for attempt in self.attempts if attempt.name in self.records]
        return choose(made if self.first is None else [self.first.candidate, *made], self.task.headline)


def _candidate(record: Record) -> Candidate:
    assert record.figure is not None, "what is compared has a figure"
    return Candidate(record.name, record.figure, record.images)


def share_of_time(left: float, ending: float, shares: Sequence[float]) -> float:
    """Return the seconds of the first of several attempts.

    Args:
        left: Seconds until the command must have ended.
        ending: Seconds of what comes after the last attempt.
        shares: The shares of the time of this attempt and of those that are still to come.
    """
    return max(0.0, left - ending) * shares[0] / sum(shares)
