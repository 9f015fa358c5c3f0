"""When the kernels of this room take the place of torch's own."""

import torch
from torch import Tensor


def trains_in_bf16_on_cpu(values: Tensor) -> bool:
    """Tell whether this is a training step where torch's own kernels are slow, and those of this room are faster.

    torch.compile makes kernels of its own.
    """
    if torch.compiler.is_compiling():
        return False
    return values.dtype == torch.bfloat16 and values.device.type == "cpu" and values.requires_grad
