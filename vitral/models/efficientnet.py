"""EfficientNet (arXiv 1905.11946), the network of Noisy Student (arXiv 1911.04252) and Meta Pseudo Labels (2003.10580).

The table and its rounding are those of google-research/noisystudent; held against timm's tf_efficientnet models. The Lite
networks are those of tensorflow/tpu (models/official/efficientnet/lite): without squeeze and excite, with ReLU6, and with a
stem, a head and the repeats of the first and the last stage that do not grow.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn import functional

from vitral.described import LATER
from vitral.errors import ModelError
from vitral.models.convolution import Convolution, Maps, SqueezeExcite, init_convolution, normed
from vitral.models.layers import BatchPart, FeatureMaps, StochasticDepth, TokenGrid, init_norms, seeded
from vitral.models.model import Features, Images, ModelConfig, refuse_rates
from vitral.models.staged import StagedModel

NORM_EPS = 1e-3
NORM_MOMENTUM = 0.01  # torch's sense: the share of the new batch
STEM = 32  # channels of the first convolution
HEAD = 1280  # channels of the last convolution
# Repeats, kernel, stride, expansion and channels of each stage of B0.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
SQUEEZE = 0.25  # of the block's input channels


@dataclass(frozen=True, kw_only=True, slots=True)
class EfficientNetConfig(ModelConfig):
    """Everything that makes one EfficientNet, besides what `ModelConfig` says; dropout comes before the head.

    Attributes:
        width: Coefficient of every layer's channels.
        depth: Coefficient of every stage's repeats.
        lite: Whether it is one for small devices: ReLU6, no squeeze and excite, and ends that are not scaled.
    """

    width: float = 1.0
    depth: float = 1.0
    lite: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        refuse_rates(self, "EfficientNet", "attention_dropout")
        if self.width <= 0 or self.depth <= 0:
            raise ModelError(f"EfficientNet needs coefficients above 0, not {self.width} and {self.depth}.")

    def channels(self, base: int) -> int:
        """Return `base` channels widened and rounded to a multiple of 8, never more than a tenth below."""
        wanted = base * self.width
        rounded = max(8, int(wanted + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * wanted else rounded

    @property
    def repeats(self) -> tuple[int, ...]:
        """Blocks of each stage: deepened and rounded up, but for the first and the last of a Lite network."""
        fixed = (0, len(STAGES) - 1) if self.lite else ()
        return tuple(row[0] if stage in fixed else math.ceil(row[0] * self.depth) for stage, row in enumerate(STAGES))

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels after the first convolution, after each block, and after the last convolution."""
        stem, head = (STEM, HEAD) if self.lite else (self.channels(STEM), self.channels(HEAD))
        blocks = [self.channels(row[-1]) for row, count in zip(STAGES, self.repeats, strict=True) for _ in range(count)]
        return stem, *blocks, head

    @property
    def finer(self) -> tuple[tuple[int, int], ...]:
        """Stride and channels before each stage that halves the maps."""
        before = (self.widths[0], *(self.channels(row[-1]) for row in STAGES))
        halved = [channels for channels, (_, _, stride, _, _) in zip(before, STAGES, strict=False) if stride == 2]
        return tuple((2 ** (number + 1), channels) for number, channels in enumerate(halved))


