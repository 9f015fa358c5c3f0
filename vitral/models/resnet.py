"""ResNet with batch normalisation (arXiv 1512.03385), the baseline of every comparison, and the hybrids' stem.

Held against torchvision's models/resnet.py: in a bottleneck the stride sits in the 3x3 convolution ("v1.5").

The stem is a ResNet whose feature map is cut into patches instead of the image (paper section 3.1), held against
models_resnet.py of google-research/vision_transformer: the first version of ResNet, activation after the norm, with GroupNorm
for BatchNorm and standardised convolutions. It is not BiT's network (bit.py), in which norms come first.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.convolution import (
    Convolution,
    Maps,
    StandardizedConvolution,
    init_convolution,
    normed,
    pad_same,
    residual_stages,
)
from vitral.models.layers import (
    BatchPart,
    FeatureMaps,
    StochasticDepth,
    init_norms,
    init_torch_default,
    lecun_normal_,
    seeded,
)
from vitral.models.model import Images, ModelConfig, refuse_rates
from vitral.models.staged import StagedModel

GROUPS = 32
WIDTH = 64  # channels of the root
EXPANSION = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class StemConfig:
    """A ResNet before the transformer.

    Attributes:
        stages: Residual units in each stage; empty for the root alone, a convolution and a pooling.
        width_factor: Widens every layer.
        weight_eps: The epsilon of the weight standardisation.
        weight_eps_inside: Whether that is added under the root (timm) or to the standard deviation (the original).
        norm_eps: The epsilon of the group norms.
    """

    stages: tuple[int, ...] = (3, 4, 6, 3)
    width_factor: int = 1
    weight_eps: float = 1e-5
    weight_eps_inside: bool = False
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if self.width_factor < 1 or any(units < 1 for units in self.stages):
            raise ModelError(f"A stem needs a width factor and stages of at least 1, not {self}.")

    @property
    def channels(self) -> int:
        """Channels of the feature map."""
        width = WIDTH * self.width_factor
        return EXPANSION * width * 2 ** (len(self.stages) - 1) if self.stages else width

    @property
    def stride(self) -> int:
        """How many pixels one position of the feature map stands for, in each direction."""
        return 4 * 2 ** max(len(self.stages) - 1, 0)

    def positions(self, size: int) -> int:
        """Return how many positions the feature map has along a side of so many pixels."""
        return math.ceil(size / self.stride)


class StemUnit(nn.Module):
    """Three convolutions, each with its norm, around a shortcut; the activation comes after the sum."""

    def __init__(self, channels: int, width: int, stride: int, config: StemConfig) -> None:
        super().__init__()
        out = EXPANSION * width
        self.conv1 = _convolution(channels, width, 1, 1, config)
        self.norm1 = nn.GroupNorm(GROUPS, width, eps=config.norm_eps)
        self.conv2 = _convolution(width, width, 3, stride, config)
        self.norm2 = nn.GroupNorm(GROUPS, width, eps=config.norm_eps)
        self.conv3 = _convolution(width, out, 1, 1, config)
        self.norm3 = nn.GroupNorm(GROUPS, out, eps=config.norm_eps)
        self.has_projection = channels != out or stride != 1
        if self.has_projection:
            self.projection = _convolution(channels, out, 1, stride, config)
            self.projection_norm = nn.GroupNorm(GROUPS, out, eps=config.norm_eps)

    def forward(self, maps: Maps) -> Maps:
        """Return the maps after the unit."""
        shortcut = self.projection_norm(self.projection(maps)) if self.has_projection else maps
        maps = functional.relu(self.norm1(self.conv1(maps)))
        maps = functional.relu(self.norm2(self.conv2(maps)))
        return functional.relu(shortcut + self.norm3(self.conv3(maps)))


class ResNetStem(nn.Module):
    """From images to the feature map that the transformer's patches are cut from."""

    def __init__(self, config: StemConfig) -> None:
        super().__init__()
        width = WIDTH * config.width_factor
        self.root = _convolution(3, width, 7, 2, config)
        self.root_norm = nn.GroupNorm(GROUPS, width, eps=config.norm_eps)
        self.stages = residual_stages(partial(StemUnit, config=config), config.stages, width, EXPANSION)

    def forward(self, images: Maps) -> Maps:
        """Return the feature map, (batch, channels, height / stride, width / stride)."""
        maps = functional.relu(self.root_norm(self.root(images)))
        maps = functional.max_pool2d(pad_same(maps, 3, 2, value=float("-inf")), 3, 2)
        for stage in self.stages:
            maps = stage(maps)
        return maps

    def init_weights(self, generator: torch.Generator) -> None:
        """LeCun-normal convolutions; norms to scale 1 and bias 0, but the scale of each unit's last norm to 0."""
        for module in self.modules():
            if isinstance(module, StandardizedConvolution):
                lecun_normal_(module.weight, generator)
        init_norms(self)
        for module in self.modules():
            if isinstance(module, StemUnit):
                nn.init.zeros_(module.norm3.weight)


