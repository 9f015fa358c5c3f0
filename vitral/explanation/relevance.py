"""What attention or the last feature maps say of an image's parts: one value a patch or cell.

Attention rollout (paper appendix D.8; arXiv 2005.00928), class-specific relevance (arXiv 2103.15679), Grad-CAM
(arXiv 1610.02391), and the exact contributions of a linear layer on the maps.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.models.tokens import Maps

Attention = Float[Tensor, "batch heads tokens tokens"]
Rollout = Float[Tensor, "batch tokens tokens"]


def attention_rollout(attentions: Sequence[Attention]) -> Rollout:
    """Multiply the attention through the layers.

    Per layer the weights W are averaged over the heads, and half of the identity stands for the residual connection:
    A = 0.5 W + 0.5 I. Its rows sum to 1, as those of W do. The result is A of the last layer times that of the one
    before, and so on down to the first.

    Args:
        attentions: The attention probabilities of each layer, first layer first.

    Returns:
        In row i how much of each input token reaches output token i; rows sum to 1.
    """
    assert attentions, "rollout needs at least one layer"
    means = (attention.float().mean(dim=1) for attention in attentions)
    rollout, *others = (0.5 * mean + 0.5 * torch.eye(mean.shape[-1], device=mean.device) for mean in means)
    for layer in others:
        rollout = layer @ rollout
    return rollout


def patch_relevance(
    rollout: Rollout, *, grid: tuple[int, int], num_prefix_tokens: int, weights: Float[Tensor, "batch tokens"]
) -> Float[Tensor, "batch rows columns"]:
    """Return how much each patch reaches the pooled output, as a grid.

    Args:
        rollout: The rolled-out attention.
        grid: Rows and columns of patches.
        num_prefix_tokens: Tokens before the patches, class token and registers: their columns are dropped.
        weights: The share of each output token in the pooled output, summing to 1 over the tokens.
    """
    pooled = torch.einsum("bo,boi->bi", weights, rollout)
    return pooled[:, num_prefix_tokens:].reshape(-1, *grid)


def class_relevance(attentions: Sequence[Attention], gradients: Sequence[Attention]) -> Rollout:
    """Accumulate the attention that speaks for a class through the layers, by the rule for self-attention.

    Per layer the probabilities A are weighed by their gradients and the positive ones averaged over the heads (equation 5):
    M = mean over heads of max(0, gradient A). The relevance starts at the identity and grows by R = R + M R (equation 6).
    Returned is R less that identity, because a token itself does not tell where the class is seen. It is accumulated
    without it, because small numbers would lose their digits beside a 1.

    Args:
        attentions: The attention probabilities of each layer, first layer first.
        gradients: The gradients of the class's logit by them.

    Returns:
        In row i how much each input token counts for the class by way of output token i.
    """
    assert attentions, "relevance needs at least one layer"
    batch, _, tokens, _ = attentions[0].shape
    relevance = torch.zeros(batch, tokens, tokens)
    for attention, gradient in zip(attentions, gradients, strict=True):
        speaking = (gradient * attention).relu().mean(dim=1)
        relevance = relevance + speaking @ relevance + speaking
    return relevance


def class_activation(maps: Maps, gradients: Maps) -> Float[Tensor, "batch rows columns"]:
    """Weigh each channel by its gradient's mean over the cells (equation 1), sum, and keep what is positive (2).

    All 0 where nothing speaks for the class.

    Args:
        maps: The feature maps A.
        gradients: The gradients of the class's logit by A.
    """
    weights = gradients.mean(dim=(2, 3), keepdim=True)
    return (weights * maps).sum(dim=1).relu()


def contributions(maps: Maps, gradients: Maps) -> Float[Tensor, "batch rows columns"]:
    """Return what each cell adds to the class's logit, or takes from it: weight times input, summed over the channels.

    Exact for a linear layer on the maps, because the gradients are its weights: with the bias the cells sum to the logit.

    Args:
        maps: The feature maps.
        gradients: The gradients of the class's logit by them.
    """
    return (gradients * maps).sum(dim=1)
