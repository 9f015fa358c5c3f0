"""Layers written for a CPU's speed, each next to the plain formula that it must equal."""

import contextlib
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

Gelu = Literal["tanh", "exact", "quick"]
Added = Float[Tensor, "heads tokens tokens"]
Projected = Float[Tensor, "batch tokens three_dim"]
Mixed = Float[Tensor, "batch tokens dim"]

HAS_FUSED_LINEAR = hasattr(torch.ops.mkldnn, "_linear_pointwise")
# In bfloat16 oneDNN multiplies only where the CPU has AVX512 or the like; torch's own product runs on every one.
HAS_FUSED_BF16 = HAS_FUSED_LINEAR and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def trains_in_bf16_on_cpu(values: Tensor) -> bool:
    """Tell whether this is a training step where torch's own kernels are slow, and those of this file are faster.

    torch.compile makes kernels of its own.
    """
    if torch.compiler.is_compiling():
        return False
    return values.dtype == torch.bfloat16 and values.device.type == "cpu" and values.requires_grad


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which autocast rounds nothing, because a decision is taken in float32."""
    # The meta device, on which networks are counted, knows no autocast.
    return contextlib.nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def gelu_layer(kind: Gelu) -> nn.Module:
    """Return one of the three GELUs; they differ by up to 5e-4 (tanh) and 2e-2 (quick) from the exact one."""
    return {"quick": QuickGelu, "tanh": TanhGelu, "exact": nn.GELU}[kind]()


class QuickGelu(nn.Module):
    """x * sigmoid(1.702 x), an approximation of GELU that CvT's weights were trained with."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the activations, of the shape of `values`."""
        return values * torch.sigmoid(1.702 * values)


class TanhGelu(nn.Module):
    """GELU by its tanh approximation, the original's form (jax.nn.gelu).

    The CPU's kernel for it takes six times as long in bfloat16 as the one for the exact form, from which it differs by at most
    4.7e-4: less than bfloat16 rounds any value above 0.12. So that is what a network learns with there; everywhere else, and
    in evaluation, it is the tanh form.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Return the activations, of the shape of `values`."""
        exact = trains_in_bf16_on_cpu(values)
        return functional.gelu(values, approximate="none" if exact else "tanh")


class Linear(nn.Linear):
    """A linear layer, by the kernel that is fastest where it runs; the plain formula is `nn.Linear`'s own."""

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch out"]:
        """Return the transformed values."""
        trains = trains_in_bf16_on_cpu(values) and torch.is_autocast_enabled("cpu")
        if not (HAS_FUSED_BF16 and trains):
            return functional.linear(values, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.to(values.dtype)
        return fused_linear(values.contiguous(), self.weight.to(values.dtype), bias)

    def part(
        self, values: Float[Tensor, "*batch features"], start: int, stop: int | None = None
    ) -> Float[Tensor, "*batch part"]:
        """Return the transformed values from one output to another; only their products are computed."""
        bias = None if self.bias is None else self.bias[start:stop]
        return functional.linear(values, self.weight[start:stop], bias)


def fused_linear(
    values: Float[Tensor, "*batch features"], weight: Float[Tensor, "out features"], bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*batch out"]:
    """Return `torch.nn.functional.linear`, by oneDNN's fused kernel; all in one precision, `values` contiguous."""
    return cast(Tensor, _FusedLinear.apply(values, weight, bias))


class _FusedLinear(torch.autograd.Function):
    """The bias is added where the product is still in registers; torch's own layer copies it out beforehand."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(values, weight)
        return torch.ops.mkldnn._linear_pointwise(values, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # noqa: ANN401
        values, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        need_values, need_weight, need_bias = ctx.needs_input_grad
        grad_values = (rows @ weight).view(values.shape) if need_values else None
        grad_weight = rows.t() @ values.reshape(-1, values.shape[-1]) if need_weight else None
        return grad_values, grad_weight, rows.sum(0) if need_bias else None


def packed_attention(projected: Projected, num_heads: int, added: Added | None = None) -> Mixed:
    """Return attention by the paper's appendix A, equations 5 to 7, with a backward pass of its own that copies less.

    Args:
        projected: Query, key and value of all heads side by side: (batch, tokens, 3 * dim).
        num_heads: Heads, each of dim / num_heads channels.
        added: What is added to the scores of every image, such as relative positions; nothing if None.
    """
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
