"""One training step: forward, backward, rate, step, clear; and the request to stop that is read between two steps.

Ctrl-C, a termination and the end of the terminal are such requests.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType

import torch
from torch import Tensor

from vitral import distributed
from vitral.data.batch import Batch
from vitral.machine import precise
from vitral.models.experts import MixtureOfExperts
from vitral.models.model import Model
from vitral.seeds import derive
from vitral.training.methods.method import Method
from vitral.training.methods.parallel import Engine
from vitral.training.methods.views import BatchPreparation, Normalize
from vitral.training.optimization.averaging import Average
from vitral.training.optimization.optimizers import autocast, set_learning_rate
from vitral.training.optimization.sharpness import Figures, Statistics, radius, sharp_gradients, weighted
from vitral.training.optimization.state import OptimizerState, Stateful, Weights
from vitral.training.settings.recipe import Recipe

HANGUP = getattr(signal, "SIGHUP", None)  # where a terminal closes or a connection is lost; Windows has none
WARNING = getattr(signal, "SIGUSR1", None)  # that the time is nearly up, as Slurm sends it
SIGNALS = tuple(number for number in (signal.SIGINT, signal.SIGTERM, HANGUP, WARNING) if number is not None)


@dataclass(frozen=True)
class StepResult:
    """The result of a step, over all processes; the figures stay on the device until `figures` fetches them.

    Attributes:
        finite: Whether loss and gradient are finite numbers; if not, nothing was changed.
        names: The figures' names.
        sums: The figures, summed over the processes.
        norm: The gradient's norm before clipping.
    """

    finite: bool
    names: tuple[str, ...]
    sums: Tensor
    norm: Tensor

    def figures(self) -> dict[str, float]:
        """Fetch the means over the batch: "loss" (with SAM, before the climb), the method's figures, "gradient_norm"."""
        world = distributed.world()
        means = {name: value / world for name, value in zip(self.names, self.sums.tolist(), strict=True)}
        return means | {"gradient_norm": float(self.norm)}


