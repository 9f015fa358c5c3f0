"""Sharpness-aware minimisation: the gradient of where the loss is worst nearby (SAM, arXiv 2010.01412, algorithm 1).

With a surrogate gap (GSAM, arXiv 2203.08065; big_vision's trainers/proj/gsam/gsam.py) that of here is made smaller, too.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from vitral import distributed
from vitral.data.batch import Batch
from vitral.training.optimization.local import local_parts
from vitral.training.optimization.optimizers import add_penalty, global_norm
from vitral.training.optimization.statistics import Statistics
from vitral.training.settings.sections import OptimizerSettings

Figures = dict[str, Tensor]  # scalars by name


class Gradients(Protocol):
    """Adds to the gradients `share` times those of a batch's mean loss, and returns the means of loss and figures."""

    def __call__(self, batch: Batch, *, share: float = 1.0, together: bool = True) -> Figures:
        """Unless `together`, the processes do not bring their gradients together."""
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
    """Add to the gradients those of SAM, for `images` images after `images`; return the figures of before the climb.

    Each group of images climbs by its own gradient; without a number the whole batch of all processes is one group.
    A batch norm's statistics move once, by the mean of the groups' first passes, as over the original's devices.

    Args:
        batch: what to learn from.
        gradients: of any part of it.
        module: what is trained.
        optimizers: that may have a penalty, see `add_penalty`.
        statistics: the module's.
        before: their values, to which they are put back.
        rho: radius of the climb.
        images: that make one climb together.
        alpha: of GSAM; 0 for SAM.
    """
    groups = list(batch.cut(images or len(batch)))
    parts: list[tuple[Figures, float]] = []
    after = [torch.zeros_like(value) for value in before]
    for number, group in enumerate(groups):
        share = len(group) / len(batch)
        held = take_gradients(module.parameters())
        add_penalty(optimizers)
        figures = gradients(group, together=images is None)
        for mean, buffer in zip(after, statistics.buffers, strict=True):
            mean.add_(buffer, alpha=share)
        here = copied_gradients(module.parameters()) if alpha else []
        with perturbed(module.parameters(), rho):
            if alpha:  # each group's climb has to be known by itself
                add_penalty(optimizers)
                gradients(group, together=images is None)
            else:
                put_gradients(held)
                add_penalty(optimizers, share)
                gradients(group, share=share, together=number == len(groups) - 1)
        if alpha:
            narrow_the_gap(here, alpha)
            add_gradients(held, module.parameters(), share)
        statistics.put(before)  # the second pass leaves none
        parts.append((figures, share))
    if alpha and images is not None:
        for parameter in module.parameters():
            if parameter.grad is not None:
                distributed.total(parameter.grad).div_(distributed.world())
    statistics.put(after)
    return weighted(parts)


def radius(rate: float, settings: OptimizerSettings, final_rate: float) -> float:
    """Return the radius of the climb at a learning rate, between that of its peak and that of its end."""
    peak, end = settings.sam_rho or 0.0, settings.sam_final_rho
    if end is None or settings.lr == final_rate:
        return peak
    return end + (peak - end) * (rate - final_rate) / (settings.lr - final_rate)


@torch.no_grad()
def narrow_the_gap(here: Sequence[tuple[nn.Parameter, Tensor]], alpha: float) -> None:
    """Take from the gradients `alpha` times what the gradients from before the climb have at a right angle to them.

    Args:
        here: parameters with their gradients from before; those from the climb are theirs now.
        alpha: how much.
    """
    clean = local_parts(gradient for _, gradient in here)
    kept = [parameter.grad if parameter.grad is not None else torch.zeros_like(parameter) for parameter, _ in here]
    climbed, squared = local_parts(kept), global_norm(kept) ** 2
    both = torch.stack([(one * other).sum() for one, other in zip(clean, climbed, strict=True)]).sum()
    if any(isinstance(gradient, DTensor) for gradient in kept):
        distributed.total(both)
    along = float(both / squared)
    torch._foreach_mul_(climbed, 1 + alpha * along)
    torch._foreach_add_(climbed, clean, alpha=-alpha)


def copied_gradients(parameters: Iterable[nn.Parameter]) -> list[tuple[nn.Parameter, Tensor]]:
    """Return copies of the gradients with their parameters."""
    return [(parameter, parameter.grad.clone()) for parameter in parameters if parameter.grad is not None]


@torch.no_grad()
def add_gradients(
    held: Iterable[tuple[nn.Parameter, Tensor]], parameters: Iterable[nn.Parameter], share: float
) -> None:
    """Weight the gradients by a share, and add those that were taken away before."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(share)
    for parameter, gradient in held:
        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


def weighted(parts: Sequence[tuple[Figures, float]]) -> Figures:
    """Return the sum of figures, each set times its weight."""
    return {name: torch.stack([figures[name] * weight for figures, weight in parts]).sum() for name in parts[0][0]}


@contextlib.contextmanager
def perturbed(parameters: Iterable[nn.Parameter], rho: float) -> Iterator[None]:
    """Move the parameters along their gradient by `rho` in all, one norm over all of them, and back again to the same bits.

    The gradients are cleared, so that what is computed inside are those of the second pass.
    """
    moved = [parameter for parameter in parameters if parameter.grad is not None]
    gradients: list[Tensor] = [parameter.grad for parameter in moved if parameter.grad is not None]
    with torch.no_grad():
        parts = local_parts(moved)
        kept = [part.clone() for part in parts]  # adding and taking away would round
        torch._foreach_add_(parts, local_parts(gradients), alpha=float(rho / global_norm(gradients)))
    for parameter in moved:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(local_parts(moved), kept)


def take_gradients(parameters: Iterable[nn.Parameter]) -> list[tuple[nn.Parameter, Tensor]]:
    """Take the gradients away from their parameters, and return both."""
    taken = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
    for parameter, _ in taken:
        parameter.grad = None
    return taken


def put_gradients(taken: Iterable[tuple[nn.Parameter, Tensor]]) -> None:
    """Give parameters back the gradients that were taken from them."""
    for parameter, gradient in taken:
        parameter.grad = gradient
