"""Attention rollout: how much each patch reaches the output (paper appendix D.8; arXiv 2005.00928)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Attention = Float[Tensor, "batch heads tokens tokens"]
Rollout = Float[Tensor, "batch tokens tokens"]


def attention_rollout(attentions: Sequence[Attention]) -> Rollout:
    """Multiply the attention through the layers.

    Per layer the weights W are averaged over the heads, and half of the identity stands for the residual connection:
    A = 0.5 W + 0.5 I, whose rows sum to 1 as those of W do. The result is A of the last layer times that of the one
    before, and so on down to the first.

    Args:
        attentions: the attention probabilities of each layer, first layer first.

    Returns:
        In row i how much of each input token reaches output token i; rows sum to 1.
    """
    assert attentions, "rollout needs at least one layer"
    first, *others = (_with_residual(attention) for attention in attentions)
    rollout = first
    for layer in others:
        rollout = layer @ rollout
    return rollout


def _with_residual(attention: Attention) -> Rollout:
    mean = attention.float().mean(dim=1)
    return 0.5 * mean + 0.5 * torch.eye(mean.shape[-1], device=mean.device)


def patch_relevance(
    rollout: Rollout,
    *,
    grid: tuple[int, int],
    num_prefix_tokens: int,
    weights: Float[Tensor, "batch tokens"],
) -> Float[Tensor, "batch rows columns"]:
    """Return how much each patch reaches the pooled output, as a grid.

    Args:
        rollout: the rolled-out attention.
        grid: rows and columns of patches.
        num_prefix_tokens: tokens before the patches, class token and registers: their columns are dropped.
        weights: the share of each output token in the pooled output, summing to 1 over the tokens.
    """
    pooled = torch.einsum("bo,boi->bi", weights, rollout)
    return pooled[:, num_prefix_tokens:].reshape(-1, *grid)
