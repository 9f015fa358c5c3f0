"""Convolutional vision Transformer (CvT, arXiv 2103.15808): stages that shrink the map, projections by convolution.

Held against lib/models/cls_cvt.py of microsoft/CvT. There is no position embedding: the convolutions see where a token lies.
"""

from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.errors import ModelError
from vitral.models.attention import attend, attention_scores
from vitral.models.blocks import Mlp
from vitral.models.convolution import Maps
from vitral.models.layers import (
    BatchPart,
    FeatureMaps,
    Gelu,
    StochasticDepth,
    TokenGrid,
    Tokens,
    init_linear_deit,
    init_norms,
    init_torch_default,
    seeded,
    spread_stochastic_depth,
)
from vitral.models.model import Features, Grid, Images, Model, ModelConfig, Use, refuse_heads, refuse_rates

NORM_EPS = 1e-5
MLP_RATIO = 4
# Kernel, stride and padding of the three token embeddings (table 1).
EMBEDDINGS = ((7, 4, 2), (3, 2, 1), (3, 2, 1))
KEY_STRIDE = 2  # keys and values are taken from a quarter of the positions


@dataclass(frozen=True, kw_only=True, slots=True)
class CvTConfig(ModelConfig):
    """Everything that makes one CvT, besides what `ModelConfig` says.

    Stochastic depth grows within the last stage, from 0 to its rate; the stages before have none.

    Attributes:
        dims: Width of a token in each of the three stages.
        depths: Blocks.
        num_heads: Attention heads.
        gelu: "quick", the original's, or "exact" (transformers' port).
    """

    dims: tuple[int, int, int] = (64, 192, 384)
    depths: tuple[int, int, int] = (1, 2, 10)
    num_heads: tuple[int, int, int] = (1, 3, 6)
    gelu: Gelu = field(default="quick")

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        refuse_rates(self, "CvT", "attention_dropout")
        if min(*self.dims, *self.depths, *self.num_heads) < 1:
            raise ModelError("CvT needs widths, depths and heads of at least 1.")
        refuse_heads(self.dims, self.num_heads)

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use, as part of a sentence; empty if nothing does."""
        if use == "rollout":
            return "its keys are of fewer positions than its queries, and every stage has tokens of its own"
        return ModelConfig.obstacle_to(self, use)


class ConvolutionalProjection(nn.Module):
    """A depth-wise convolution and a batch norm over the map; a class token passes by."""

    def __init__(self, dim: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(dim, dim, 3, stride, 1, groups=dim, bias=False)
        self.norm = nn.BatchNorm2d(dim)

    def forward(self, maps: Maps) -> Tokens:
        """Return the tokens of the filtered map."""
        normed = self.norm(self.convolution(maps))
        if normed.requires_grad and len(maps) == 1:
            # The transposed tokens' gradient has the strides of channels-last maps, which torch's batch norm on a CPU
            # takes for plain ones where the batch is a single image: its gradient would be wrong.
            normed.register_hook(Tensor.contiguous)
        return normed.flatten(2).transpose(1, 2)


class ConvolutionalAttention(nn.Module):
    """Multi-head attention with queries, keys and values from convolutional projections (section 3.2)."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = dim**-0.5  # of the whole width, not of the head: the original's own
        self.query_map = ConvolutionalProjection(dim, 1)
        self.key_map = ConvolutionalProjection(dim, KEY_STRIDE)
        self.value_map = ConvolutionalProjection(dim, KEY_STRIDE)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(0.0)

    def forward(self, tokens: Tokens, grid: tuple[int, int]) -> Tokens:
        """Return the mixed tokens; what comes before the grid's own is the class token."""
        prefix, maps = _parted(tokens, grid)
        query = self._heads(self.query, self.query_map, prefix, maps)
        key = self._heads(self.key, self.key_map, prefix, maps)
        value = self._heads(self.value, self.value_map, prefix, maps)
        mixed = attend(query, key, value, scale=self.scale).transpose(1, 2).flatten(2)
        return self.dropout(self.out(mixed))

    def probabilities(self, tokens: Tokens, grid: tuple[int, int]) -> Float[Tensor, "batch heads queries keys"]:
        """Return the attention probabilities; the class token is the first query and the first key where there is one."""
        prefix, maps = _parted(tokens, grid)
        query = self._heads(self.query, self.query_map, prefix, maps)
        key = self._heads(self.key, self.key_map, prefix, maps)
        return attention_scores(query, key, self.scale).float().softmax(dim=-1)

    def _heads(
        self, linear: nn.Linear, projection: ConvolutionalProjection, prefix: Tokens, maps: Maps
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        projected = projection(maps)
        projected = linear(torch.cat([prefix.to(projected.dtype), projected], dim=1))
        return projected.unflatten(2, (self.num_heads, -1)).transpose(1, 2)


def _parted(tokens: Tokens, grid: tuple[int, int]) -> tuple[Tokens, Maps]:
    """Return the class token, or none, and the others as maps."""
    prefix = tokens[:, : tokens.shape[1] - grid[0] * grid[1]]
    return prefix, tokens[:, prefix.shape[1] :].transpose(1, 2).reshape(tokens.shape[0], -1, *grid)


class CvTBlock(nn.Module):
    """A pre-norm block with convolutional projections."""

    def __init__(self, dim: int, num_heads: int, *, gelu: Gelu) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attention = ConvolutionalAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = Mlp(dim, MLP_RATIO * dim, gelu=gelu)
        self.stochastic_depth = StochasticDepth()

    def forward(self, tokens: Tokens, grid: tuple[int, int], part: BatchPart | None = None) -> Tokens:
        """Return the tokens after the block."""
        tokens = tokens + self.stochastic_depth(self.attention(self.norm1(tokens), grid), part)
        return tokens + self.stochastic_depth(self.mlp(self.norm2(tokens)), part)


class CvTStage(nn.Module):
    """A convolutional token embedding and its blocks; the last stage has a class token."""

    def __init__(self, config: CvTConfig, stage: int) -> None:
        super().__init__()
        channels = config.dims[stage - 1] if stage else 3
        dim = config.dims[stage]
        kernel, stride, padding = EMBEDDINGS[stage]
        self.embedding = nn.Conv2d(channels, dim, kernel, stride, padding)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.class_token = nn.Parameter(torch.empty(1, 1, dim)) if stage == len(config.dims) - 1 else None
        self.layers = nn.ModuleList(
            CvTBlock(dim, config.num_heads[stage], gelu=config.gelu) for _ in range(config.depths[stage])
        )

    def forward(self, maps: Maps, part: BatchPart | None = None) -> TokenGrid:
        """Return the tokens, the class token first where there is one."""
        maps = self.embedding(maps)
        grid = (maps.shape[2], maps.shape[3])
        tokens = self.norm(maps.flatten(2).transpose(1, 2))
        if self.class_token is not None:
            tokens = torch.cat([self.class_token.to(tokens.dtype).expand(tokens.shape[0], -1, -1), tokens], dim=1)
        for block in self.layers:
            tokens = block(tokens, grid, part)
        return TokenGrid(tokens, grid, prefix=0 if self.class_token is None else 1)


class CvT(Model):
    """The network of one `CvTConfig`."""

    config: CvTConfig
    undecayed: ClassVar[tuple[str, ...]] = ("class_token",)

    def __init__(self, config: CvTConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = nn.ModuleList(CvTStage(config, stage) for stage in range(len(config.dims)))
        self.norm = nn.LayerNorm(config.dims[-1], eps=NORM_EPS)
        self.head = nn.Linear(config.dims[-1], config.num_classes)
        self.apply_rates()

    def encode(self, images: Images, part: BatchPart | None = None) -> TokenGrid:
        """Return the tokens after the last stage and its norm."""
        tokens = self._transform(images, part)
        return tokens.with_tokens(self.norm(tokens.tokens))

    def features(self, images: Images, part: BatchPart | None = None) -> Features:
        """Return the class token after the last stage and its norm."""
        return self.norm(self._transform(images, part).tokens[:, 0])

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the class token."""
        assert isinstance(encoded, TokenGrid), "it is not what this network gives"
        return encoded.tokens[:, 0]

    def _transform(self, images: Images, part: BatchPart | None) -> TokenGrid:
        first, *others = self.stages
        tokens: TokenGrid = first(images, part)
        for stage in others:
            tokens = stage(tokens.maps, part)
        return tokens

    @property
    def maps_at(self) -> str:
        """Where the tokens enter the last attention: behind it the answer is read from the class token alone."""
        return f"blocks.{sum(self.config.depths) - 1}.norm1"

    def attention_grids(self, block: int, image_size: tuple[int, int]) -> tuple[Grid, Grid]:
        """Return where the queries and the keys of a block's attention lie, the class token aside."""
        stage = next(stage for stage, end in enumerate(accumulate(self.config.depths)) if block < end)
        rows, columns = image_size
        for kernel, stride, padding in EMBEDDINGS[: stage + 1]:
            rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in (rows, columns))
        return (rows, columns), (-(-rows // KEY_STRIDE), -(-columns // KEY_STRIDE))

    def blocks(self) -> list[nn.Module]:
        """Return the blocks of all stages in order."""
        return [block for stage in self.stages for block in stage.layers]  # type: ignore[union-attr]

    def apply_rates(self) -> None:
        """Hand the config's rates to the layers: stochastic depth to those of the last stage."""
        for layer in self.blocks():
            assert isinstance(layer, CvTBlock)
            for part in (layer.attention, layer.mlp):
                part.dropout.p = self.config.dropout
        spread_stochastic_depth(self.blocks()[-self.config.depths[-1] :], self.config.stochastic_depth)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Truncated normal of standard deviation 0.02 (linear, class token), torch's own convolutions, unit norms."""
        generator = seeded(self, seed)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                init_torch_default(module, generator)
            elif isinstance(module, nn.Linear) and module is not self.head:
                init_linear_deit(module, generator)
            elif isinstance(module, CvTStage) and module.class_token is not None:
                nn.init.trunc_normal_(module.class_token, std=0.02, generator=generator)
        init_norms(self)
        self.init_head(generator)

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head: weights normal with standard deviation 0.02, torch's own bias."""
        init_torch_default(self.head, generator, bias=self.config.head_bias)
        nn.init.trunc_normal_(self.head.weight, std=0.02, generator=generator)
