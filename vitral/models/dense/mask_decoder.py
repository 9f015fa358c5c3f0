"""PMT: a decoder of masks over a backbone that stays as it is (Plain Mask Transformer; tue-mps/pmt, image/models).

Tokens after each quarter of the backbone's blocks are normed, changed by a small MLP, scaled and summed. Queries and these go
through blocks of the decoder's own, of DINOv3's kind, and answer as EoMT's do. Nothing of it goes back into the backbone, so
that one backbone serves many decoders, and a trained decoder is a small file.

Where the backbone has DINOv3's rotary positions, the decoder turns by the same ones; elsewhere by its own, which move in
training as DINOv3's do. Theirs has batch norms over all processes' images; here each process norms its own.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.attention import Mask
from vitral.models.blocks import Block, LayerScale
from vitral.models.dense.answers import QueryAnswers
from vitral.models.dense.queries import MaskHead, MaskHeadConfig
from vitral.models.foundations import DINOV3_RESCALE
from vitral.models.layers import BatchPart, Linear, TokenGrid, Tokens, init_norms, init_torch_default
from vitral.models.model import NO_TOKENS, Images, Model, ModelConfig, TokenModel
from vitral.models.position import RotaryPosition

LEVELS = 4  # depths of the backbone that are read: a quarter, a half, three quarters, all
NORM_EPS = 1e-5
LAYER_SCALE = 1.0


@dataclass(frozen=True, slots=True)
class MaskDecoderConfig(MaskHeadConfig):
    """What a decoder of masks is.

    Attributes:
        blocks: How many blocks of its own queries go through.
        mlp_dim: The width inside their MLPs; None for that of a token, as published.
    """

    kind: ClassVar[str] = "mask-decoder"
    title: ClassVar[str] = "a decoder of masks"

    blocks: int = 6
    mlp_dim: int | None = None

    def check(self, backbone: ModelConfig) -> None:
        """Refuse a backbone without blocks of tokens, or with too few, by a ModelError that says why."""
        depth, heads = (getattr(backbone, name, 0) for name in ("depth", "num_heads"))
        if backbone.patch_grid is None or backbone.obstacle_to("masking") == NO_TOKENS:
            raise ModelError(f"A decoder of masks cannot read what the network gives: {NO_TOKENS}.")
        if depth < LEVELS:
            raise ModelError(f"A decoder of masks reads {LEVELS} depths of a network, and this one has {depth} blocks.")
        if backbone.patch_grid.dim // heads % 4:
            raise ModelError(
                f"A decoder of masks needs attention heads of a width that 4 divides, not {heads} of them."
            )
        if self.blocks < 1 or (self.mlp_dim is not None and self.mlp_dim < 1):
            raise ModelError(f"blocks and mlp_dim must be at least 1, not {self.blocks} and {self.mlp_dim}.")


class Lateral(nn.Module):
    """The way of one depth's tokens into the sum: a batch norm over all tokens, a residual MLP, a factor a channel."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(dim)
        self.fc1 = nn.Linear(dim, dim // 2)
        self.activation = nn.GELU()
        self.fc2 = nn.Linear(dim // 2, dim)
        self.scale = LayerScale(dim, LAYER_SCALE)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return what is added."""
        normed = self.norm(tokens.transpose(1, 2)).transpose(1, 2)
        return self.scale(normed + self.fc2(self.activation(self.fc1(normed))))


class KeylessLinear(Linear):
    """Queries, keys and values side by side, of which the keys have no bias, as in DINOv3: that part of it has no effect."""

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch out"]:
        """Return the transformed values."""
        query, key, value = self.bias.chunk(3)
        return functional.linear(values, self.weight, torch.cat([query, torch.zeros_like(key), value]))


class MaskDecoder(MaskHead):
    """Queries and a backbone's summed tokens in blocks of the decoder's own."""

    def __init__(self, config: MaskDecoderConfig, backbone: ModelConfig, channels: int, num_classes: int) -> None:
        super().__init__(config, backbone, channels, num_classes, blocks=config.blocks)
        heads = int(getattr(backbone, "num_heads", 1))
        self.laterals = nn.ModuleList(Lateral(channels) for _ in range(LEVELS))
        self.blocks = nn.ModuleList(_block(channels, heads, config.mlp_dim or channels) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS)
        self.rotary: RotaryPosition | None = None
        if getattr(backbone, "rotary", "none") != "dinov3":
            assert backbone.patch_grid is not None, "a backbone that `check` refuses"
            sides = backbone.patch_grid.sides
            self.rotary = RotaryPosition("dinov3", sides, channels // heads, rescale=DINOV3_RESCALE)

    def answer(self, backbone: Model, images: Images, part: BatchPart | None = None) -> QueryAnswers:
        """Return the queries' answers after the last block; in training with those before each block."""
        assert isinstance(backbone, TokenModel), "a backbone that `check` refuses"
        z = backbone.embed(backbone.patches(images))
        depth, read = len(backbone.blocks()), []
        for level, lateral in enumerate(self.laterals):
            start, stop = (number * depth // LEVELS for number in (level, level + 1))
            z = backbone.transform(z, start=start, stop=stop, part=part)
            read.append(lateral(backbone.normalize(z).tokens))
        rotation = z.rotation if self.rotary is None else self.rotary()
        assert rotation is not None, "a backbone with rotary positions has turned by them"

        def through(z: TokenGrid, number: int, mask: Mask | None) -> TokenGrid:
            tokens, _ = self.blocks[number](z.tokens, mask=mask, rotation=rotation.among(z.prefix, z.suffix))
            return z.with_tokens(tokens)

        summed = z.with_tokens(torch.stack(read).sum(dim=0))
        return self.meet(summed, through, lambda z: z.with_tokens(self.norm(z.tokens)))

    def resize(self, backbone: ModelConfig) -> None:
        """Turn by the positions of another grid."""
        if self.rotary is not None and backbone.patch_grid is not None:
            self.rotary.resize(backbone.patch_grid.sides)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draw queries from the standard normal distribution, layers as torch does; keys have no bias, every mask is in use."""
        self.init_answers(generator)
        init_norms(self)
        for module in (*self.laterals.modules(), *self.blocks.modules()):
            if isinstance(module, nn.Linear):
                init_torch_default(module, generator)
            if isinstance(module, KeylessLinear):
                module.bias.view(3, -1)[1].zero_()
            if isinstance(module, LayerScale):
                nn.init.constant_(module.scale, module.initial)


def _block(dim: int, heads: int, mlp_dim: int) -> Block:
    block = Block(dim, heads, mlp_dim, gelu="exact", norm_eps=NORM_EPS, layer_scale=LAYER_SCALE)
    block.attention.qkv = KeylessLinear(dim, 3 * dim)
    return block
