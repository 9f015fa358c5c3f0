"""TinyViT (arXiv 2207.10666): inverted bottlenecks, then stages of attention within windows, each followed by a convolution.

Held against timm's tiny_vit models, and by them against models/tiny_vit.py of microsoft/Cream.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.attention import attend
from vitral.models.blocks import Mlp
from vitral.models.convolution import Convolution, Maps
from vitral.models.layers import (
    BatchPart,
    FeatureMaps,
    StochasticDepth,
    TokenGrid,
    Tokens,
    init_linear_deit,
    init_norms,
    init_torch_default,
    seeded,
)
from vitral.models.model import Features, Images, ModelConfig, Use, refuse_heads, refuse_rates
from vitral.models.staged import StagedModel

NORM_EPS = 1e-5
EXPANSION = 4  # channels inside over channels in, of the inverted bottlenecks and of the MLPs


@dataclass(frozen=True, kw_only=True, slots=True)
class TinyViTConfig(ModelConfig):
    """Everything that makes one TinyViT, besides what `ModelConfig` says.

    Attributes:
        dims: Channels of the four stages, of which the first is of convolutions and the others attend.
        depths: Blocks of each.
        num_heads: Attention heads of the last three.
        windows: Side of a window in each of these, in positions of its map.
    """

    dims: tuple[int, int, int, int] = (64, 128, 160, 320)
    depths: tuple[int, int, int, int] = (2, 2, 6, 2)
    num_heads: tuple[int, int, int] = (4, 5, 10)
    windows: tuple[int, int, int] = (7, 14, 7)

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        refuse_rates(self, "TinyViT", "attention_dropout")
        if min(*self.dims, *self.depths, *self.num_heads, *self.windows) < 1 or self.dims[0] % 2:
            raise ModelError(
                "TinyViT needs blocks, heads and windows of at least 1, and an even width of its first stage."
            )
        refuse_heads(self.dims[1:], self.num_heads)

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use, as part of a sentence; empty if nothing does."""
        if use == "rollout":
            return "its attention stays within windows, between which convolutions carry what is seen"
        return ModelConfig.obstacle_to(self, use)


class InvertedBottleneck(nn.Module):
    """Three convolutions with batch norms, of which the middle one filters each channel."""

    def __init__(self, channels: int, wide: int, out: int, *, stride: int = 1) -> None:
        super().__init__()
        self.expand = Convolution(channels, wide, 1, padding=0)
        self.expand_norm = nn.BatchNorm2d(wide)
        self.depthwise = Convolution(wide, wide, 3, stride=stride, padding=1, groups=wide)
        self.depthwise_norm = nn.BatchNorm2d(wide)
        self.project = Convolution(wide, out, 1, padding=0)
        self.project_norm = nn.BatchNorm2d(out)

    def forward(self, maps: Maps) -> Maps:
        """Return the maps after the last norm, before any activation."""
        wide = functional.gelu(self.expand_norm(self.expand(maps)))
        wide = functional.gelu(self.depthwise_norm(self.depthwise(wide)))
        return self.project_norm(self.project(wide))


