"""Masked autoencoder: rebuild hidden patches from the visible ones (MAE, arXiv 2111.06377; models_mae.py of its code).

The encoder sees the visible patches only, a quarter of them; a small decoder gets their tokens and, in every hidden place, one
learned token, and gives the pixels of each patch. Its blocks have the encoder's GELU; the original's is exact. The decoder is
thrown away in the end.
"""

import math

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from vitral.models.blocks import LAYER_NORM_EPS, Block
from vitral.models.layers import BatchPart, Gelu, Tokens, init_linear, init_norms, seeded
from vitral.models.model import token_model

Patches = Float[Tensor, "batch patches values"]  # rows, columns and channels of each patch, in this order
MLP_RATIO = 4  # of the decoder's blocks
VARIANCE_EPS = 1e-6  # added to a patch's variance
LONGEST_WAVE = 10_000.0  # of the decoder's positions
NEEDS = "A masked autoencoder needs a Vision Transformer with a plain grid of patches and positions at its input"


class MaskedAutoencoder(nn.Module):
    """A Vision Transformer that sees some patches of an image, and a decoder that rebuilds the others.

    Args:
        network: The model to pre-train; its patches must be a plain grid, with positions at the input.
        share: The fraction of patches that are hidden.
        depth: Blocks of the decoder.
        width: The width of its tokens.
        heads: The heads of its attention.
        seed: The seed of the decoder's weights.

    Raises:
        ModelError: The model cannot do without some of its patches.
    """

    def __init__(self, network: nn.Module, *, share: float, depth: int, width: int, heads: int, seed: int) -> None:
        super().__init__()
        self.network, self.share = token_model(network, "dropping", f"{NEEDS}, which this network is not"), share
        grid = self.network.config.patch_grid
        self.prefix, self.count = grid.prefix, math.prod(grid.sides)
        self.embedding = nn.Linear(grid.dim, width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width))
        gelu: Gelu = getattr(self.network.config, "gelu", "tanh")  # the encoder's
        self.decoder = nn.ModuleList(Block(width, heads, MLP_RATIO * width, gelu=gelu) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.prediction = nn.Linear(width, math.prod(grid.stride) * 3)
        positions = torch.cat([torch.zeros(grid.prefix, width), wave_positions(grid.sides, width)])
        self.positions: Tensor
        self.register_buffer("positions", positions[None], persistent=False)
        self.to(next(network.parameters()).device)
        self._init_weights(seeded(network, seed))

    @torch.no_grad()
    def _init_weights(self, generator: torch.Generator) -> None:
        self.mask_token.normal_(std=0.02, generator=generator)
        for block in self.decoder:
            assert isinstance(block, Block)
            block.init_weights(generator)
        for layer in (self.embedding, self.prediction):
            init_linear(layer, generator)
        init_norms(self.norm)

    def forward(
        self, images: Float[Tensor, "batch 3 height width"], part: BatchPart | None = None
    ) -> tuple[Patches, Bool[Tensor, "batch patches"]]:
        """Return the rebuilt pixels of every patch, and which patches were hidden; draws from torch's generator."""
        visible, hidden = choose_visible(len(images), self.count, self.share)
        visible, hidden = visible.to(images.device), hidden.to(images.device)
        return self.decode(self.encode(images, visible, part), visible), hidden

    def encode(
        self,
        images: Float[Tensor, "batch 3 height width"],
        visible: Int64[Tensor, "batch visible"],
        part: BatchPart | None = None,
    ) -> Tokens:
        """Return the encoder's tokens: the prefix, and the visible patches in the order of `visible`."""
        embedded = self.network.embed(self.network.patches(images)).keep(visible)
        return self.network.normalize(self.network.transform(embedded, part=part)).tokens

    def decode(self, encoded: Tokens, visible: Int64[Tensor, "batch visible"]) -> Patches:
        """Return the pixels of every patch from the tokens of the visible ones."""
        tokens = self.embedding(encoded)
        prefix = self.prefix
        patches = self.positions.shape[1] - prefix
        places = visible[:, :, None].expand(-1, -1, tokens.shape[2])
        whole = self.mask_token.to(tokens.dtype).expand(len(tokens), patches, -1).scatter(1, places, tokens[:, prefix:])
        tokens = torch.cat([tokens[:, :prefix], whole], dim=1) + self.positions.to(tokens.dtype)
        for block in self.decoder:
            tokens, _ = block(tokens)
        return self.prediction(self.norm(tokens))[:, prefix:]


def choose_visible(
    batch: int, count: int, share: float
) -> tuple[Int64[Tensor, "batch visible"], Bool[Tensor, "batch patches"]]:
    """Draw as many visible patches of every image, whole numbers rounded down; return their numbers, and which are hidden."""
    order = torch.rand(batch, count).argsort(dim=1)
    visible = order[:, : max(1, int(count * (1 - share)))].sort(dim=1).values
    return visible, torch.ones(batch, count, dtype=torch.bool).scatter(1, visible, value=False)


def patch_pixels(images: Float[Tensor, "batch 3 height width"], patch: tuple[int, int]) -> Patches:
    """Return the values of every patch, row by row, the channels innermost."""
    batch, channels, height, width = images.shape
    rows, columns = patch
    cut = images.reshape(batch, channels, height // rows, rows, width // columns, columns)
    return cut.permute(0, 2, 4, 3, 5, 1).reshape(batch, -1, rows * columns * channels)


def rebuilding_loss(
    rebuilt: Patches,
    images: Float[Tensor, "batch 3 height width"],
    hidden: Bool[Tensor, "batch patches"],
    *,
    patch: tuple[int, int],
    normalized: bool,
) -> Float[Tensor, ""]:
    """Return the mean squared difference from the hidden patches, each patch with mean 0 and variance 1 where `normalized`."""
    target = patch_pixels(images.float(), patch)
    if normalized:
        mean, variance = target.mean(dim=-1, keepdim=True), target.var(dim=-1, keepdim=True)
        target = (target - mean) / (variance + VARIANCE_EPS).sqrt()
    return (rebuilt.float() - target).square().mean(dim=-1)[hidden].mean()


def wave_positions(grid: tuple[int, int], width: int) -> Float[Tensor, "patches width"]:
    """Return fixed positions: sines and cosines of the column in the first half of the values, of the row in the second."""
    rows, columns = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in grid), indexing="ij")
    frequencies = LONGEST_WAVE ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    halves = [place.flatten()[:, None] * frequencies for place in (columns, rows)]
    return torch.cat([wave for angle in halves for wave in (angle.sin(), angle.cos())], dim=1).float()
