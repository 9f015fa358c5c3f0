"""The convolutions that the families share: TensorFlow's SAME padding, weight standardisation, squeeze and excite."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

Maps = Float[Tensor, "batch channels height width"]
Padding = int | Literal["same"]


def pad_same(maps: Maps, kernel: int, stride: int, value: float = 0.0) -> Maps:
    """Pad as TensorFlow's SAME does: ceil(size / stride) positions, the odd pixel at the bottom and at the right."""
    height, width = (_total(size, kernel, stride) for size in maps.shape[-2:])
    if height == width == 0:
        return maps
    sides = (width // 2, width - width // 2, height // 2, height - height // 2)
    return functional.pad(maps, sides, value=value)


def _total(size: int, kernel: int, stride: int) -> int:
    return max((-(-size // stride) - 1) * stride + kernel - size, 0)


class Convolution(nn.Conv2d):
    """A square convolution with a padding of so many pixels, or "same" (TensorFlow's)."""

    def __init__(
        self,
        channels: int,
        out_channels: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Padding,
        groups: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__(channels, out_channels, kernel, stride, groups=groups, bias=bias)
        # A kernel of 1 needs no padding; a stride of 1 needs as much on every side.
        fixed = (kernel - 1) // 2 if padding == "same" and stride == 1 and kernel % 2 else padding
        self.same = fixed == "same"
        if not isinstance(fixed, str):
            self.padding = (fixed, fixed)

    def kernel_weight(self) -> Float[Tensor, "out in kernel kernel"]:
        """Return the weight that is applied."""
        return self.weight

    def forward(self, maps: Maps) -> Maps:
        """Return the filtered maps."""
        if self.same:
            maps = pad_same(maps, self.kernel_size[0], self.stride[0])
        return self._conv_forward(maps, self.kernel_weight(), self.bias)


class StandardizedConvolution(Convolution):
    """A convolution with weights of mean 0 and variance 1 in each filter (arXiv 1903.10520).

    Args:
        channels: Channels in.
        out_channels: Out.
        kernel: Its side, pixels.
        stride: Pixels.
        padding: Pixels, or "same".
        eps: Keeps the division finite.
        eps_inside: Whether `eps` is added to the variance, under the root (BiT), or to the standard deviation (vit_jax).
    """

    def __init__(
        self,
        channels: int,
        out_channels: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Padding,
        eps: float,
        eps_inside: bool,
    ) -> None:
        super().__init__(channels, out_channels, kernel, stride=stride, padding=padding)
        self.eps = eps
        self.eps_inside = eps_inside

    def kernel_weight(self) -> Float[Tensor, "out in kernel kernel"]:
        """Return the standardised weight, computed in float32, in the precision of the weight."""
        weight = self.weight.float()
        variance, mean = torch.var_mean(weight, dim=(1, 2, 3), correction=0, keepdim=True)
        scale = (variance + self.eps).rsqrt() if self.eps_inside else 1.0 / (variance.sqrt() + self.eps)
        return ((weight - mean) * scale).to(self.weight.dtype)


class SqueezeExcite(nn.Module):
    """Scales every channel by what the means of all channels say (arXiv 1709.01507)."""

    def __init__(self, channels: int, squeezed: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.activation = activation()
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, maps: Maps) -> Maps:
        """Return the scaled maps."""
        means = maps.mean(dim=(2, 3), keepdim=True)
        return maps * torch.sigmoid(self.expand(self.activation(self.reduce(means))))


def residual_stages(
    unit: Callable[[int, int, int], nn.Module], stages: Sequence[int], width: int, expansion: int
) -> nn.ModuleList:
    """Return stages of residual units; each stage after the first halves the map and has twice the width.

    Args:
        unit: Makes a unit of its channels in, its inner width and its stride.
        stages: Units in each stage.
        width: Channels in of the first unit, and its inner width.
        expansion: Channels out of a unit over its inner width.
    """
    made, channels = nn.ModuleList(), width
    for stage, units in enumerate(stages):
        blocks = nn.Sequential()
        for index in range(units):
            blocks.append(unit(channels, width * 2**stage, 2 if stage and not index else 1))
            channels = expansion * width * 2**stage
        made.append(blocks)
    return made


@torch.no_grad()
def init_convolution(layer: nn.Conv2d, generator: torch.Generator, *, std: float | None = None) -> None:
    """Weights normal with `std`, by default He's: a variance of 2 over how many outputs one input reaches; bias zero."""
    reached = layer.kernel_size[0] * layer.kernel_size[1] * layer.out_channels // layer.groups
    layer.weight.normal_(std=math.sqrt(2.0 / reached) if std is None else std, generator=generator)
    if layer.bias is not None:
        layer.bias.zero_()
