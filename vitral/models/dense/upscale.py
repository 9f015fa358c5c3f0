"""Maps that are doubled in height and width, as EoMT refines the patches' map (eomt, models/scale_block.py)."""

import math

import torch
from torch import nn

from vitral.models.layers import Maps, init_norms, init_torch_default

NORM_EPS = 1e-6


class ScaleBlock(nn.Module):
    """A transposed convolution of 2 x 2, GELU, a 3 x 3 convolution of each channel alone, and a norm over the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.doubling = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        self.activation = nn.GELU()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm = nn.LayerNorm(channels, eps=NORM_EPS)

    def forward(self, maps: Maps) -> Maps:
        """Return the maps with twice the rows and columns."""
        doubled = self.depthwise(self.activation(self.doubling(maps)))
        return self.norm(doubled.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def init_weights(self, generator: torch.Generator) -> None:
        """Draw convolutions as torch does; the norm begins as the identity."""
        init_norms(self)
        init_torch_default(self.doubling, generator)
        init_torch_default(self.depthwise, generator)


def doublings(stride: int) -> int:
    """Return how often EoMT doubles maps with so many pixels between patches: to a stride of 4, at least once."""
    return max(1, int(math.log2(stride)) - 2)
