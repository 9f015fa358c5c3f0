"""CoAtNet (arXiv 2106.04803): convolution stages, then transformer stages with relative attention.

There is no official code. Where the paper is silent, the inverted bottleneck's expansion and its squeeze are counted from
the width out, which with the hidden layer before the head gives the paper's parameter counts.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.attention import attention_scores
from vitral.models.blocks import LAYER_NORM_EPS, Mlp, TanhLayer
from vitral.models.convolution import Convolution, Maps, SqueezeExcite, init_convolution
from vitral.models.layers import BatchPart, FeatureMaps, StochasticDepth, TokenGrid, Tokens, init_norms, seeded
from vitral.models.model import Features, Grid, Images, ModelConfig, Use
from vitral.models.position import relative_index, resize_table
from vitral.models.staged import StagedModel

EXPANSION = 4
SQUEEZE = 0.25  # of the width out
INIT_STD = 0.02

Kind = Literal["convolution", "attention"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CoAtNetConfig(ModelConfig):
    """Everything that makes one CoAtNet, besides what `ModelConfig` says.

    Attributes:
        stem_dim: Width of the two convolutions of stage 0.
        kinds: "convolution" (inverted bottlenecks) or "attention" for each group of blocks.
        depths: Blocks in each group.
        dims: Width of each group.
        strides: 2 where a group halves the map, 1 where it continues at the same resolution (CoAtNet-6 and -7).
        head_dim: Channels of an attention head.
        representation_size: Width of the tanh layer before the head; None for none.
        convention: "paper" halves maps by their maxima and strides in a bottleneck's first convolution; "timm" takes means,
            strides in the depth-wise one, and squeezes with SiLU.
    """

    stem_dim: int = 64
    kinds: tuple[Kind, ...] = ("convolution", "convolution", "attention", "attention")
    depths: tuple[int, ...] = (2, 3, 5, 2)
    dims: tuple[int, ...] = (96, 192, 384, 768)
    strides: tuple[int, ...] = (2, 2, 2, 2)
    head_dim: int = 32
    representation_size: int | None = 768
    convention: Literal["paper", "timm"] = "paper"

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        if len({len(self.kinds), len(self.depths), len(self.dims), len(self.strides)}) != 1:
            raise ModelError("CoAtNet needs a kind, a depth, a width and a stride for each group of blocks.")
        for kind, dim in zip(self.kinds, self.dims, strict=True):
            if kind == "attention" and dim % self.head_dim:
                raise ModelError(f"The width {dim} is not divided by heads of {self.head_dim} channels.")
        for side in self.image_size:
            if side % self.reduction:
                nearest = max(side // self.reduction, 1) * self.reduction
                raise ModelError(f"Image side {side} is not divided by {self.reduction}; use {nearest}.")

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use, as part of a sentence; empty if nothing does."""
        if use == "rollout":
            return "it pools between the layers of attention, after stages of convolutions that have none"
        return ModelConfig.obstacle_to(self, use)

    @property
    def reduction(self) -> int:
        """How many pixels one position of the last map stands for, in each direction."""
        return 2 ** (1 + sum(stride == 2 for stride in self.strides))


class Shortcut(nn.Module):
    """What a block's sum starts from: the maps, halved and widened where the block does so."""

    def __init__(self, channels: int, out: int, stride: int, convention: str) -> None:
        super().__init__()
        self.pool = pool(stride, convention)
        self.expand = Convolution(channels, out, 1, padding=0, bias=True) if channels != out else nn.Identity()

    def forward(self, maps: Maps) -> Maps:
        """Return the maps for the sum."""
        return self.expand(self.pool(maps))