class MBConv(nn.Module):
    """Inverted bottleneck: expand, filter each channel, squeeze and excite, project; the shortcut joins the narrow ends."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int, *, lite: bool) -> None:
        super().__init__()
        wide = channels * expansion
        self.activation = functional.relu6 if lite else functional.silu
        self.expand = Convolution(channels, wide, 1, padding=0) if expansion > 1 else None
        self.expand_norm = _norm(wide) if expansion > 1 else None
        self.depthwise = Convolution(wide, wide, kernel, stride=stride, padding="same", groups=wide)
        self.depthwise_norm = _norm(wide)
        self.squeeze_excite = None if lite else SqueezeExcite(wide, max(1, int(channels * SQUEEZE)), nn.SiLU)
        self.project = Convolution(wide, out, 1, padding=0)
        self.project_norm = _norm(out)
        self.has_shortcut = stride == 1 and channels == out
        self.stochastic_depth = StochasticDepth()

    def forward(self, maps: Maps, part: BatchPart | None = None) -> Maps:
        """Return the maps after the block."""
        wide = maps
        if self.expand is not None and self.expand_norm is not None:
            wide = self.activation(normed(self.expand, self.expand_norm, wide))
        wide = self.activation(normed(self.depthwise, self.depthwise_norm, wide))
        if self.squeeze_excite is not None:
            wide = self.squeeze_excite(wide)
        narrow = normed(self.project, self.project_norm, wide)
        return maps + self.stochastic_depth(narrow, part) if self.has_shortcut else narrow


class EfficientNet(StagedModel):
    """The network of one `EfficientNetConfig`."""

    config: EfficientNetConfig

    def __init__(self, config: EfficientNetConfig) -> None:
        super().__init__()
        self.config = config
        self.activation = functional.relu6 if config.lite else functional.silu
        channels, *_, wide = config.widths
        self.stem = Convolution(3, channels, 3, stride=2, padding="same")
        self.stem_norm = _norm(channels)
        self.stages = nn.ModuleList()
        for (_, kernel, stride, expansion, base), repeats in zip(STAGES, config.repeats, strict=True):
            out, blocks = config.channels(base), nn.Sequential()
            for block in range(repeats):
                blocks.append(MBConv(channels, out, kernel, 1 if block else stride, expansion, lite=config.lite))
                channels = out
            self.stages.append(blocks)
        self.head_convolution = Convolution(channels, wide, 1, padding=0)
        self.head_norm = _norm(wide)
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(wide, config.num_classes)
        self.apply_rates()

    def encode(self, images: Images, part: BatchPart | None = None) -> FeatureMaps:
        """Return the last feature maps."""
        encoded = self.through(images, self._stem_maps, part)
        return replace(encoded, maps=self.activation(normed(self.head_convolution, self.head_norm, encoded.maps)))

    def _stem_maps(self, images: Images) -> Maps:
        # A CPU filters each channel for itself in two thirds of the time where channels come last, forward and backward.
        maps = images.contiguous(memory_format=torch.channels_last)
        return self.activation(normed(self.stem, self.stem_norm, maps))

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the mean of the feature maps, after dropout."""
        return self.dropout(super().pool(encoded))

    def apply_rates(self) -> None:
        """Hand the config's rates to the layers; stochastic depth grows with the block's index over their number."""
        self.dropout.p = self.config.dropout
        blocks = [block for block in self.blocks() if isinstance(block, MBConv)]
        for index, block in enumerate(blocks):
            block.stochastic_depth.rate = self.config.stochastic_depth * index / len(blocks)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Convolutions normal with variance 2 / fan-out, unit norms."""
        generator = seeded(self, seed)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                init_convolution(module, generator)
        init_norms(self)
        self.init_head(generator)

    def replace_head(self, num_classes: int, *, seed: int = 0) -> None:
        """Replace the head by one of weights of 0; drawn as a new network's it is far too large for a few classes.

        Its inputs are never negative: EfficientNet-Lite0 at 96 pixels begins with a loss of 13.7 for three classes.
        """
        super().replace_head(num_classes, seed=seed)
        nn.init.zeros_(self.head.weight)

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head: weights uniform within 1/sqrt(classes) (noisystudent, efficientnet_model.py)."""
        limit = self.head.out_features**-0.5
        nn.init.uniform_(self.head.weight, -limit, limit, generator=generator)
        nn.init.constant_(self.head.bias, self.config.head_bias)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=NORM_EPS, momentum=NORM_MOMENTUM)
