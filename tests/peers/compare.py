"""How a network is held against a peer's."""

import zlib

import torch
from torch import nn


@torch.no_grad()
def scramble(model: nn.Module) -> None:
    """Draw every tensor of a network anew by its name, so that no layer passes its input through and no head is zero."""
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        drawn = torch.randn(tensor.shape, generator=generator)
        if name.endswith("running_var"):
            tensor.copy_(1 + 0.1 * drawn.abs())
        elif tensor.ndim <= 1 or name.endswith("running_mean"):
            around = 1.0 if name.endswith("weight") or "gamma" in name or "lambda" in name else 0.0
            tensor.copy_(around + 0.1 * drawn)
        elif name.endswith(("weight", "kernel")):
            tensor.copy_(drawn * (tensor[0].numel() ** -0.5))
        else:
            tensor.copy_(0.3 * drawn)


def pixels(size: tuple[int, int], batch: int = 2) -> torch.Tensor:
    """Return prepared images of noise."""
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(0))


def gap(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the largest difference over the standard deviation of theirs."""
    return float((ours - theirs).abs().max() / theirs.std())