class PreNormMBConv(nn.Module):
    """An inverted bottleneck behind a batch norm (appendix A.1)."""

    def __init__(self, channels: int, out: int, stride: int, config: CoAtNetConfig) -> None:
        super().__init__()
        wide = EXPANSION * out
        first, second = (stride, 1) if config.convention == "paper" else (1, stride)
        self.shortcut = Shortcut(channels, out, stride, config.convention)
        self.norm = nn.BatchNorm2d(channels)
        self.expand = Convolution(channels, wide, 1, stride=first, padding=0)
        self.expand_norm = nn.BatchNorm2d(wide)
        self.depthwise = Convolution(wide, wide, 3, stride=second, padding=1, groups=wide)
        self.depthwise_norm = nn.BatchNorm2d(wide)
        activation = nn.GELU if config.convention == "paper" else nn.SiLU
        self.squeeze_excite = SqueezeExcite(wide, int(SQUEEZE * out), activation)
        self.project = Convolution(wide, out, 1, padding=0, bias=True)
        self.stochastic_depth = StochasticDepth()

    def forward(self, maps: Maps, part: BatchPart | None = None) -> Maps:
        """Return the maps after the block."""
        wide = functional.gelu(self.expand_norm(self.expand(self.norm(maps))))
        wide = functional.gelu(self.depthwise_norm(self.depthwise(wide)))
        return self.shortcut(maps) + self.stochastic_depth(self.project(self.squeeze_excite(wide)), part)


class RelativeAttention(nn.Module):
    """Attention whose scores have a learned term for the way from query to key (equation 3)."""

    index: Tensor

    def __init__(self, channels: int, dim: int, grid: tuple[int, int], config: CoAtNetConfig) -> None:
        super().__init__()
        self.num_heads = dim // config.head_dim
        self.qkv = nn.Linear(channels, 3 * dim)
        self.bias = nn.Parameter(torch.empty(self.num_heads, 2 * grid[0] - 1, 2 * grid[1] - 1))
        self.out = nn.Linear(dim, dim)
        self.attention_dropout = 0.0
        self.dropout = nn.Dropout(0.0)
        self.register_buffer("index", relative_index(grid), persistent=False)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the mixed tokens."""
        query, key, value, bias = self._project(tokens)
        rate = self.attention_dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=rate)
        return self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))

    def probabilities(self, tokens: Tokens) -> Float[Tensor, "batch heads tokens tokens"]:
        """Return the attention probabilities, rows summing to one."""
        query, key, _, bias = self._project(tokens)
        return (attention_scores(query, key) + bias).float().softmax(dim=-1)

    def _project(self, tokens: Tokens) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries, keys, values and what is added to the scores."""
        qkv = self.qkv(tokens).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        return query, key, value, self.bias.flatten(1)[:, self.index].to(query.dtype)

    @torch.no_grad()
    def resize(self, grid: tuple[int, int]) -> None:
        """Interpolate the table to another grid, bilinear, as the paper does (appendix A.1)."""
        resized = resize_table(self.bias, grid)
        if resized is not self.bias:
            self.bias = nn.Parameter(resized)
            self.index = relative_index(grid).to(self.index.device)


