"""Tokens-to-Token ViT (arXiv 2101.11986): the image becomes tokens in three overlapping steps, then a deep, narrow ViT.

Held against models/t2t_vit.py, token_performer.py and token_transformer.py of yitu-opensource/T2T-ViT.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.attention import attend
from vitral.models.blocks import Block, Mlp
from vitral.models.layers import (
    BatchPart,
    FeatureMaps,
    TokenGrid,
    Tokens,
    depth_rate,
    full_precision,
    init_linear_deit,
    init_norms,
    seeded,
)
from vitral.models.model import Features, Images, Model, ModelConfig, PatchGrid, Positions, Use
from vitral.models.position import resize_position_embedding

NORM_EPS = 1e-5  # torch's default, in all of T2T-ViT
TOKEN_DIM = 64
# Kernel, stride and padding of the three splits (section 3.1).
SPLITS = ((7, 4, 2), (3, 2, 1), (3, 2, 1))
STRIDE = 16
FEATURES = 32  # random features of the Performer
PERFORMER_DROPOUT = 0.1
PERFORMER_EPS = 1e-8


@dataclass(frozen=True, kw_only=True, slots=True)
class T2TConfig(ModelConfig):
    """Everything that makes one T2T-ViT, besides what `ModelConfig` says.

    Attributes:
        tokens: The layer between two splits: "performer", of linear cost, or "transformer" (the models named t).
        dim: Width of a token in the backbone (D).
        depth: Blocks of the backbone.
        mlp_dim: Width inside the MLP.
        num_heads: Attention heads.
    """

    tokens: Literal["performer", "transformer"] = "performer"
    dim: int = 384
    depth: int = 14
    mlp_dim: int = 1152
    num_heads: int = 6

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        if min(self.dim, self.depth, self.mlp_dim, self.num_heads) < 1 or self.dim % self.num_heads or self.dim % 2:
            raise ModelError(f"The even width {self.dim} must be shared out to {self.num_heads} heads evenly.")
        for side in self.image_size:
            if side % STRIDE:
                raise ModelError(
                    f"Image side {side} is not divided by {STRIDE}; use {max(side // STRIDE, 1) * STRIDE}."
                )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens."""
        return self.image_size[0] // STRIDE, self.image_size[1] // STRIDE

    @property
    def patch_grid(self) -> PatchGrid:
        """Where the tokens of the backbone's blocks lie."""
        return PatchGrid(self.grid, (STRIDE, STRIDE), prefix=1, dim=self.dim)

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use; nothing from following the attention of its backbone."""
        return "" if use == "rollout" else ModelConfig.obstacle_to(self, use)


class TokenTransformer(nn.Module):
    """A narrow transformer layer with one head. Its skip is the value, because the widths in and out differ."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.qkv = nn.Linear(dim, 3 * TOKEN_DIM, bias=False)
        self.out = nn.Linear(TOKEN_DIM, TOKEN_DIM)
        self.norm2 = nn.LayerNorm(TOKEN_DIM, eps=NORM_EPS)
        self.mlp = Mlp(TOKEN_DIM, TOKEN_DIM, gelu="exact")
        self.scale = dim**-0.5  # of the width in, not of the head

    def forward(self, tokens: Tokens) -> Tokens:
        """Return tokens of width 64."""
        query, key, value = self.qkv(self.norm1(tokens))[:, None].chunk(3, dim=-1)
        mixed = attend(query, key, value, scale=self.scale)
        tokens = (value + self.out(mixed))[:, 0]
        return tokens + self.mlp(self.norm2(tokens))


class TokenPerformer(nn.Module):
    """The same with attention of linear cost by positive random features (Performer, arXiv 2009.14794)."""

    features: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.kqv = nn.Linear(dim, 3 * TOKEN_DIM)
        self.out = nn.Linear(TOKEN_DIM, TOKEN_DIM)
        self.dropout = nn.Dropout(PERFORMER_DROPOUT)
        self.norm2 = nn.LayerNorm(TOKEN_DIM, eps=NORM_EPS)
        self.mlp = Mlp(TOKEN_DIM, TOKEN_DIM, gelu="exact")
        self.mlp_dropout = nn.Dropout(PERFORMER_DROPOUT)
        self.register_buffer("features", torch.empty(FEATURES, TOKEN_DIM))  # drawn once, kept with the weights

    def forward(self, tokens: Tokens) -> Tokens:
        """Return tokens of width 64."""
        key, query, value = self.kqv(self.norm1(tokens)).float().chunk(3, dim=-1)
        with full_precision(tokens.device):
            key, query = self._positive_features(key), self._positive_features(query)
            total = query @ key.sum(dim=1)[:, :, None]
            mixed = query @ (key.transpose(1, 2) @ value) / (total + PERFORMER_EPS)
        tokens = value.to(tokens.dtype) + self.dropout(self.out(mixed.to(tokens.dtype)))
        return tokens + self.mlp_dropout(self.mlp(self.norm2(tokens)))

    def _positive_features(self, vectors: Float[Tensor, "batch tokens 64"]) -> Float[Tensor, "batch tokens 32"]:
        half_norm = vectors.square().sum(dim=-1, keepdim=True) / 2
        return torch.exp(vectors @ self.features.float().T - half_norm) / math.sqrt(FEATURES)


