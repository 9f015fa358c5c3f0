"""Big Transfer's ResNet-v2 with GroupNorm and weight standardisation (BiT, arXiv 1912.11370, section 3).

Held against bit_pytorch/models.py of google-research/big_transfer. The ViT paper's "ResNet (BiT)" baselines are of this kind.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.convolution import Maps, StandardizedConvolution, residual_stages
from vitral.models.layers import BatchPart, FeatureMaps, StochasticDepth, init_norms, lecun_normal_, seeded
from vitral.models.model import Images, ModelConfig, refuse_rates
from vitral.models.staged import StagedModel

GROUPS = 32
WIDTH = 64
EXPANSION = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class BiTConfig(ModelConfig):
    """Everything that makes one BiT ResNet, besides what `ModelConfig` says.

    Attributes:
        stages: Residual units in each of the four stages.
        width_factor: Widens every layer.
        weight_eps: The epsilon of the weight standardisation, added to the variance: 1e-10 in the original, 1e-8 in timm and
            in transformers.
        norm_eps: The epsilon of the group norms.
    """

    stages: tuple[int, ...] = (3, 4, 6, 3)
    width_factor: int = 1
    weight_eps: float = 1e-10
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        refuse_rates(self, "BiT", "dropout", "attention_dropout")
        if self.width_factor < 1 or not self.stages or min(self.stages) < 1:
            raise ModelError(f"BiT needs a width factor and stages of at least 1, not {self.stages}.")

    @property
    def channels(self) -> int:
        """Channels of the last feature map."""
        return EXPANSION * WIDTH * self.width_factor * 2 ** (len(self.stages) - 1)

    @property
    def finer(self) -> tuple[tuple[int, int], ...]:
        """Stride and channels of each stage but the last."""
        width = EXPANSION * WIDTH * self.width_factor
        return tuple((4 * 2**stage, width * 2**stage) for stage in range(len(self.stages) - 1))


class PreActivationUnit(nn.Module):
    """Norm and ReLU before each of three convolutions; the shortcut is projected from the first activation."""

    def __init__(self, channels: int, width: int, stride: int, config: BiTConfig) -> None:
        super().__init__()
        out = EXPANSION * width
        self.norm1 = nn.GroupNorm(GROUPS, channels, eps=config.norm_eps)
        self.conv1 = _convolution(channels, width, 1, 1, config)
        self.norm2 = nn.GroupNorm(GROUPS, width, eps=config.norm_eps)
        self.conv2 = _convolution(width, width, 3, stride, config)
        self.norm3 = nn.GroupNorm(GROUPS, width, eps=config.norm_eps)
        self.conv3 = _convolution(width, out, 1, 1, config)
        self.projection = _convolution(channels, out, 1, stride, config) if channels != out or stride != 1 else None
        self.stochastic_depth = StochasticDepth()

    def forward(self, maps: Maps, part: BatchPart | None = None) -> Maps:
        """Return the maps after the unit."""
        active = functional.relu(self.norm1(maps))
        shortcut = maps if self.projection is None else self.projection(active)
        residual = self.conv1(active)
        residual = self.conv2(functional.relu(self.norm2(residual)))
        residual = self.conv3(functional.relu(self.norm3(residual)))
        return shortcut + self.stochastic_depth(residual, part)


class BiT(StagedModel):
    """The ResNet of one `BiTConfig`."""

    config: BiTConfig

    def __init__(self, config: BiTConfig) -> None:
        super().__init__()
        self.config = config
        width = WIDTH * config.width_factor
        self.root = _convolution(3, width, 7, 2, config)
        self.stages = residual_stages(partial(PreActivationUnit, config=config), config.stages, width, EXPANSION)
        self.norm = nn.GroupNorm(GROUPS, config.channels, eps=config.norm_eps)
        self.head = nn.Linear(config.channels, config.num_classes)
        self.apply_rates()

    def encode(self, images: Images, part: BatchPart | None = None) -> FeatureMaps:
        """Return the last feature maps, after the last norm and ReLU."""
        # Zeros around the root's output, which no ReLU has followed, take part in the maximum: the original's own way.
        maps = functional.max_pool2d(functional.pad(self.root(images), (1, 1, 1, 1)), 3, 2)
        encoded = FeatureMaps.through(self.blocks(), maps, part)
        return replace(encoded, maps=functional.relu(self.norm(encoded.maps)))

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """LeCun-normal convolutions (which standardisation makes a matter of scale alone), unit norms, zero head."""
        generator = seeded(self, seed)
        for module in self.modules():
            if isinstance(module, StandardizedConvolution):
                lecun_normal_(module.weight, generator)
        init_norms(self)
        self.init_head(generator)


def _convolution(channels: int, out: int, kernel: int, stride: int, config: BiTConfig) -> StandardizedConvolution:
    return StandardizedConvolution(
        channels, out, kernel, stride=stride, padding=kernel // 2, eps=config.weight_eps, eps_inside=True
    )
