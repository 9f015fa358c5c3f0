"""Stochastic depth: residual branches left out for whole examples while training (arXiv 1603.09382)."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn


class BatchPart(NamedTuple):
    """Which examples of a batch a forward pass is given: those from `first` on, of `total`.

    Stochastic depth draws for the whole batch and takes its part, so that a batch loses the same branches however many
    processes or micro-batches share it.
    """

    first: int
    total: int


class StochasticDepth(nn.Module):
    """Leaves a residual branch out for whole examples while training."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Float[Tensor, "batch ..."], part: BatchPart | None = None) -> Float[Tensor, "batch ..."]:
        """Return the branch, zero for a share `rate` of the examples and scaled up for the others.

        Args:
            branch: What the residual block adds.
            part: Which examples these are; None where they are the whole batch.
        """
        if not self.training or self.rate == 0.0:
            return branch
        first, total = part or (0, len(branch))
        keep = torch.full((total, *[1] * (branch.ndim - 1)), 1.0 - self.rate, device=branch.device)
        mask = torch.bernoulli(keep)[first : first + len(branch)]
        return branch * (mask / (1.0 - self.rate)).to(branch.dtype)


def depth_rate(rate: float, index: int, count: int) -> float:
    """Return block `index`'s share of a stochastic depth that grows linearly from 0 to `rate` over `count` blocks."""
    return rate * index / max(count - 1, 1)


def spread_stochastic_depth(blocks: Iterable[Any], rate: float) -> None:
    """Give each block its share of a stochastic depth that grows linearly from 0 to `rate`."""
    blocks = list(blocks)
    for index, block in enumerate(blocks):
        block.stochastic_depth.rate = depth_rate(rate, index, len(blocks))