class T2TViT(Model):
    """The network of one `T2TConfig`."""

    config: T2TConfig
    undecayed: ClassVar[tuple[str, ...]] = ("class_token",)
    position: Tensor

    def __init__(self, config: T2TConfig) -> None:
        super().__init__()
        self.config = config
        layer = TokenPerformer if config.tokens == "performer" else TokenTransformer
        first, *others = (kernel * kernel for kernel, _, _ in SPLITS)
        self.token_layers = nn.ModuleList([layer(3 * first), layer(TOKEN_DIM * others[0])])
        self.project = nn.Linear(TOKEN_DIM * others[1], config.dim)
        self.class_token = nn.Parameter(torch.empty(1, 1, config.dim))
        self.register_buffer("position", sinusoid_table(1 + math.prod(config.grid), config.dim))
        self.dropout = nn.Dropout(0.0)
        self.backbone = nn.ModuleList(
            Block(config.dim, config.num_heads, config.mlp_dim, gelu="exact", norm_eps=NORM_EPS, qkv_bias=False)
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.dim, eps=NORM_EPS)
        self.head = nn.Linear(config.dim, config.num_classes)
        self.apply_rates()

    def embed(self, images: Images) -> Tokens:
        """Return the class token and the image's tokens with their positions (section 3.1, figure 3)."""
        self.check_size(images)
        maps = images
        for split, layer in zip(SPLITS, self.token_layers, strict=False):
            tokens = layer(_soft_split(maps, *split))
            height, width = (side // split[1] for side in maps.shape[-2:])
            maps = tokens.transpose(1, 2).unflatten(2, (height, width))
        tokens = self.project(_soft_split(maps, *SPLITS[-1]))
        tokens = torch.cat([self.class_token.to(tokens.dtype).expand(tokens.shape[0], -1, -1), tokens], dim=1)
        return self.dropout((tokens + self.position).to(tokens.dtype))

    def encode(self, images: Images, part: BatchPart | None = None, *, num_queries: int | None = None) -> TokenGrid:
        """Return the tokens after the backbone and its norm; only the first `num_queries` where that is given."""
        tokens = self.embed(images)
        for block in self.backbone[:-1]:
            tokens, _ = block(tokens, part=part)
        tokens, _ = self.backbone[-1](tokens, num_queries=num_queries, part=part)
        grid = self.config.grid if num_queries is None else None
        return TokenGrid(self.norm(tokens), grid, prefix=1)

    def features(self, images: Images, part: BatchPart | None = None) -> Features:
        """Return the class token after the backbone and its norm."""
        return self.pool(self.encode(images, part, num_queries=1))

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the class token."""
        assert isinstance(encoded, TokenGrid), "it is not what this network gives"
        return encoded.tokens[:, 0]

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Take images of another size: the sinusoids are interpolated, bicubic, as in the original (utils.py)."""
        old = self.config.grid
        super().resize(image_size)
        grid = resize_position_embedding(self.position[:, 1:], old, self.config.grid, method="bicubic")
        self.position = torch.cat([self.position[:, :1], grid], dim=1)

    @property
    def maps_at(self) -> str:
        """Where the tokens enter the last attention: behind it the answer is read from the class token alone."""
        return f"blocks.{self.config.depth - 1}.norm1"

    def positions(self) -> Positions:
        """Return the sinusoids of the patches."""
        return Positions(self.position[0, 1:], "fixed")

    def blocks(self) -> list[nn.Module]:
        """Return the backbone's blocks in order."""
        return list(self.backbone)

    def apply_rates(self) -> None:
        """Hand the config's rates to the layers; the Performer's own dropout stays."""
        config = self.config
        self.dropout.p = config.dropout
        for index, block in enumerate(cast(list[Block], self.blocks())):
            block.set_rates(
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                stochastic_depth=depth_rate(config.stochastic_depth, index, config.depth),
            )

    def fixed_tensors(self) -> dict[str, Tensor]:
        """Return the sinusoids."""
        return {"position": sinusoid_table(self.position.shape[1], self.config.dim)}

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Truncated normal of standard deviation 0.02, biases 0, the head too; sinusoids; orthogonal random features."""
        generator = seeded(self, seed)
        nn.init.trunc_normal_(self.class_token, std=0.02, generator=generator)
        self.position.copy_(sinusoid_table(self.position.shape[1], self.config.dim))
        for module in self.modules():
            if isinstance(module, nn.Linear) and module is not self.head:
                init_linear_deit(module, generator)
        for layer in self.token_layers:
            if isinstance(layer, TokenPerformer):
                nn.init.orthogonal_(layer.features, gain=math.sqrt(FEATURES), generator=generator)
        init_norms(self)
        self.init_head(generator)

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head like every other layer: normal, standard deviation 0.02."""
        init_linear_deit(self.head, generator)
        nn.init.constant_(self.head.bias, self.config.head_bias)


def _soft_split(maps: Float[Tensor, "batch channels height width"], kernel: int, stride: int, padding: int) -> Tokens:
    return functional.unfold(maps, kernel, stride=stride, padding=padding).transpose(1, 2)


def sinusoid_table(tokens: int, dim: int) -> Float[Tensor, "1 tokens dim"]:
    """Return the fixed embedding over the flat sequence, class token first: even channels sines, odd ones cosines."""
    channels = torch.arange(dim, dtype=torch.float64)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] / 10_000 ** (2 * (channels // 2) / dim)
    return torch.where(channels.long() % 2 == 0, angles.sin(), angles.cos()).float()[None]
