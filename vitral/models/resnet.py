"""ResNet with batch normalisation (arXiv 1512.03385), the baseline of every comparison.

Held against torchvision's models/resnet.py: in a bottleneck the stride sits in the 3x3 convolution ("v1.5").
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.convolution import Convolution, Maps, init_convolution, residual_stages
from vitral.models.initialization import init_norms, init_torch_default, seeded
from vitral.models.model import Images, ModelConfig, StagedModel, refuse_rates
from vitral.models.stem import EXPANSION, WIDTH
from vitral.models.stochastic_depth import BatchPart, StochasticDepth
from vitral.models.tokens import FeatureMaps


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
        shortcut = self.projection_norm(self.projection(maps)) if self.has_projection else maps
        last = len(self.convolutions) - 1
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            maps = norm(convolution(maps))
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
        maps = functional.relu(self.root_norm(self.root(images)))
        maps = functional.max_pool2d(maps, 3, 2, 1)
        for block in self.blocks():
            maps = block(maps, part)
        return FeatureMaps(maps)

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
