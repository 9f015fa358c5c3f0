"""The training loop: batches by step, updates, validation, checkpoints; resumed at any step to the same bits."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vitral import distributed, torchrun
from vitral.advice import argument, counted
from vitral.data.batch import Batch
from vitral.data.loader import TrainingBatches, load_training
from vitral.errors import TrainingInterrupted
from vitral.events import Event, Listener, Message, Progress, Scalars, ignore
from vitral.machine import keep_freed_memory
from vitral.models.model import Model
from vitral.paths import CHECKPOINTS
from vitral.seeds import derive
from vitral.training.clock import SHOWN_SECONDS, VALIDATIONS, Clock, Pacer, share_gone
from vitral.training.methods.method import Context, build_method
from vitral.training.methods.views import Normalize
from vitral.training.optimization.adaptation import adapt, settle, training_mode
from vitral.training.optimization.frozen_front import keep_front
from vitral.training.records import logs as faults
from vitral.training.records.checkpoints import Checkpoint, State, Writer, load_newest, pack, unpack
from vitral.training.records.logs import MetricsLog, read_metrics
from vitral.training.records.run_folder import claim_recipe, write_recipe
from vitral.training.settings.recipe import Recipe
from vitral.training.step import Step, StepResult, StopRequest, stop_on_signals

# Returns a network's figures, the headline first; None if the third argument, called between batches, returned True.
Validate = Callable[[Model, Listener, Callable[[], bool]], dict[str, float] | None]

LOG_EVERY = 10  # steps between lines of the log


@dataclass(frozen=True)
class TrainingResult:
    """The result of training.

    Attributes:
        model: The network, with averaged weights if the recipe averages; the same object as before, unless it was sharded.
        steps: The number of updates.
        best_step: The update after which validation was best; None without validation.
        best_accuracy: The validation figure after that update.
        history: The rows of metrics.jsonl.
        seconds: The training time, over all of the run's sessions.
        images_per_second: The speed of this process's steps, without validation and saving.
        skipped: The steps with a loss that was not finite.
        stopped: The signal that came too late to stop the run, in its last update or after; None for none.
    """

    model: Model
    steps: int = 0
    best_step: int | None = None
    best_accuracy: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    images_per_second: float = 0.0
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
    pacer: Pacer | None = None,
    listener: Listener = ignore,
) -> TrainingResult:
    """Train a network in place; it ends with averaged weights if the recipe averages.

    The run folder gets recipe.toml, metrics.jsonl, TensorBoard's files and checkpoints. A run that is killed at any moment
    and resumed with the same arguments ends in the same bits as an uninterrupted run.

    A batch is skipped and recorded if its loss or gradient is not finite, at most `recipe.faults.max_skipped` times. Batches
    are a function of the step, and every update is checked before it is made. So skipping gives the same weights as returning
    to a checkpoint and training again without the batch. The run returns to a checkpoint only if the weights are damaged.

    Args:
        model: The network, with its starting weights.
        batches: The training images by step.
        recipe: The settings; `steps` must be set.
        normalize: The function from values 0 to 255 to the network's input.
        folder: The run folder.
        class_names: The names of the classes, in the labels' order, for a method that needs them.
        validate: The function that scores the (averaged) network; see `Validate`.
        resume: Whether to continue from the newest whole checkpoint; a run that was killed before its first starts anew.
        further: Whether a finished run continues to the recipe's length, because the user gave it more time.
        remarks: The reasons why the recipe, run again, would not give the same weights; they are written into its file.
        pacer: Keeps the command's time; the run and its schedule become shorter for it.
        listener: The listener for progress and scalars.

    Raises:
        TrainingError: The folder holds a run and `resume` is false, the recipe is not that of the run, too many batches
            were skipped, or another process of the job was lost.
        TrainingInterrupted: A signal stopped the run, which saved itself.
        StorageError: The disk is full.
    """
    assert recipe.steps is not None
    keep_freed_memory()
    with distributed.losing_a_process():
        longer = claim_recipe(folder, recipe, remarks, resume=resume)
        learning = adapt(model, recipe.adaptation, seed=derive(recipe.seed, "adaptation"))
        context = Context(tuple(class_names), normalize, listener, batches.class_images())
        method = build_method(model, recipe, batches.task, context)
        keep_front(model, recipe, batches.augmentation)
        trainer = _Trainer(batches, Step(method, recipe, normalize), folder, validate, listener)
        with stop_on_signals() as request:
            if resume:
                trainer.restore(longer=longer, further=further)
            result = trainer.run(pacer or Pacer(Clock(None)), request)
            settle(result.model, learning)
            return result


class _Trainer:
    """A run's moving parts, and the work between two updates."""

    pacer: Pacer
    request: StopRequest
    log: MetricsLog

    def __init__(
        self, batches: TrainingBatches, step: Step, folder: Path, validate: Validate | None, listener: Listener
    ) -> None:
        method, recipe = step.method, step.recipe
        self.model, self.batches, self.step, self.recipe = method.network, batches, step, recipe
        self.folder, self.validate, self.listener = folder, validate, listener
        self.schedule, self.optimizer, self.saving = recipe.schedule, recipe.optimizer, recipe.checkpoint
        step.later, step.gone = self.rates, self.gone
        self.writer = Writer(folder / CHECKPOINTS, self.saving, shared=step.engine.writes_shares)
        self.state = State(step=0, total_steps=recipe.steps or 0)
        self.longer = self.further = False
        self.saved_step = 0
        self.trained_seconds = 0.0
        self.first_step = 0
        self.figures: dict[str, float] = {}
        self.figures_fetched = 0.0

    def restore(self, *, longer: bool, further: bool) -> None:
        """Restore the newest whole checkpoint, if there is any; the user gave the run another length, or more time."""
        self.longer, self.further = longer, further
        loaded = self.load()
        if loaded is None:
            return
        step, total = loaded.state.step, loaded.state.total_steps
        if self.state is not loaded.state:
            self.remark(f"its length was changed from {total} to {self.state.total_steps} steps after step {step}")
        elif step >= total:
            more = "" if further else f"more {argument('time')}, or "
            self.listener(
                Message(
                    f"This training is finished after {counted(total, 'step')}. It continues with {more}another length by "
                    f"{argument('overrides', ['steps=N'])}."
                )
            )

    def load(self) -> Checkpoint | None:
        """Put the newest whole checkpoint in place, and return it; None if there is none."""
        loaded = load_newest(self.folder / CHECKPOINTS, self.listener)
        if loaded is not None:
            unpack(loaded, self.step.states())
            self.state, self.saved_step = self.lengthened(loaded.state), loaded.state.step
        return loaded

    def lengthened(self, state: State) -> State:
        """Return a saved state with the length that the user gave the run since then."""
        step, total, planned = state.step, state.total_steps, self.recipe.steps or 0
        another = self.longer if state.recipe_steps is None else state.recipe_steps != planned
        if not another and not (self.further and total <= step < planned):
            return state
        return replace(state, total_steps=max(planned, step), bend_step=0, bend_share=0.0, bends=())

    def remark(self, text: str) -> None:
        """Write into the recipe's file why running it again would not give the same weights."""
        if torchrun.is_main():
            write_recipe(self.folder, self.recipe, (text,))

    def run(self, pacer: Pacer, request: StopRequest) -> TrainingResult:
        """Make every remaining step."""
        self.pacer, self.request = pacer, request
        first = self.first_step = self.state.step
        log = MetricsLog(self.folder, length=self.state.log_bytes, first_step=first, listener=self.listener)
        self.log = log
        start, earlier = time.monotonic(), self.state.seconds
        training_mode(self.model, self.recipe.adaptation)
        try:
            if first:
                self.duties()  # a run may have been stopped between a step and what follows it
            pacer.begin()
            while self.state.step < self.state.total_steps:
                # An error keeps this frame, and with it the workers, alive.
                with contextlib.closing(self._batches()) as batches:
                    for batch in batches:
                        expected = self.state.step + 1
                        self.advance(batch)
                        stop = request.received()
                        pacer.step_made()
                        self.pace()
                        self.state = replace(self.state, seconds=earlier + time.monotonic() - start)
                        pacer.duties_done(validated=self.duties(stop=stop))
                        if self.state.step >= self.state.total_steps or self.state.step != expected:
                            break  # the end, or a return to a checkpoint, after which other batches come
            if self.state.step > first:
                self.show_progress()  # of the last update only now, beside the figure of what is delivered
            self.writer.wait()
        except BaseException:
            self.writer.drain()  # who goes on with the run at once must not meet a thread that writes into its folder
            raise
        finally:
            log.close()
        return self.result(_signal(request) if request.received() else None)

    def _batches(self) -> Generator[Batch, None, None]:
        # With a budget the length may still change, and that must not restart the workers.
        fixed = self.pacer.seconds is None and not self.schedule.bends
        last = self.state.total_steps if fixed else self.recipe.steps or 0
        return load_training(self.batches, first_step=self.state.step, last_step=last, workers=self.recipe.workers)

    def pace(self) -> None:
        """Let the budget change the run's length and its schedule, in the same way in every process of a job.

        Without a budget the changes in the recipe, which an earlier budget made, are repeated.
        """
        state = self.state
        if self.pacer.seconds is None:
            self.bend(dict(self.schedule.bends or ()).get(state.step, state.total_steps))
            return
        planned = self.pacer.plan(
            step=state.step, total=state.total_steps, validated=state.validated, most=self.recipe.steps or 0
        )
        planned = distributed.broadcast(planned)
        if planned is None:
            return
        self.bend(planned.total_steps)
        self.state = replace(self.state, next_validation=planned.next_validation)

    def bend(self, total_steps: int) -> None:
        """Change the run's total number of updates; the rest of its schedule is spread over the remaining updates."""
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
        """Return the share of its schedule that the run has completed by an update, 0 to 1."""
        state = self.state
        return share_gone(step, state.total_steps, bend_step=state.bend_step, bend_share=state.bend_share)

    def advance(self, batch: Batch) -> None:
        """Make one update, or skip it."""
        started = time.perf_counter()
        step, skipped = self.state.step, self.state.skipped
        if step in skipped:  # the run returned to a checkpoint, and repeats
            self.state = replace(self.state, step=step + 1)
            self.log.write(step + 1, {"skipped": float(skipped.index(step) + 1)})
            return
        rate, backbone_rate = self.rates(step)
        outcome = self.step(batch, step, rate, backbone_rate)
        self.trained_seconds += time.perf_counter() - started
        if outcome.finite:
            self.state = replace(self.state, step=step + 1)
            self.report(outcome, rate)
        else:
            self.skip(outcome.figures()["loss"])

    def skip(self, loss: float) -> None:
        """Skip a batch for good; stop if too many were skipped."""
        step, tolerated = self.state.step, self.recipe.faults
        most = tolerated.max_skipped
        skipped = (*self.state.skipped, step)
        names = faults.images_of(self.batches, step)
        if len(skipped) > most:
            self.writer.wait()
            raise faults.too_many_skipped(loss, step, most, names, self.writer.folder)
        self.listener(faults.skipped(loss, step, len(skipped), most, names))
        self.state = replace(self.state, step=step + 1, skipped=skipped)
        if self.step.weights_are_finite():
            self.log.write(step + 1, {"skipped": float(len(skipped))})
        else:
            self.go_back()

    def go_back(self) -> None:
        """Restore the weights of the newest checkpoint, of which there must be one, and remember the skipped batches."""
        self.writer.wait()
        skipped, loaded = self.state.skipped, self.load()
        if loaded is None:
            raise faults.damaged(self.state.step - 1)
        self.state = replace(self.state, skipped=skipped)
        self.log.cut(loaded.state.log_bytes, self.saved_step)
        self.listener(Message(f"The weights were damaged, so training returned to '{loaded.path.name}'.", warning=True))

    def rates(self, step: int, wait: int = 0) -> tuple[float, float]:
        """Return the learning rates of head and backbone at update `step`, for what begins `wait` updates later."""
        return self.rate(step, wait=wait), self.rate(step, share=self.optimizer.backbone_lr, wait=wait)

    def rate(self, step: int, *, share: float = 1.0, wait: int = 0) -> float:
        """Return the learning rate of update `step` on the curve with a peak at a share of the recipe's rate.

        What begins `wait` updates later has a whole curve of its own over the rest of the run, and no rate until then.
        """
        total, position = self.state.total_steps, float(step)
        if self.state.bend_step:  # the recipe's whole schedule, at another speed
            total = self.recipe.steps or 0
            position = self.gone(step) * total
        return 0.0 if position < wait else self.schedule.rate(position - wait, self.optimizer.lr * share, total - wait)

    def report(self, outcome: StepResult, rate: float) -> None:
        """Report the last update to log and listener; its figures are fetched only if they are written or shown."""
        step, total = self.state.step, self.state.total_steps
        logged = step % LOG_EVERY == 0 or step in (1, total)
        if logged or time.monotonic() - self.figures_fetched >= SHOWN_SECONDS:
            self.figures, self.figures_fetched = outcome.figures(), time.monotonic()
        if logged:
            figures = {**self.figures, "learning_rate": rate}
            self.record(figures)
        if step < total:
            self.show_progress()

    def show_progress(self) -> None:
        """Tell the listener how far the run is."""
        visible = {name: value for name, value in self.figures.items() if name != "gradient_norm"}
        figures = {**visible, "images_per_second": self.images_per_second()}
        self.listener(Progress("train", self.state.step, self.state.total_steps, figures))

    def record(self, figures: dict[str, float]) -> None:
        """Tell the log and the listener the figures after the last update."""
        self.log.write(self.state.step, figures)
        self.listener(Scalars(self.state.step, figures))

    def images_per_second(self) -> float:
        """Return the speed of this process's steps, counting the whole batch."""
        made = self.state.step - self.first_step
        return made * self.batches.batch_size / self.trained_seconds if self.trained_seconds else 0.0

    def duties(self, *, stop: bool = False) -> bool:
        """Validate, save and stop if it is time to, but do not stop after the last update; return whether it validated."""
        step, total = self.state.step, self.state.total_steps
        stop = stop and step < total
        validated = not stop and self.validate is not None and self.validation_is_due()
        stop = stop or (validated and self.check())
        due = step == total or step % self.saving.every_steps == 0
        if step != self.saved_step and (stop or due or step == self.state.best_step):
            self.save()
        if stop:
            self.writer.wait()
            raise stopped(_signal(self.request), f"and saved after step {step} of {total}", self.folder)
        return validated

    def validation_is_due(self) -> bool:
        """Tell whether the network is validated after this update: at the end, and as often as recipe or budget require."""
        step, total, planned = self.state.step, self.state.total_steps, self.state.next_validation
        evaluation = self.recipe.evaluation
        every = evaluation.every_steps or max(1, total // VALIDATIONS)
        return step == total or (step >= planned if planned else step % every == 0)

    def check(self) -> bool:
        """Validate the (averaged) network, and note if it is the best so far; return whether a signal interrupted it."""
        assert self.validate is not None
        if self.state.validated == self.state.step:
            return False

        def listen(event: Event) -> None:
            if isinstance(event, Progress):
                self.pacer.images_validated(event.done)
                event = replace(event, task="validate")
            if not isinstance(event, Scalars):
                self.listener(event)

        def stop() -> bool:
            return self.state.step < self.state.total_steps and self.request.received()

        try:
            with self.step.averaged():
                figures = self.validate(self.model, listen, stop)
        finally:
            training_mode(self.model, self.recipe.adaptation)
        if figures is None:  # a resumed run validates again
            return True
        if not all(math.isfinite(value) for value in figures.values()):
            self.writer.wait()
            raise faults.diverged(self.state.step, self.optimizer.lr, self.writer.folder)
        self.record(figures)
        figure, task = next(iter(figures.values())), self.batches.task
        if self.state.next_validation:  # the next comes after the same number of updates, unless the budget changes it
            self.state = replace(self.state, next_validation=2 * self.state.step - self.state.validated)
        self.state = replace(self.state, validated=self.state.step)
        if task.headline.improves(figure, self.state.best_accuracy):
            self.state = replace(self.state, best_step=self.state.step, best_accuracy=figure)
        return False

    def save(self) -> None:
        """Write a checkpoint of this moment in the background."""
        self.state = replace(self.state, log_bytes=self.log.flush(), recipe_steps=self.recipe.steps)
        self.writer.save(self.state, pack(self.step.states()))
        self.saved_step = self.state.step

    def result(self, stopped: int | None) -> TrainingResult:
        """Return the result, with the averaged weights in place; `stopped` is the signal that came too late to stop the run."""
        model = self.step.deliver()
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


def stopped(number: int, where: str, folder: Path) -> TrainingInterrupted:
    """Return the error of a run in a folder that a signal stopped."""
    done, advice = f"Stopped by {signal.Signals(number).name} {where}", advice_to_resume(folder)
    return TrainingInterrupted(done, advice=advice, exit_code=128 + number)


def advice_to_resume(folder: Path) -> str:
    """Return the advice after a stop: how to continue the run in a folder."""
    return f"continue with {argument('resume', True)} {argument('out', str(folder))}"


def _signal(request: StopRequest) -> int:
    """Return the signal that stopped the run: a termination, if another process of the job received it."""
    return request.signal or signal.SIGTERM
