"""The one training loop: batches by step, a loss, an optimizer, checkpoints; resumed at any step to the same bits."""

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.data.loader import Batch, TrainingBatches, load_training
from vitral.errors import TrainingError, TrainingInterrupted
from vitral.events import Listener, Progress, Scalars, ignore
from vitral.files import write_file
from vitral.models.model import Model, Outputs
from vitral.objectives.balance import balance_loss
from vitral.objectives.classification import sigmoid_cross_entropy, softmax_cross_entropy
from vitral.seeds import derive
from vitral.training.allocator import keep_freed_memory
from vitral.training.averaging import Average
from vitral.training.budget import Budget
from vitral.training.logs import MetricsLog, read_metrics
from vitral.training.optimizers import build_optimizer, clip_by_global_norm, set_learning_rate
from vitral.training.precision import autocast
from vitral.training.recipe import Recipe, first_difference, load_recipe
from vitral.training.schedules import learning_rate
from vitral.training.state import State, checkpoints, load_newest, pack, save_checkpoint, unpack
from vitral.training.stopping import StopRequest, stop_on_signals

Validate = Callable[[Model], dict[str, float]]
Normalize = Callable[[Tensor], Tensor]

RECIPE_FILE = "recipe.toml"
LOG_EVERY = 10  # steps between lines of the log
VALIDATIONS = 10  # of a run whose recipe does not say how often
NAMED = 4  # pictures that an error names


@dataclass(frozen=True)
class TrainingResult:
    """What training gave.

    Attributes:
        steps: updates made.
        best_step: the update after which validation was best; None without validation.
        best_accuracy: validation accuracy there, 0 to 1.
        history: the rows of metrics.jsonl.
        seconds: time trained, over all of the run's processes.
        images_per_second: over this process's steps, validation and saving left out.
    """

    steps: int
    best_step: int | None
    best_accuracy: float | None
    history: list[dict[str, Any]]
    seconds: float
    images_per_second: float


def train(
    model: Model,
    batches: TrainingBatches,
    *,
    recipe: Recipe,
    normalize: Normalize,
    folder: Path,
    validate: Validate | None = None,
    resume: bool = False,
    budget_seconds: float | None = None,
    listener: Listener = ignore,
) -> TrainingResult:
    """Train a network in place; it ends with the averaged weights where the recipe averages.

    The run folder gets recipe.toml, metrics.jsonl, TensorBoard's files and checkpoints. A run that is killed at any moment
    and resumed with the same arguments ends in the same bits as one that was not: nothing depends on how often it began.

    Args:
        model: the network, with its starting weights.
        batches: training pictures by step.
        recipe: the settings; `steps` must be set.
        normalize: from values 0 to 255 to the network's input.
        folder: the run folder.
        validate: gives figures of the (averaged) network, "validation/accuracy" among them.
        resume: go on from the newest whole checkpoint; a run killed before its first simply begins.
        budget_seconds: what training may take; the run becomes shorter to keep it, and its schedule with it.
        listener: hears progress and scalars.

    Raises:
        TrainingError: the folder holds a run and `resume` is false, the recipe is not that of the run, or the loss is not a
            finite number.
        TrainingInterrupted: a signal stopped the run, which saved itself.
        StorageError: the disk is full.
    """
    assert recipe.steps is not None
    keep_freed_memory()
    _claim(folder, recipe, resume=resume)
    trainer = _Trainer(model, batches, recipe, normalize, folder, validate, listener)
    if resume:
        trainer.restore()
    with stop_on_signals() as request:
        return trainer.run(Budget(budget_seconds), request)


def _claim(folder: Path, recipe: Recipe, *, resume: bool) -> None:
    path = folder / RECIPE_FILE
    if path.is_file():
        if not resume:
            raise TrainingError(f"'{folder}' already holds a run; go on with it by --resume, or choose another --out.")
        begun = load_recipe(path)
        # Another length extends or shortens a run; where it is evaluated and saved does not change what it learns.
        free = ("steps", "workers", "checkpoint.every_steps", "checkpoint.keep")
        if key := first_difference(recipe, begun, ignoring=free):
            raise TrainingError(
                f"The run in '{folder}' began with another '{key}'; resume it with its own {RECIPE_FILE}."
            )
    write_file(path, recipe.to_toml())


