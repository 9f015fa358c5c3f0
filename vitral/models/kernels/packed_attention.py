"""Self-attention of all heads at once, for training in bfloat16 on a CPU."""

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

Added = Float[Tensor, "heads tokens tokens"]
Projected = Float[Tensor, "batch tokens three_dim"]
Mixed = Float[Tensor, "batch tokens dim"]


def plain_attention(projected: Projected, num_heads: int, added: Added | None = None) -> Mixed:
    """Return what `packed_attention` must equal: the paper's appendix A, equations 5 to 7, head by head.

    Args:
        projected: query, key and value of all heads side by side: (batch, tokens, 3 * dim).
        num_heads: heads, each of dim / num_heads channels.
        added: to the scores of every image, such as relative positions; nothing if None.
    """
    batch, tokens, width = projected.shape
    query, key, value = projected.view(batch, tokens, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
    probabilities = (scores if added is None else scores + added).softmax(dim=-1)
    return (probabilities @ value).transpose(1, 2).reshape(batch, tokens, width // 3)


def packed_attention(projected: Projected, num_heads: int, added: Added | None = None) -> Mixed:
    """Return `plain_attention`, with a backward pass of its own that copies less."""
    return cast(Tensor, _PackedAttention.apply(projected, num_heads, added))


class _PackedAttention(torch.autograd.Function):
    """One copy sorts the heads, one sorts them back.

    Left to themselves, query, key and value would each be copied, with the gradient of each.
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, num_heads: int, added: Tensor | None) -> Tensor:  # noqa: ANN401
        batch, tokens, width = projected.shape
        sorted_heads = projected.view(batch, tokens, 3, num_heads, -1).permute(2, 0, 3, 1, 4).contiguous()
        query, key, value = sorted_heads.flatten(1, 2)
        scale = query.shape[-1] ** -0.5
        scores = torch.bmm(query * scale, key.transpose(1, 2))
        if added is not None:
            scores.view(batch, num_heads, tokens, tokens).add_(added)
        probabilities = scores.softmax(dim=-1)
        mixed = torch.bmm(probabilities, value).view(batch, num_heads, tokens, -1)
        ctx.save_for_backward(sorted_heads, probabilities)
        return mixed.transpose(1, 2).reshape(batch, tokens, width // 3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None]:  # noqa: ANN401
        sorted_heads, probabilities = ctx.saved_tensors
        _, batch, num_heads, tokens, head_dim = sorted_heads.shape
        query, key, value = sorted_heads.flatten(1, 2)
        scale = head_dim**-0.5
        grad_heads = torch.empty_like(sorted_heads)
        grad_query, grad_key, grad_value = grad_heads.flatten(1, 2)
        grad_mixed = gradient.view(batch, tokens, num_heads, head_dim).transpose(1, 2).reshape(-1, tokens, head_dim)
        torch.bmm(probabilities.transpose(1, 2), grad_mixed, out=grad_value)
        grad_scores = torch.bmm(grad_mixed, value.transpose(1, 2))
        grad_scores = torch._softmax_backward_data(grad_scores, probabilities, -1, grad_scores.dtype)
        torch.bmm(grad_scores, key, out=grad_query)
        torch.bmm(grad_scores.transpose(1, 2), query, out=grad_key)
        grad_heads[:2].mul_(scale)
        grad_added = grad_scores.view(batch, num_heads, tokens, tokens).sum(0) if ctx.needs_input_grad[2] else None
        return grad_heads.permute(1, 3, 0, 2, 4).reshape(batch, tokens, -1), None, grad_added
