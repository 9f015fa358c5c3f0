"""Sharpness-aware minimisation: the gradient of where the loss is worst nearby (SAM, arXiv 2010.01412, algorithm 1).

With a surrogate gap (GSAM, arXiv 2203.08065; big_vision's trainers/proj/gsam/gsam.py) the gradient before the climb is reduced,
too.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vitral import distributed
from vitral.data.batch import Batch
from vitral.training.optimization.optimizers import add_penalty, global_norm
from vitral.training.optimization.state import local_parts
from vitral.training.settings.sections import OptimizerSettings

Figures = dict[str, Tensor]  # scalars by name


class Statistics:
    """A module's floating-point buffers, such as a batch norm's statistics, which change in the forward pass."""

    def __init__(self, module: nn.Module) -> None:
        self.buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]

    def copy(self) -> list[Tensor]:
        """Return copies of the buffers."""
        return [buffer.clone() for buffer in self.buffers]

    def put(self, values: list[Tensor]) -> None:
        """Set the buffers to values."""
        for buffer, value in zip(self.buffers, values, strict=True):
            buffer.copy_(value)


class Gradients(Protocol):
    """Adds to the gradients `share` times those of a batch's mean loss, and returns the means of loss and figures."""

    def __call__(self, batch: Batch, *, share: float = 1.0, together: bool = True) -> Figures:
        """Compute them; unless `together`, the processes do not average their gradients."""
        ...


def sharp_gradients(
    batch: Batch,
    gradients: Gradients,
    *,
    module: nn.Module,
    optimizers: Sequence[Optimizer],
    statistics: Statistics,
    before: list[Tensor],
    rho: float,
    images: int | None,
    alpha: float = 0.0,
) -> Figures:
    """Add SAM's gradients, in groups of `images` images; return the figures from before the climb.

    Each group of images climbs by its own gradient. A batch norm's statistics move once, by the mean of the groups' first
    passes, as over the original's devices.

    Args:
        batch: The batch to learn from.
        gradients: The function that adds the gradients of any part of the batch.
        module: The module that is trained.
        optimizers: The module's optimizers, which may have a penalty, see `add_penalty`.
        statistics: The module's statistics.
        before: The statistics' values before the step, to which they are reset.
        rho: The radius of the climb.
        images: The number of images in a group; None for the whole batch of all processes.
        alpha: The weight of GSAM; 0 for SAM.
    """
    groups = list(batch.cut(images or len(batch)))
    parts: list[tuple[Figures, float]] = []
    after = [torch.zeros_like(value) for value in before]
    for number, group in enumerate(groups):
        share = len(group) / len(batch)
        earlier = take_gradients(module.parameters())
        add_penalty(optimizers)
        figures = gradients(group, together=images is None)
        for mean, buffer in zip(after, statistics.buffers, strict=True):
            mean.add_(buffer, alpha=share)
        learning = module.parameters() if alpha else ()
        here = [(parameter, parameter.grad.clone()) for parameter in learning if parameter.grad is not None]
        with perturbed(module.parameters(), rho):
            if alpha:  # each group's gradient at its climb is needed by itself
                add_penalty(optimizers)
                gradients(group, together=images is None)
            else:
                put_gradients(earlier)
                add_penalty(optimizers, share)
                gradients(group, share=share, together=number == len(groups) - 1)
        if alpha:
            narrow_the_gap(here, alpha)
            add_gradients(earlier, module.parameters(), share)
        statistics.put(before)  # the second pass leaves none
        parts.append((figures, share))
    if alpha and images is not None:
        for parameter in module.parameters():
            if parameter.grad is not None:
                distributed.total(parameter.grad).div_(distributed.world())
    statistics.put(after)
    return weighted(parts)


def radius(rate: float, settings: OptimizerSettings, final_rate: float) -> float:
    """Return the radius of the climb at a learning rate, between the radius at the rate's peak and at its end."""
    peak, end = settings.sam_rho or 0.0, settings.sam_final_rho
    if end is None or settings.lr == final_rate:
        return peak
    return end + (peak - end) * (rate - final_rate) / (settings.lr - final_rate)


@torch.no_grad()
def narrow_the_gap(here: Sequence[tuple[nn.Parameter, Tensor]], alpha: float) -> None:
    """Subtract from the gradients `alpha` times the orthogonal part of the gradients from before the climb.

    Args:
        here: The parameters, which now hold the gradients from the climb, with their gradients from before.
        alpha: The weight of the orthogonal part.
    """
    clean = local_parts(gradient for _, gradient in here)
    current = [parameter.grad if parameter.grad is not None else torch.zeros_like(parameter) for parameter, _ in here]
    climbed, squared = local_parts(current), global_norm(current) ** 2
    both = torch.stack([(before * after).sum() for before, after in zip(clean, climbed, strict=True)]).sum()
    if any(distributed.is_sharded(gradient) for gradient in current):
        distributed.total(both)
    along = float(both / squared)
    torch._foreach_mul_(climbed, 1 + alpha * along)
    torch._foreach_add_(climbed, clean, alpha=-alpha)


@torch.no_grad()
def add_gradients(
    taken: Iterable[tuple[nn.Parameter, Tensor]], parameters: Iterable[nn.Parameter], share: float
) -> None:
    """Weight the gradients by a share, and add those that `take_gradients` took."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(share)
    for parameter, gradient in taken:
        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


def weighted(parts: Sequence[tuple[Figures, float]]) -> Figures:
    """Return the weighted sum of sets of figures."""
    return {name: torch.stack([figures[name] * weight for figures, weight in parts]).sum() for name in parts[0][0]}


@contextlib.contextmanager
def perturbed(parameters: Iterable[nn.Parameter], rho: float) -> Iterator[None]:
    """Move the parameters along their gradient by `rho` in their joint norm, and afterwards back to the same bits.

    The gradients are cleared, so that the block computes those of the second pass.
    """
    moved = [parameter for parameter in parameters if parameter.grad is not None]
    gradients: list[Tensor] = [parameter.grad for parameter in moved if parameter.grad is not None]
    with torch.no_grad():
        parts = local_parts(moved)
        before = [part.clone() for part in parts]  # adding and subtracting would round
        torch._foreach_add_(parts, local_parts(gradients), alpha=float(rho / global_norm(gradients)))
    for parameter in moved:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(local_parts(moved), before)


def take_gradients(parameters: Iterable[nn.Parameter]) -> list[tuple[nn.Parameter, Tensor]]:
    """Remove the gradients from their parameters, and return both."""
    taken = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
    for parameter, _ in taken:
        parameter.grad = None
    return taken


def put_gradients(taken: Iterable[tuple[nn.Parameter, Tensor]]) -> None:
    """Give parameters back the gradients that `take_gradients` took."""
    for parameter, gradient in taken:
        parameter.grad = gradient