class ConvolutionBlock(nn.Module):
    """A block of the first stage: a residual inverted bottleneck, GELU after the sum."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.bottleneck = InvertedBottleneck(dim, EXPANSION * dim, dim)
        self.stochastic_depth = StochasticDepth()

    def forward(self, maps: Maps, part: BatchPart | None = None) -> Maps:
        """Return the maps after the block."""
        return functional.gelu(maps + self.stochastic_depth(self.bottleneck(maps), part))


class WindowAttention(nn.Module):
    """Attention within windows of a map, with a learned term for how far rows and columns of query and key are apart.

    A map that windows do not fill is padded with zeros, which are normalised and attended to like any position.
    """

    index: Tensor

    def __init__(self, dim: int, num_heads: int, window: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.window = window
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.bias = nn.Parameter(torch.empty(num_heads, window, window))
        self.out = nn.Linear(dim, dim)
        self.register_buffer("index", distance_index(window), persistent=False)

    def forward(self, maps: Float[Tensor, "batch rows columns dim"]) -> Float[Tensor, "batch rows columns dim"]:
        """Return the mixed positions."""
        side, (_, rows, columns, dim) = self.window, maps.shape
        padded = functional.pad(maps, (0, 0, 0, -columns % side, 0, -rows % side))
        down, right = padded.shape[1] // side, padded.shape[2] // side
        windows = padded.reshape(-1, down, side, right, side, dim).transpose(2, 3)
        mixed = self._attend(windows.reshape(-1, side * side, dim))
        whole = mixed.reshape(-1, down, right, side, side, dim).transpose(2, 3)
        return whole.reshape(-1, down * side, right * side, dim)[:, :rows, :columns]

    def _attend(self, tokens: Tokens) -> Tokens:
        qkv = self.qkv(self.norm(tokens)).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        bias = self.bias.flatten(1)[:, self.index].to(query.dtype)
        return self.out(attend(query, key, value, bias=bias[None]).transpose(1, 2).flatten(2))


def distance_index(window: int) -> Int64[Tensor, "positions positions"]:
    """Return where in a flattened table the distance between the positions of a window stands, rows and columns apart."""
    rows, columns = (side.flatten() for side in np.mgrid[:window, :window])
    down, right = np.abs(rows[:, None] - rows[None]), np.abs(columns[:, None] - columns[None])
    return torch.from_numpy(down * window + right)


class WindowBlock(nn.Module):
    """A block of the other stages: attention within windows, a convolution of each channel, an MLP.

    Args:
        channels: In.
        dim: Out; where `merges`, a bottleneck of that width halves the map before the block.
        num_heads: Attention heads.
        window: Side of a window, positions.
        merges: Whether it is the first one of its stage.
    """

    def __init__(self, channels: int, dim: int, num_heads: int, window: int, *, merges: bool) -> None:
        super().__init__()
        self.merging = InvertedBottleneck(channels, dim, dim, stride=2) if merges else None
        self.windows = WindowAttention(dim, num_heads, window)
        self.local = Convolution(dim, dim, 3, padding=1, groups=dim)
        self.local_norm = nn.BatchNorm2d(dim)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = Mlp(dim, EXPANSION * dim, gelu="exact")
        self.stochastic_depth = StochasticDepth()

    def forward(self, maps: Maps, part: BatchPart | None = None) -> Maps:
        """Return the maps after the block."""
        if self.merging is not None:
            maps = self.merging(maps)
        mixed = self.windows(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        maps = self.local_norm(self.local(maps + self.stochastic_depth(mixed, part)))
        tokens = maps.flatten(2).transpose(1, 2)
        tokens = tokens + self.stochastic_depth(self.mlp(self.norm(tokens)), part)
        return tokens.transpose(1, 2).unflatten(2, maps.shape[2:])


class TinyViT(StagedModel):
    """The network of one `TinyViTConfig`."""

    config: TinyViTConfig
    undecayed: ClassVar[tuple[str, ...]] = ("windows.bias",)

    def __init__(self, config: TinyViTConfig) -> None:
        super().__init__()
        self.config = config
        channels = config.dims[0]
        self.stem1 = Convolution(3, channels // 2, 3, stride=2, padding=1)
        self.stem_norm1 = nn.BatchNorm2d(channels // 2)
        self.stem2 = Convolution(channels // 2, channels, 3, stride=2, padding=1)
        self.stem_norm2 = nn.BatchNorm2d(channels)
        first, *depths = config.depths
        self.stages = nn.ModuleList([nn.Sequential(*(ConvolutionBlock(channels) for _ in range(first)))])
        for dim, depth, heads, window in zip(config.dims[1:], depths, config.num_heads, config.windows, strict=True):
            blocks = nn.Sequential()
            for block in range(depth):
                blocks.append(WindowBlock(channels, dim, heads, window, merges=block == 0))
                channels = dim
            self.stages.append(blocks)
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS)
        self.head = nn.Linear(channels, config.num_classes)
        self.apply_rates()

    def encode(self, images: Images, part: BatchPart | None = None) -> FeatureMaps:
        """Return the last feature maps."""
        maps = functional.gelu(self.stem_norm1(self.stem1(images)))
        maps = self.stem_norm2(self.stem2(maps))
        for block in self.blocks():
            maps = block(maps, part)
        return FeatureMaps(maps)

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the normalised mean of the feature maps."""
        return self.norm(super().pool(encoded))

    def apply_rates(self) -> None:
        """Hand the config's rates to the layers: dropout to the MLPs."""
        super().apply_rates()
        for block in self.blocks():
            if isinstance(block, WindowBlock):
                block.mlp.dropout.p = self.config.dropout

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Truncated normal of standard deviation 0.02 (linear), torch's own convolutions, unit norms, tables of 0.

        The scale of the last norm of the first stage's bottlenecks is 0.
        """
        generator = seeded(self, seed)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                init_torch_default(module, generator)
            elif isinstance(module, nn.Linear) and module is not self.head:
                init_linear_deit(module, generator)
            elif isinstance(module, WindowAttention):
                nn.init.zeros_(module.bias)
                module.index.copy_(distance_index(module.window))
        init_norms(self)
        for block in self.blocks():
            if isinstance(block, ConvolutionBlock):
                nn.init.zeros_(block.bottleneck.project_norm.weight)
        self.init_head(generator)

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head: weights normal with standard deviation 0.02."""
        init_linear_deit(self.head, generator)
        nn.init.constant_(self.head.bias, self.config.head_bias)
