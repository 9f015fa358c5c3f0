"""The convolutions that the families share: TensorFlow's SAME padding, weight standardisation, squeeze and excite, stems.

The whitened stem of our small hybrids is whitened patches, then stages of 3x3 convolutions with batch norms and max pooling
that begin as the identity, after airbench94 (arXiv 2404.00498, section 3). Its first layer is never trained but for its bias;
what whitens is computed from a model of images in place of the images at hand, so that the network is a function of its seed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.layers import init_norms
from vitral.models.model import LARGEST

Maps = Float[Tensor, "batch channels height width"]
Padding = int | Literal["same"]
EPS = 5e-4  # added to the variances before their root (airbench)
# Of the first-order model of images: the correlation of two pixels one above the other and side by side, and that of a
# pixel's red, green and blue. No two variances are equal, so that every direction is unique.
NEIGHBOURS = (0.95, 0.945)
CHANNELS = ((1.0, 0.92, 0.85), (0.92, 1.0, 0.91), (0.85, 0.91, 1.0))


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
        return self.filtered(maps, self.kernel_weight(), self.bias)

    def filtered(self, maps: Maps, weight: Tensor, bias: Tensor | None) -> Maps:
        """Return the maps filtered by a weight and a bias in place of its own."""
        if self.same:
            maps = pad_same(maps, self.kernel_size[0], self.stride[0])
        return self._conv_forward(maps, weight, bias)


def normed(convolution: Convolution, norm: nn.BatchNorm2d, maps: Maps) -> Maps:
    """Return filtered maps after their batch norm; one that stands still while the filters learn is part of them.

    A CPU then neither writes nor reads the maps between the two (benchmarks/train_speed.py).
    """
    mean, variance = norm.running_mean, norm.running_var
    if norm.training or not convolution.training or mean is None or variance is None:
        return norm(convolution(maps))
    scale = norm.weight * (variance + norm.eps).rsqrt()
    return convolution.filtered(
        maps, convolution.kernel_weight() * scale[:, None, None, None], norm.bias - mean * scale
    )


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


@dataclass(frozen=True, kw_only=True, slots=True)
class WhitenedStemConfig:
    """Whitened patches and convolutions before the transformer.

    Attributes:
        patch: Side of the whitened patches, pixels.
        step: The step between them, pixels.
        widths: Channels of the stages, each of which halves the map.
    """

    patch: int = 2
    step: int = 1
    widths: tuple[int, ...] = (64, 256)

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if min(self.patch, self.step, *self.widths, len(self.widths)) < 1 or max(self.widths) > LARGEST:
            raise ModelError(f"A stem needs a patch, a step and stages of at least 1, not {self}.")

    @property
    def filters(self) -> int:
        """Channels of the first layer: each direction of a patch's space, and its negative."""
        return 2 * 3 * self.patch**2

    @property
    def channels(self) -> int:
        """Channels of the feature map."""
        return self.widths[-1]

    @property
    def stride(self) -> int:
        """How many pixels one position of the feature map stands for, in each direction."""
        return self.step * 2 ** len(self.widths)

    def positions(self, size: int) -> int:
        """Return how many positions the feature map has along a side of so many pixels."""
        return ((size - self.patch) // self.step + 1) // 2 ** len(self.widths)

    def least(self, positions: int) -> int:
        """Return the least side, in pixels, that gives a feature map of so many positions."""
        return (positions * 2 ** len(self.widths) - 1) * self.step + self.patch


class Stage(nn.Module):
    """Two convolutions, each with its norm and GELU; after the first one the map is pooled to half its size."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv1 = Convolution(channels, width, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = Convolution(width, width, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, maps: Maps) -> Maps:
        """Return the maps after the stage."""
        maps = functional.gelu(self.norm1(functional.max_pool2d(self.conv1(maps), 2)))
        return functional.gelu(self.norm2(self.conv2(maps)))


class Whitening(nn.Conv2d):
    """The layer that reads the pixels: its filters are computed, kept with the weights and never learned; its bias is."""

    weight: Tensor  # a buffer

    def __init__(self, config: WhitenedStemConfig) -> None:
        super().__init__(3, config.filters, config.patch, config.step)
        shape = self.weight.shape
        del self.weight
        self.register_buffer("weight", torch.empty(shape))


class WhitenedStem(nn.Module):
    """From images to the feature map that the transformer's tokens are made of."""

    def __init__(self, config: WhitenedStemConfig) -> None:
        super().__init__()
        self.whitening = Whitening(config)
        channels = (config.filters, *config.widths)
        self.stages = nn.ModuleList(map(Stage, channels, config.widths))

    def forward(self, images: Maps) -> Maps:
        """Return the feature map, (batch, channels, rows, columns)."""
        # Channels last: what the convolutions of a CPU and of a GPU in half precision are fastest on.
        images = images.contiguous(memory_format=torch.channels_last)
        maps = functional.gelu(self.whitening(images))
        for stage in self.stages:
            maps = stage(maps)
        return maps

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Whitening filters; convolutions that hand on what they can, the rest uniform as torch draws them; unit norms."""
        first = self.whitening
        first.weight.copy_(whitening_filters(first.kernel_size[0]))
        assert first.bias is not None
        first.bias.zero_()
        for module in self.modules():
            if isinstance(module, Convolution):
                limit = module.weight[0].numel() ** -0.5
                module.weight.uniform_(-limit, limit, generator=generator)
                nn.init.dirac_(module.weight[: module.in_channels])
        init_norms(self)


def whitening_filters(patch: int) -> Float[Tensor, "filters 3 patch patch"]:
    """Return filters that whiten the patches of a first-order model of standardised images, and their negatives.

    In that model the correlation of two pixels falls by a constant factor a step, and channels correlate by constants: what
    the covariance of natural images is well described by. A filter is an eigenvector of the covariance over the root of its
    variance, those of the largest variances first.
    """
    distances = torch.arange(patch, dtype=torch.float64)
    down, across = (factor ** (distances[:, None] - distances).abs() for factor in NEIGHBOURS)
    covariance = torch.kron(torch.tensor(CHANNELS, dtype=torch.float64), torch.kron(down, across))
    variances, directions = torch.linalg.eigh(covariance)
    directions = directions.T.flip(0)
    # An eigenvector has no sign; the same one on every machine makes the network a function of its seed there, too.
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    filters = directions * largest.sign() / (variances.flip(0)[:, None] + EPS).sqrt()
    return torch.cat([filters, -filters]).float().reshape(-1, 3, patch, patch)
