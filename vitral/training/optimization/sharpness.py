"""Sharpness-aware minimisation: the gradient of where the loss is worst nearby (SAM, arXiv 2010.01412, algorithm 1)."""

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from vitral.training.optimization.local import local_parts
from vitral.training.optimization.optimizers import global_norm


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