class _Trainer:
    """A run's moving parts, and the steps that move them."""

    def __init__(
        self,
        model: Model,
        batches: TrainingBatches,
        recipe: Recipe,
        normalize: Normalize,
        folder: Path,
        validate: Validate | None,
        listener: Listener,
    ) -> None:
        self.model, self.batches, self.recipe, self.normalize = model, batches, recipe, normalize
        self.folder, self.validate, self.listener = folder, validate, listener
        self.device = next(model.parameters()).device
        self.optimizer = build_optimizer(model, recipe.optimizer)
        decay = recipe.averaging.decay
        self.average = None if decay is None else Average(model, decay)
        self.state = State(step=0, total_steps=recipe.steps or 0)
        self.trained_seconds = 0.0
        self.first_step = 0

    @property
    def averaged(self) -> Model:
        """The network that is validated and kept."""
        return self.model if self.average is None else self.average.model

    def restore(self) -> None:
        """Go back to the newest whole checkpoint, if there is one."""
        loaded = load_newest(self.folder / "checkpoints", self.listener)
        if loaded is None:
            return
        self.state, tensors = loaded
        unpack(tensors, self.model, None if self.average is None else self.average.model, self.optimizer)
        planned = self.recipe.steps or 0
        begun = self.state.total_steps
        # A budget shortened the run for good; another length in the recipe means that the user changed it.
        self.state = replace(self.state, total_steps=planned if self.state.step >= begun else min(planned, begun))

    def run(self, budget: Budget, request: StopRequest) -> TrainingResult:
        """Make every step that is left."""
        first = self.first_step = self.state.step
        log = MetricsLog(self.folder, length=self.state.log_bytes, first_step=first)
        began, earlier = time.monotonic(), self.state.seconds
        self.model.train()
        batches = load_training(
            self.batches, first_step=first, last_step=self.state.total_steps, workers=self.recipe.workers
        )
        try:
            for batch in batches:
                self.step(batch, log)
                elapsed = time.monotonic() - began
                total = budget.total_steps(
                    step=self.state.step, first_step=first, total_steps=self.state.total_steps, elapsed=elapsed
                )
                self.state = replace(self.state, total_steps=total, seconds=earlier + elapsed)
                self.after_step(log, request)
                if self.state.step >= self.state.total_steps:
                    break
        finally:
            batches.close()  # an error keeps the loop's frame, and with it the workers, alive
            log.close()
        return self.result()

    def step(self, batch: Batch, log: MetricsLog) -> None:
        """Make one update."""
        started = time.perf_counter()
        step = self.state.step
        # Dropout draws from torch's own generator; seeded by the step there is no state of it to save.
        torch.manual_seed(derive(self.recipe.seed, "dropout", step))
        images, labels = self.normalize(batch.images.to(self.device)), batch.labels.to(self.device)
        with autocast(self.device, self.recipe.precision):
            outputs = self.model.outputs(images)
        loss = self.loss(outputs, labels)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = clip_by_global_norm(self.model.parameters(), self.recipe.optimizer.clip_norm)
        if not math.isfinite(loss.item() + norm.item()):
            raise self.diverged(loss.item(), batch)
        rate = self.rate(step)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, step)
        self.trained_seconds += time.perf_counter() - started
        self.state = replace(self.state, step=step + 1)
        self.report(loss.item(), float((outputs.logits.argmax(dim=1) == labels).float().mean()), rate, log)

    def loss(self, outputs: Outputs, labels: Tensor) -> Tensor:
        """Return the recipe's loss, with what balances experts; both heads of a distilled network learn from the labels."""
        loss = self.classification_loss(outputs.logits, labels)
        if outputs.distillation_logits is not None:
            loss = (loss + self.classification_loss(outputs.distillation_logits, labels)) / 2
        return loss + balance_loss(outputs.auxiliary) if outputs.auxiliary else loss

    def classification_loss(self, logits: Float[Tensor, "batch classes"], labels: Tensor) -> Tensor:
        """Return the recipe's loss of one head."""
        if self.recipe.objective.name == "sigmoid":
            return sigmoid_cross_entropy(logits, labels)
        return softmax_cross_entropy(logits, labels, label_smoothing=self.recipe.regularization.label_smoothing)

    def rate(self, step: int) -> float:
        """Return the learning rate of update `step`."""
        schedule = self.recipe.schedule
        return learning_rate(
            step,
            base=self.recipe.optimizer.lr,
            total_steps=self.state.total_steps,
            warmup_steps=min(schedule.warmup_steps, self.state.total_steps // 2),
            decay=schedule.decay,
            final=schedule.final_lr,
        )

    def report(self, loss: float, accuracy: float, rate: float, log: MetricsLog) -> None:
        """Tell log and listener of the update just made."""
        step, total = self.state.step, self.state.total_steps
        figures = {"loss": loss, "accuracy": accuracy, "learning_rate": rate}
        if step % LOG_EVERY == 0 or step in (1, total):
            log.write(step, figures)
            self.listener(Scalars(step, figures))
        figures = {"loss": loss, "accuracy": accuracy, "images_per_second": self.images_per_second()}
        self.listener(Progress("train", step, total, figures))

    def images_per_second(self) -> float:
        """Return the speed of this process's steps."""
        made = self.state.step - self.first_step
        return made * self.batches.batch_size / self.trained_seconds if self.trained_seconds else 0.0

    def after_step(self, log: MetricsLog, request: StopRequest) -> None:
        """Validate, save and stop where it is time to."""
        step, total = self.state.step, self.state.total_steps
        every = self.recipe.evaluation.every_steps or max(1, total // VALIDATIONS)
        if self.validate is not None and (step % every == 0 or step == total):
            self.check(log)
        if step % self.recipe.checkpoint.every_steps == 0 or step == total:
            self.save(log)
        if request.signal is not None and step < total:
            self.save(log)
            name = signal.Signals(request.signal).name
            raise TrainingInterrupted(
                f"Stopped by {name} and saved after step {step} of {total}; go on with --resume --out {self.folder}.",
                exit_code=128 + request.signal,
            )

    def check(self, log: MetricsLog) -> None:
        """Validate the (averaged) network, and note when it is the best so far."""
        assert self.validate is not None
        figures = self.validate(self.averaged)
        self.model.train()
        log.write(self.state.step, figures)
        self.listener(Scalars(self.state.step, figures))
        accuracy = figures["validation/accuracy"]
        if self.state.best_accuracy is None or accuracy > self.state.best_accuracy:
            self.state = replace(self.state, best_step=self.state.step, best_accuracy=accuracy)

    def save(self, log: MetricsLog) -> None:
        """Write a checkpoint of this moment."""
        self.state = replace(self.state, log_bytes=log.flush())
        average = None if self.average is None else self.average.model
        tensors = pack(self.model, average, self.optimizer)
        save_checkpoint(self.folder / "checkpoints", self.state, tensors, keep=self.recipe.checkpoint.keep)

    def diverged(self, loss: float, batch: Batch) -> TrainingError:
        """Return the error that stops a run whose loss or gradient is no finite number."""
        whole = checkpoints(self.folder / "checkpoints")
        last = f"the last good checkpoint is '{whole[-1]}'" if whole else "there is no checkpoint yet"
        names = ", ".join(self.batches.source.describe(index) for index in batch.indices[:NAMED].tolist())
        return TrainingError(
            f"The loss is {loss} at step {self.state.step} and its gradient is no finite number; nothing was changed by this "
            f"step, and {last}. Lower optimizer.lr. The batch began with {names}."
        )

    def result(self) -> TrainingResult:
        """Put the averaged weights in place and sum the run up."""
        if self.average is not None:
            self.model.load_state_dict(self.average.model.state_dict())
        self.model.eval()
        return TrainingResult(
            steps=self.state.step,
            best_step=self.state.best_step,
            best_accuracy=self.state.best_accuracy,
            history=read_metrics(self.folder),
            seconds=self.state.seconds,
            images_per_second=self.images_per_second(),
        )
