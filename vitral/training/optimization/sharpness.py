"""Sharpness-aware minimisation: the gradient of where the loss is worst nearby (SAM, arXiv 2010.01412, algorithm 1)."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vitral.data.batch import Batch
from vitral.training.optimization.local import local_parts
from vitral.training.optimization.optimizers import add_penalty, global_norm
from vitral.training.optimization.statistics import Statistics

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
        with perturbed(module.parameters(), rho):
            put_gradients(held)
            add_penalty(optimizers, share)
            gradients(group, share=share, together=number == len(groups) - 1)
        statistics.put(before)  # the second pass leaves none
        parts.append((figures, share))
    statistics.put(after)
    return weighted(parts)


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