class Step:
    """Makes a run's steps.

    Args:
        method: The method, with the module that it trains.
        recipe: The settings.
        normalize: The function from values 0 to 255 to the network's input.

    Attributes:
        later: From an update and a number of updates to the rates there of head and backbone for what begins so many updates
            later; None for those of the update, once it began.
        gone: From an update to the share of the schedule that is completed before it; None for none of it.
    """

    later: Callable[[int, int], tuple[float, float]] | None = None
    gone: Callable[[int], float] | None = None

    def __init__(self, method: Method, recipe: Recipe, normalize: Normalize) -> None:
        self.method, self.module, self.recipe, network = method, method.module, recipe, method.network
        self.settings = recipe.optimizer
        self.device = next(network.parameters()).device
        self.engine = Engine(method, recipe)
        self.optimizers = method.optimizers()
        decay = recipe.averaging.decay
        self.average = None if decay is None else Average(self.module, decay)
        views, classes = method.views(recipe), network.num_classes
        self.prepare = BatchPreparation(recipe, views, normalize, num_classes=classes, device=self.device)
        self.statistics = Statistics(self.module)
        rates = recipe.regularization
        experts = any(isinstance(layer, MixtureOfExperts) for layer in network.modules())
        # Dropout draws for each element, so every process needs draws of its own. Stochastic depth draws for the whole batch.
        self.own_draws = bool(rates.dropout or rates.attention_dropout or experts or method.draws_by_image)

    def __call__(self, batch: Batch, step: int, rate: float, backbone_rate: float) -> StepResult:
        """Learn from a batch at a learning rate; a loss or gradient that is not finite changes nothing."""

        def after(wait: int) -> tuple[float, float]:
            if self.later is not None:
                return self.later(step, wait)
            return (0.0, 0.0) if step < wait else (rate, backbone_rate)

        self.method.before_step(0.0 if self.gone is None else self.gone(step))
        statistics = self.statistics.copy()  # a batch norm learns in the forward pass already
        figures = self.learn(batch, step, statistics, rate)
        norm = self.engine.clip(self.settings.clip_norm)
        outcome = over_all_processes(figures, norm)
        if outcome.finite:
            for optimizer in self.optimizers:
                set_learning_rate(optimizer, rate, backbone_rate, after)
                optimizer.step()
            if self.average is not None:
                self.average.update(step)
            self.method.after_step(step)
        else:
            self.statistics.put(statistics)
        self.module.zero_grad()
        return outcome

    def learn(self, batch: Batch, step: int, statistics: list[Tensor], rate: float) -> Figures:
        """Add up a batch's gradients at a learning rate; return the means of this process's loss and figures."""
        gradients, settings, schedule = partial(self.gradients, step=step), self.settings, self.recipe.schedule
        if settings.sam_rho is None:
            return gradients(batch)
        return sharp_gradients(
            batch,
            gradients,
            module=self.module,
            optimizers=self.optimizers,
            statistics=self.statistics,
            before=statistics,
            rho=radius(rate, settings, schedule.final_lr),
            images=settings.sam_images,
            alpha=settings.gsam_alpha,
        )

    def gradients(self, batch: Batch, *, step: int, share: float = 1.0, together: bool = True) -> Figures:
        """Add to the gradients `share` times those of a batch's mean loss, part by part; return the means of its figures.

        Unless `together`, the processes do not average their gradients.
        """
        seed = derive(self.recipe.seed, "dropout", step, *([distributed.rank()] if self.own_draws else []))
        compute = self.recipe.compute
        pieces = list(batch.cut(-(-len(batch) // (compute.accumulation or 1))))
        parts: list[tuple[Figures, float]] = []
        for number, piece in enumerate(pieces):
            part = self.prepare(piece, step)  # piece by piece, because a large batch as float32 would fill the memory
            # Torch's own generator, seeded by the step, has no state to save; each part draws the same, as in the original.
            torch.manual_seed(seed)
            weight = len(piece) / len(batch)
            last = together and number == len(pieces) - 1
            with self.engine.accumulating(last=last):
                with autocast(self.device, self.recipe.precision):
                    loss, figures = self.method.loss(self.engine.call, part)
                (loss * (weight * share)).backward()  # type: ignore[no-untyped-call]
            parts.append(({name: value.detach() for name, value in {"loss": loss, **figures}.items()}, weight))
        return weighted(parts)

    def states(self) -> dict[str, Stateful]:
        """Return everything that a checkpoint holds, by its name there."""
        average = {} if self.average is None else {"average": self.average}
        return {
            "model": Weights(self.module),
            **average,
            "optimizer": OptimizerState(self.module, self.optimizers),
            "method": self.method,
        }

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the network has its averaged weights, if the recipe averages."""
        return contextlib.nullcontext() if self.average is None else self.average.in_place()

    def deliver(self) -> Model:
        """Put the weights to deliver in place, and return the whole network; every process must call this."""
        if self.average is not None:
            self.average.put()
        self.method.deliver()
        return self.engine.whole_network()

    def weights_are_finite(self) -> bool:
        """Tell whether every weight is a finite number."""
        return bool(torch.stack([torch.isfinite(p).all() for p in self.module.parameters()]).all())


def over_all_processes(figures: Figures, norm: Tensor) -> StepResult:
    """Add up the processes' figures; only whether they are finite is fetched from the device."""
    sums = distributed.total(torch.stack([value.to(precise(value.device)) for value in figures.values()]))
    return StepResult(bool(torch.isfinite(sums[0] + norm)), tuple(figures), sums, norm)


class StopRequest:
    """A request to stop, by a signal to this process or to another process of its job.

    Attributes:
        signal: The signal that this process received; None for none.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def received(self) -> bool:
        """Tell whether any process received a signal; all processes of a job must call this equally often."""
        return distributed.any_of(self.signal is not None)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note the first Ctrl-C, termination, warning or end of the terminal instead of ending the process.

    A second Ctrl-C or termination ends the process at once; but a session that closes sends SIGHUP several times, and with a
    termination, and a scheduler warns before it terminates. A SIGHUP that the process ignores, as under nohup, stays ignored;
    a SIGUSR1 that is handled otherwise than a termination is somebody else's. Outside the main thread, where Python receives no
    signals, nothing is noted.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if HANGUP in before and before[HANGUP] is signal.SIG_IGN:
        del before[HANGUP]
    if WARNING in before and before[WARNING] is not before[signal.SIGTERM]:
        del before[WARNING]

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = request.signal or number
        for handled in before.keys() & {HANGUP, WARNING}:
            signal.signal(handled, signal.SIG_IGN)
        for handled in (signal.SIGINT, signal.SIGTERM) if number in (signal.SIGINT, signal.SIGTERM) else ():
            signal.signal(handled, signal.SIG_DFL)

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
