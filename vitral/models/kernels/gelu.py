"""The GELUs, and the one that a CPU learns with in bfloat16."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitral.models.kernels import condition

Gelu = Literal["tanh", "exact", "quick"]


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
        exact = condition.trains_in_bf16_on_cpu(values)
        return functional.gelu(values, approximate="none" if exact else "tanh")
