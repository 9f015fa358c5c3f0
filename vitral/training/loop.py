"""The one training loop: batches by step, updates, validation, checkpoints; resumed at any step to the same bits."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.data.batch import Batch
from vitral.data.loader import TrainingBatches, load_training
from vitral.errors import TrainingInterrupted
from vitral.events import Event, Listener, Message, Progress, Scalars, ignore
from vitral.layout import CHECKPOINTS
from vitral.machine import keep_freed_memory
from vitral.models.model import Model
from vitral.seeds import derive
from vitral.training import faults
from vitral.training.methods.method import Context, build_method
from vitral.training.methods.views import Normalize
from vitral.training.optimization.adaptation import adapt, settle, training_mode
from vitral.training.planning.budget import VALIDATIONS, Budget, share_gone
from vitral.training.records.checkpoints import State, Writer, load_newest, pack, unpack
from vitral.training.records.logs import MetricsLog, read_metrics
from vitral.training.records.recipe_file import claim_recipe, write_recipe
from vitral.training.settings.recipe import Recipe
from vitral.training.step import Outcome, Step
from vitral.training.stopping import StopRequest, stop_on_signals

# Gives figures of a network, the best-known one first; or None where it was asked to stop, which it asks between batches.
Validate = Callable[[Model, Listener, Callable[[], bool]], dict[str, float] | None]

LOG_EVERY = 10  # steps between lines of the log
SHOWN_SECONDS = 1.0  # between figures that are fetched to be shown beside the progress


@dataclass(frozen=True)
class TrainingResult:
    """What training gave.

    Attributes:
        model: the network, with the averaged weights where the recipe averages; the one that was given, unless it was shared
            out to several processes.
        steps: updates made.
        best_step: the update after which validation was best; None without validation.
        best_accuracy: the validation figure there.
        history: the rows of metrics.jsonl.
        seconds: time trained, over all of the run's processes.
        images_per_second: over this process's steps, validation and saving left out.
        skipped: the steps whose batches gave no finite loss.
        stopped: the signal that came too late to stop it, in its last update or after; None for none.
    """

    model: Model
    steps: int
    best_step: int | None
    best_accuracy: float | None
    history: list[dict[str, Any]]
    seconds: float
    images_per_second: float
    skipped: tuple[int, ...] = ()
    stopped: int | None = None


def train(
    model: Model,
    batches: TrainingBatches,
    *,
    recipe: Recipe,
    normalize: Normalize,
    folder: Path,
    class_names: Sequence[str] = (),
    validate: Validate | None = None,
    resume: bool = False,
    further: bool = False,
    remarks: Sequence[str] = (),
    budget: Budget | None = None,
    listener: Listener = ignore,
) -> TrainingResult:
    """Train a network in place; it ends with the averaged weights where the recipe averages.

    The run folder gets recipe.toml, metrics.jsonl, TensorBoard's files and checkpoints. A run that is killed at any moment
    and resumed with the same arguments ends in the same bits as one that was not: nothing depends on how often it began.

    A batch whose loss or gradient is no finite number is skipped and recorded, at most `recipe.faults.max_skipped` times.
    Since the batches are a function of the step, and every update is checked before it is made, that gives the same weights
    as going back to a checkpoint and coming again without the batch; the run really goes back only where the weights
    themselves are damaged.

    Args:
        model: the network, with its starting weights.
        batches: training images by step.
        recipe: the settings; `steps` must be set.
        normalize: from values 0 to 255 to the network's input.
        folder: the run folder.
        class_names: of the labels, in order, for a method that has to know them.
        validate: gives figures of the (averaged) network, the first of which says how good it is, or None if it was asked to
            stop.
        resume: go on from the newest whole checkpoint; a run killed before its first simply begins.
        further: whether a run that is finished goes on, to the recipe's length: the user gave it more time.
        remarks: why the recipe, run again, would not give the same weights; written into its file.
        budget: the command's time; the run becomes shorter to keep it, and its schedule with it.
        listener: hears progress and scalars.

    Raises:
        TrainingError: the folder holds a run and `resume` is false, the recipe is not that of the run, too many batches
            gave no finite loss, or another process of the job was lost.
        TrainingInterrupted: a signal stopped the run, which saved itself.
        StorageError: the disk is full.
    """
    assert recipe.steps is not None
    keep_freed_memory()
    with distributed.losing_a_process():
        longer = claim_recipe(folder, recipe, remarks, resume=resume)
        adapt(model, recipe.adaptation, seed=derive(recipe.seed, "adaptation"))
        context = Context(tuple(class_names), normalize, listener)
        trainer = _Trainer(model, batches, recipe, normalize, context, folder, validate, listener)
        with stop_on_signals() as request:
            if resume:
                trainer.restore(longer=longer, further=further)
            return trainer.run(budget or Budget(None), request)


class _Trainer:
    """A run's moving parts, and what happens between two updates."""

    def __init__(
        self,
        model: Model,
        batches: TrainingBatches,
        recipe: Recipe,
        normalize: Normalize,
        context: Context,
        folder: Path,
        validate: Validate | None,
        listener: Listener,
    ) -> None:
        self.model, self.batches, self.recipe = model, batches, recipe
        self.folder, self.validate, self.listener = folder, validate, listener
        self.step = Step(build_method(model, recipe, batches.task, context), recipe, normalize)
        self.writer = Writer(
            folder / CHECKPOINTS,
            keep=recipe.checkpoint.keep,
            archive_steps=recipe.checkpoint.archive_steps,
            shared=self.step.engine.writes_shares,
        )
        self.state = State(step=0, total_steps=recipe.steps or 0)
        self.longer = self.further = False
        self.saved_step = 0
        self.trained_seconds = 0.0
        self.first_step = 0
        self.shown: dict[str, float] = {}
        self.shown_at = 0.0

    def restore(self, *, longer: bool, further: bool) -> None:
        """Go back to the newest whole checkpoint, if there is one.

        Args:
            longer: whether the user gave the run another length.
            further: whether the user gave it more time, for which it goes on if it is finished.
        """
        loaded = load_newest(self.folder / CHECKPOINTS, self.listener)
        if loaded is None:
            return
        unpack(loaded, self.step.states())
        self.longer, self.further = longer, further
        self.state = self.lengthened(loaded.state)
        self.saved_step = loaded.state.step
        step, total = loaded.state.step, loaded.state.total_steps
        if self.state is not loaded.state:
            self.remark(f"its length was changed from {total} to {self.state.total_steps} steps after step {step}")
        elif step >= total:
            more = "" if further else f"more {argument('time')}, or "
            self.listener(
                Message(
                    f"This training is finished: it made its {total} steps. It goes on with {more}another length by "
                    f"{argument('overrides', ['steps=N'])}."
                )
            )

    def lengthened(self, state: State) -> State:
        """Return a state that was saved, with the length that the user gave the run since then."""
        step, total, planned = state.step, state.total_steps, self.recipe.steps or 0
        another = self.longer if state.recipe_steps is None else state.recipe_steps != planned
        if not another and not (self.further and total <= step < planned):
            return state
        return replace(state, total_steps=max(planned, step), bend_step=0, bend_share=0.0, bends=())

    def remark(self, text: str) -> None:
        """Say in the recipe's file why running it again would not give the same weights."""
        if torchrun.is_main():
            write_recipe(self.folder, self.recipe, (text,))

    def run(self, budget: Budget, request: StopRequest) -> TrainingResult:
        """Make every step that is left."""
        first = self.first_step = self.state.step
        log = MetricsLog(self.folder, length=self.state.log_bytes, first_step=first, listener=self.listener)
        began, earlier = time.monotonic(), self.state.seconds
        training_mode(self.model)
        try:
            if first:
                self.duties(log, request)  # a run may have been stopped between a step and what follows it
            budget.begin()
            while self.state.step < self.state.total_steps:
                # An error keeps this frame, and with it the workers, alive.
                with contextlib.closing(self._batches(budget)) as batches:
                    for batch in batches:
                        expected = self.state.step + 1
                        self.advance(batch, log)
                        stop = request.asked()
                        budget.step_made()
                        self.pace(budget)
                        self.state = replace(self.state, seconds=earlier + time.monotonic() - began)
                        budget.duties_done(validated=self.duties(log, request, stop=stop))
                        if self.state.step >= self.state.total_steps or self.state.step != expected:
                            break  # the end; or the run went back, and other batches come next
            self.writer.wait()
        finally:
            log.close()
        return self.result(_signal(request) if request.asked() else None)

    def _batches(self, budget: Budget) -> Generator[Batch, None, None]:
        # The length may yet change with a budget, and workers are not to be started anew for it.
        fixed = budget.seconds is None and not self.recipe.schedule.bends
        last = self.state.total_steps if fixed else self.recipe.steps or 0
        return load_training(self.batches, first_step=self.state.step, last_step=last, workers=self.recipe.workers)

    def pace(self, budget: Budget) -> None:
        """Let the budget change how long the run is, and its schedule follow; every process of a job does the same.

        Without a budget the changes that an earlier one made, as the recipe keeps them, are made again.
        """
        state = self.state
        if budget.seconds is None:
            self.bend(dict(self.recipe.schedule.bends or ()).get(state.step, state.total_steps))
            return
        planned = budget.plan(
            step=state.step, total=state.total_steps, validated=state.validated, most=self.recipe.steps or 0
        )
        planned = distributed.broadcast(planned)
        if planned is None:
            return
        self.bend(planned.total_steps)
        self.state = replace(self.state, next_validation=planned.next_validation)

    def bend(self, total_steps: int) -> None:
        """Change how many updates the run makes in all; the rest of its schedule is spread over those that are left."""
        state = self.state
        if total_steps != state.total_steps:
            self.state = replace(
                state,
                total_steps=total_steps,
                bend_step=state.step,
                bend_share=self.gone(state.step),
                bends=(*state.bends, (state.step, total_steps)),
            )

    def gone(self, step: int) -> float:
        """Return how much of its schedule the run has gone through by an update, 0 to 1."""
        state = self.state
        return share_gone(step, state.total_steps, bend_step=state.bend_step, bend_share=state.bend_share)

    def advance(self, batch: Batch, log: MetricsLog) -> None:
        """Make one update, or skip it."""
        started = time.perf_counter()
        step = self.state.step
        if step in self.state.skipped:  # the run went back, and comes by again
            self.state = replace(self.state, step=step + 1)
            log.write(step + 1, {"skipped": float(self.state.skipped.index(step) + 1)})
            return
        rate, backbone_rate = self.rate(step), self.rate(step, share=self.recipe.optimizer.backbone_lr)
        outcome = self.step(batch, step, rate, backbone_rate)
        self.trained_seconds += time.perf_counter() - started
        if outcome.finite:
            self.state = replace(self.state, step=step + 1)
            self.report(outcome, rate, log)
        else:
            self.skip(outcome.figures()["loss"], log)

    def skip(self, loss: float, log: MetricsLog) -> None:
        """Leave a batch out for good; or stop, if there were too many."""
        step, most = self.state.step, self.recipe.faults.max_skipped
        skipped = (*self.state.skipped, step)
        names = faults.images_of(self.batches, step)
        if len(skipped) > most:
            self.writer.wait()
            raise faults.too_many_skipped(loss, step, most, names, self.writer.folder)
        self.listener(faults.skipped(loss, step, len(skipped), most, names))
        self.state = replace(self.state, step=step + 1, skipped=skipped)
        if self.step.weights_are_finite():
            log.write(step + 1, {"skipped": float(len(skipped))})
        else:
            self.go_back(log)

    def go_back(self, log: MetricsLog) -> None:
        """Take the weights of the newest checkpoint, and keep in mind what is to be skipped.

        Raises:
            TrainingError: there is no checkpoint yet.
        """
        self.writer.wait()
        skipped = self.state.skipped
        loaded = load_newest(self.folder / CHECKPOINTS, self.listener)
        if loaded is None:
            raise faults.damaged(self.state.step - 1)
        unpack(loaded, self.step.states())
        self.state = replace(self.lengthened(loaded.state), skipped=skipped)
        self.saved_step = loaded.state.step
        log.cut(loaded.state.log_bytes, loaded.state.step)
        self.listener(Message(f"The weights themselves were damaged; went back to '{loaded.path.name}'.", warning=True))

    def rate(self, step: int, *, share: float = 1.0) -> float:
        """Return the learning rate of update `step` on the curve that has its peak at a share of the recipe's."""
        total, position = self.state.total_steps, float(step)
        if self.state.bend_step:  # the recipe's whole schedule, at another speed
            total = self.recipe.steps or 0
            position = self.gone(step) * total
        return self.recipe.schedule.rate(position, self.recipe.optimizer.lr * share, total)

    def report(self, outcome: Outcome, rate: float, log: MetricsLog) -> None:
        """Tell log and listener of the update just made; its figures are fetched where they are written or shown."""
        step, total = self.state.step, self.state.total_steps
        logged = step % LOG_EVERY == 0 or step in (1, total)
        if logged or time.monotonic() - self.shown_at >= SHOWN_SECONDS:
            self.shown, self.shown_at = outcome.figures(), time.monotonic()
        if logged:
            figures = {**self.shown, "learning_rate": rate}
            log.write(step, figures)
            self.listener(Scalars(step, figures))
        shown = {name: value for name, value in self.shown.items() if name != "gradient_norm"}
        self.listener(Progress("train", step, total, {**shown, "images_per_second": self.images_per_second()}))

    def images_per_second(self) -> float:
        """Return the speed of this process's steps, over the whole batch."""
        made = self.state.step - self.first_step
        return made * self.batches.batch_size / self.trained_seconds if self.trained_seconds else 0.0

    def duties(self, log: MetricsLog, request: StopRequest, *, stop: bool = False) -> bool:
        """Validate, save and stop where it is time to, but not after the last update; return whether it was validated."""
        step, total = self.state.step, self.state.total_steps
        stop = stop and step < total
        validated = not stop and self.validate is not None and self.validation_is_due()
        stop = stop or (validated and self.check(log, request))
        due = step == total or step % self.recipe.checkpoint.every_steps == 0
        if step != self.saved_step and (stop or due or step == self.state.best_step):
            self.save(log)
        if stop:
            self.writer.wait()
            number = _signal(request)
            raise TrainingInterrupted(
                f"Stopped by {signal.Signals(number).name} and saved after step {step} of {total}",
                advice=going_on(self.folder),
                exit_code=128 + number,
            )
        return validated

    def validation_is_due(self) -> bool:
        """Tell whether the network is validated after the present update: at the end, and as often as recipe or budget say."""
        step, total, planned = self.state.step, self.state.total_steps, self.state.next_validation
        every = self.recipe.evaluation.every_steps or max(1, total // VALIDATIONS)
        return step == total or (step >= planned if planned else step % every == 0)

    def check(self, log: MetricsLog, request: StopRequest) -> bool:
        """Validate the (averaged) network, and note when it is the best so far; return whether a signal cut it short."""
        assert self.validate is not None
        if self.state.validated == self.state.step:
            return False

        def listen(event: Event) -> None:
            if not isinstance(event, Scalars):
                self.listener(replace(event, task="validate") if isinstance(event, Progress) else event)

        def stop() -> bool:
            return self.state.step < self.state.total_steps and request.asked()

        average = self.step.average
        try:
            with average.in_place() if average is not None else contextlib.nullcontext():
                figures = self.validate(self.model, listen, stop)
        finally:
            training_mode(self.model)
        if figures is None:  # it can be made again
            return True
        if not all(math.isfinite(value) for value in figures.values()):
            self.writer.wait()
            raise faults.diverged(self.state.step, self.recipe.optimizer.lr, self.writer.folder)
        log.write(self.state.step, figures)
        self.listener(Scalars(self.state.step, figures))
        figure = next(iter(figures.values()))
        if self.state.next_validation:  # until a budget says otherwise, the next comes after as many updates
            self.state = replace(self.state, next_validation=2 * self.state.step - self.state.validated)
        self.state = replace(self.state, validated=self.state.step)
        if self.batches.task.headline.improves(figure, self.state.best_accuracy):
            self.state = replace(self.state, best_step=self.state.step, best_accuracy=figure)
        return False

    def save(self, log: MetricsLog) -> None:
        """Write a checkpoint of this moment, while training goes on."""
        self.state = replace(self.state, log_bytes=log.flush(), recipe_steps=self.recipe.steps)
        self.writer.save(self.state, pack(self.step.states()))
        self.saved_step = self.state.step

    def result(self, stopped: int | None) -> TrainingResult:
        """Put the averaged weights in place and sum the run up.

        Args:
            stopped: the signal that came too late to stop it, if one did.
        """
        if self.step.average is not None:
            self.step.average.put()
        self.step.method.deliver()
        model = self.step.engine.whole_network()
        settle(model)
        model.eval()
        if torchrun.is_main() and self.state.bends:
            write_recipe(self.folder, self.recipe.with_changes({"schedule.bends": self.state.bends}))
        distributed.barrier()  # the log is whole
        return TrainingResult(
            model=model,
            steps=self.state.step,
            best_step=self.state.best_step,
            best_accuracy=self.state.best_accuracy,
            history=read_metrics(self.folder),
            seconds=self.state.seconds,
            images_per_second=self.images_per_second(),
            skipped=self.state.skipped,
            stopped=stopped,
        )


def going_on(folder: Path) -> str:
    """Return what to do after a stop: how the run in a folder goes on."""
    return f"go on with {argument('resume', True)} {argument('out', str(folder))}"


def _signal(request: StopRequest) -> int:
    """Return the signal that asked the run to stop: a termination, where another process of the job heard it."""
    return request.signal or signal.SIGTERM