def _convolution(channels: int, out: int, kernel: int, stride: int, config: StemConfig) -> StandardizedConvolution:
    return StandardizedConvolution(
        channels,
        out,
        kernel,
        stride=stride,
        padding="same",
        eps=config.weight_eps,
        eps_inside=config.weight_eps_inside,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNetConfig(ModelConfig):
    """Everything that makes one ResNet, besides what `ModelConfig` says.

    Attributes:
        stages: Residual units in each of the four stages.
        bottleneck: Three convolutions a unit (50 layers and more) instead of two (18 and 34).
    """

    stages: tuple[int, ...] = (3, 4, 6, 3)
    bottleneck: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        refuse_rates(self, "ResNet", "dropout", "attention_dropout")
        if not self.stages or min(self.stages) < 1:
            raise ModelError(f"A ResNet needs stages of at least one unit, not {self.stages}.")

    @property
    def expansion(self) -> int:
        """Channels out of a unit over its width."""
        return EXPANSION if self.bottleneck else 1

    @property
    def finer(self) -> tuple[tuple[int, int], ...]:
        """Stride and channels of each stage but the last."""
        return tuple((4 * 2**stage, self.expansion * WIDTH * 2**stage) for stage in range(len(self.stages) - 1))


class ResidualUnit(nn.Module):
    """Two or three convolutions, each with its norm, around a shortcut; ReLU after the sum."""

    def __init__(self, channels: int, width: int, stride: int, config: ResNetConfig) -> None:
        super().__init__()
        out = config.expansion * width
        layers = (
            [(channels, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
            if config.bottleneck
            else [(channels, width, 3, stride), (width, out, 3, 1)]
        )
        self.convolutions = nn.ModuleList(
            Convolution(inner, outer, kernel, stride=step, padding=kernel // 2) for inner, outer, kernel, step in layers
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(outer) for _, outer, _, _ in layers)
        self.has_projection = stride != 1 or channels != out
        if self.has_projection:
            self.projection = Convolution(channels, out, 1, stride=stride, padding=0)
            self.projection_norm = nn.BatchNorm2d(out)
        self.stochastic_depth = StochasticDepth()

    def forward(self, maps: Maps, part: BatchPart | None = None) -> Maps:
        """Return the maps after the unit."""
        shortcut = normed(self.projection, self.projection_norm, maps) if self.has_projection else maps
        last = len(self.convolutions) - 1
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            maps = normed(cast(Convolution, convolution), cast(nn.BatchNorm2d, norm), maps)
            maps = maps if index == last else functional.relu(maps)
        return functional.relu(shortcut + self.stochastic_depth(maps, part))


class ResNet(StagedModel):
    """The network of one `ResNetConfig`."""

    config: ResNetConfig

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.config = config
        self.root = Convolution(3, WIDTH, 7, stride=2, padding=3)
        self.root_norm = nn.BatchNorm2d(WIDTH)
        self.stages = residual_stages(partial(ResidualUnit, config=config), config.stages, WIDTH, config.expansion)
        channels = config.expansion * WIDTH * 2 ** (len(config.stages) - 1)
        self.head = nn.Linear(channels, config.num_classes)
        self.apply_rates()

    def encode(self, images: Images, part: BatchPart | None = None) -> FeatureMaps:
        """Return the last feature maps."""
        return self.through(images, self._stem_maps, part)

    def _stem_maps(self, images: Images) -> Maps:
        maps = images.contiguous(memory_format=torch.channels_last)  # a CPU convolves so up to a half faster
        maps = functional.relu(normed(self.root, self.root_norm, maps))
        return functional.max_pool2d(maps, 3, 2, 1)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """He-normal convolutions by their fan-out, unit norms, as in torchvision."""
        generator = seeded(self, seed)
        for module in self.modules():
            if isinstance(module, Convolution):
                init_convolution(module, generator)
        init_norms(self)
        self.init_head(generator)

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head as torch does."""
        init_torch_default(self.head, generator, bias=self.config.head_bias)
