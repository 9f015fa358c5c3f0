"""A linear layer for training in bfloat16 on a CPU."""

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.models.kernels import condition

HAS_FUSED_LINEAR = hasattr(torch.ops.mkldnn, "_linear_pointwise")
# In bfloat16 oneDNN multiplies only where the CPU has AVX512 or the like; torch's own product runs on every one.
HAS_FUSED_BF16 = HAS_FUSED_LINEAR and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Linear(nn.Linear):
    """A linear layer, by the kernel that is fastest where it runs; the plain formula is `nn.Linear`'s own."""

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch out"]:
        """Return the transformed values."""
        trains = condition.trains_in_bf16_on_cpu(values) and torch.is_autocast_enabled("cpu")
        if not (HAS_FUSED_BF16 and trains):
            return functional.linear(values, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.to(values.dtype)
        return fused_linear(values.contiguous(), self.weight.to(values.dtype), bias)

    def part(
        self, values: Float[Tensor, "*batch features"], start: int, stop: int | None = None
    ) -> Float[Tensor, "*batch part"]:
        """Return the transformed values from one output to another, whose products alone are computed."""
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
