"""Masked patch prediction, the paper's self-supervised pre-training (section 4.6 and appendix B.1.2).

Half of the patch embeddings are corrupted: 80 % of these become a learned mask, 10 % another patch of the image, 10 % stay.
For every corrupted patch the model predicts the mean colour, in 3 bits per channel: 512 classes. The paper does not state
the bins' edges; here they are eight equal bins over the values 0 to 255.
"""

import math

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional

from vitral.models.layers import BatchPart, Tokens, lecun_normal_, seeded
from vitral.models.model import token_model

BINS = 8  # per channel
COLOURS = BINS**3
MASKED = 0.8  # of the corrupted patches; a learned mask stands for them
REPLACED = 0.1  # of the corrupted patches; another patch stands for them
NEEDS = "Masked patch prediction needs a Vision Transformer with a plain grid of patches, which this network is not"


class MaskedPatchPrediction(nn.Module):
    """A Vision Transformer with a mask embedding and a head that predicts colours.

    Args:
        network: The model to pre-train; its patches must be a plain grid, without stem or overlap.
        share: The fraction of patches that are corrupted.
        seed: The seed of the head's weights.

    Raises:
        ModelError: The model is not a plain Vision Transformer.
    """

    def __init__(self, network: nn.Module, *, share: float, seed: int) -> None:
        super().__init__()
        self.network = masked = token_model(network, "masking", NEEDS)
        self.share = share
        grid = masked.config.patch_grid
        dim, self.count = grid.dim, math.prod(grid.sides)
        self.mask = nn.Parameter(torch.zeros(1, 1, dim))
        self.colour_head = nn.Linear(dim, COLOURS)
        self.to(next(network.parameters()).device)
        generator = seeded(network, seed)
        with torch.no_grad():
            self.mask.normal_(std=0.02, generator=generator)
            lecun_normal_(self.colour_head.weight, generator)
            nn.init.zeros_(self.colour_head.bias)

    def forward(
        self, images: Float[Tensor, "batch 3 height width"], part: BatchPart | None = None
    ) -> tuple[Float[Tensor, "batch patches colours"], Bool[Tensor, "batch patches"]]:
        """Return the colour logits of every patch, and which patches were corrupted; draws from torch's generator."""
        corrupted = choose_patches(len(images), self.count, self.share).to(images.device)
        patches = self.network.patches(images)
        patches = patches.with_tokens(self.corrupt(patches.tokens, corrupted))
        encoded = self.network.normalize(self.network.transform(self.network.embed(patches), part=part))
        return self.colour_head(encoded.patches), corrupted

    def corrupt(self, patches: Tokens, corrupted: Bool[Tensor, "batch patches"]) -> Tokens:
        """Return the patch embeddings with the corrupted ones masked, replaced or left unchanged."""
        batch, count, _ = patches.shape
        fate = torch.rand(batch, count).to(patches.device)
        others = torch.randint(count, (batch, count)).to(patches.device)
        replaced = torch.gather(patches, 1, others[:, :, None].expand_as(patches))
        masked = torch.where((fate < MASKED)[:, :, None], self.mask.to(patches.dtype), replaced)
        changed = (corrupted & (fate < MASKED + REPLACED))[:, :, None]
        return torch.where(changed, masked, patches)


def choose_patches(batch: int, count: int, share: float) -> Bool[Tensor, "batch patches"]:
    """Mark the same number of patches of every image, at random."""
    order = torch.rand(batch, count).argsort(dim=1)
    return order < max(1, round(share * count))


def mean_colours(
    pixels: UInt8[Tensor, "batch 3 height width"], patch: tuple[int, int]
) -> Int64[Tensor, "batch patches"]:
    """Return each patch's mean colour as a class index below 512: red, green and blue in eight equal bins each."""
    means = functional.avg_pool2d(pixels.float(), patch)
    bins = (means * (BINS / 256)).long().clamp(0, BINS - 1).flatten(2)
    return (bins[:, 0] * BINS + bins[:, 1]) * BINS + bins[:, 2]


def masked_patch_loss(
    logits: Float[Tensor, "batch places classes"],
    corrupted: Bool[Tensor, "batch places"],
    classes: Int64[Tensor, "batch places"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the mean cross-entropy over the corrupted places, patches or symbols, and the accuracy on them."""
    predicted, truth = logits[corrupted].float(), classes[corrupted]
    return functional.cross_entropy(predicted, truth), (predicted.argmax(dim=1) == truth).float().mean()