class TransformerBlock(nn.Module):
    """A pre-norm block of relative attention; where it halves the map, it pools before the attention."""

    def __init__(self, channels: int, dim: int, stride: int, grid: tuple[int, int], config: CoAtNetConfig) -> None:
        super().__init__()
        self.shortcut = Shortcut(channels, dim, stride, config.convention)
        self.norm1 = nn.LayerNorm(channels, eps=LAYER_NORM_EPS)
        self.pool = pool(stride, config.convention)
        self.attention = RelativeAttention(channels, dim, grid, config)
        self.norm2 = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.mlp = Mlp(dim, EXPANSION * dim, gelu="exact")
        self.stochastic_depth = StochasticDepth()

    def forward(self, maps: Maps, part: BatchPart | None = None) -> Maps:
        """Return the maps after the block."""
        normed = self.norm1(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        shrunk = self.pool(normed)
        tokens = self.shortcut(maps).flatten(2).transpose(1, 2)
        tokens = tokens + self.stochastic_depth(self.attention(shrunk.flatten(2).transpose(1, 2)), part)
        tokens = tokens + self.stochastic_depth(self.mlp(self.norm2(tokens)), part)
        return tokens.transpose(1, 2).unflatten(2, (shrunk.shape[2], shrunk.shape[3]))


class CoAtNet(StagedModel):
    """The network of one `CoAtNetConfig`."""

    config: CoAtNetConfig
    undecayed: ClassVar[tuple[str, ...]] = ("attention.bias",)

    def __init__(self, config: CoAtNetConfig) -> None:
        super().__init__()
        self.config = config
        channels = config.stem_dim
        self.stem1 = Convolution(3, channels, 3, stride=2, padding=1)
        self.stem_norm = nn.BatchNorm2d(channels)
        self.stem2 = Convolution(channels, channels, 3, padding=1)
        self.stages = nn.ModuleList()
        grids = _grids(config)
        for stage, (kind, depth, dim) in enumerate(zip(config.kinds, config.depths, config.dims, strict=True)):
            blocks = nn.Sequential()
            for block in range(depth):
                stride = 1 if block else config.strides[stage]
                blocks.append(
                    PreNormMBConv(channels, dim, stride, config)
                    if kind == "convolution"
                    else TransformerBlock(channels, dim, stride, grids[stage], config)
                )
                channels = dim
            self.stages.append(blocks)
        self.norm = nn.LayerNorm(channels, eps=LAYER_NORM_EPS)
        representation = config.representation_size
        self.pre_logits = TanhLayer(channels, representation) if representation else None
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(representation or channels, config.num_classes)
        self.apply_rates()

    def encode(self, images: Images, part: BatchPart | None = None) -> FeatureMaps:
        """Return the last feature maps."""
        self.check_size(images)
        maps = self.stem2(functional.gelu(self.stem_norm(self.stem1(images))))
        for block in self.blocks():
            maps = block(maps, part)
        return FeatureMaps(maps)

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the normalised mean of the map, through the tanh layer where there is one."""
        pooled = self.norm(super().pool(encoded))
        return self.dropout(pooled if self.pre_logits is None else self.pre_logits(pooled))

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Take images of another size: the tables of relative attention are interpolated.

        Raises:
            ModelError: The strides do not divide that size.
        """
        super().resize(image_size)
        for block, grid in self._attending().items():
            block.attention.resize(grid)

    def _attending(self) -> dict[TransformerBlock, Grid]:
        """Return the blocks of attention in order, each with the rows and columns of its map."""
        stages = zip(self.stages, _grids(self.config), strict=True)
        blocks = ((block, grid) for stage, grid in stages for block in stage.children())
        return {block: grid for block, grid in blocks if isinstance(block, TransformerBlock)}

    def attention_grids(self, block: int, image_size: tuple[int, int]) -> tuple[Grid, Grid]:
        """Return where the queries and the keys of a block's attention lie: on its map."""
        stage = next(stage for stage, end in enumerate(accumulate(self.config.depths)) if block < end)
        grid = _grids(self.config)[stage]
        return grid, grid

    def apply_rates(self) -> None:
        """Hand the config's rates to the layers."""
        super().apply_rates()
        config = self.config
        self.dropout.p = config.dropout
        for block in self._attending():
            attention = block.attention
            attention.attention_dropout = config.attention_dropout
            for part in (attention, block.mlp):
                part.dropout.p = config.dropout

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Weights and tables normal with standard deviation 0.02, biases 0, unit norms.

        The paper does not say; so does MaxViT, of the same authors (maxvit/models/maxvit.py).
        """
        generator = seeded(self, seed)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                init_convolution(module, generator, std=INIT_STD)
            elif isinstance(module, nn.Linear) and module is not self.head:
                module.weight.normal_(std=INIT_STD, generator=generator)
                nn.init.zeros_(module.bias)
        for block, grid in self._attending().items():
            attention = block.attention
            attention.bias.normal_(std=INIT_STD, generator=generator)
            attention.index.copy_(relative_index(grid))
        init_norms(self)
        self.init_head(generator)

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head like every other layer."""
        nn.init.normal_(self.head.weight, std=INIT_STD, generator=generator)
        nn.init.constant_(self.head.bias, self.config.head_bias)


def pool(stride: int, convention: str) -> nn.Module:
    """Return what halves a map, or an identity for a stride of 1."""
    if stride == 1:
        return nn.Identity()
    return nn.MaxPool2d(2, 2) if convention == "paper" else nn.AvgPool2d(2, 2)


def _grids(config: CoAtNetConfig) -> list[tuple[int, int]]:
    """Return the rows and columns of each group's map."""
    grids, reduction = [], 2
    for stride in config.strides:
        reduction *= stride
        grids.append((config.image_size[0] // reduction, config.image_size[1] // reduction))
    return grids
