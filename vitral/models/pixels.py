"""A linear model on shrunk images: the simplest classifier of images, which every network has to beat."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from vitral.errors import ModelError
from vitral.models.layers import BatchPart, FeatureMaps, TokenGrid, init_torch_default, seeded
from vitral.models.model import LARGEST, ExplainedBy, Features, Images, Model, ModelConfig, refuse_rates


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelsConfig(ModelConfig):
    """Everything that makes one linear model on pixels, besides what `ModelConfig` says.

    Attributes:
        side: Height and width to which an image is shrunk, pixels.
    """

    side: int = 16

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        refuse_rates(self, "A linear model on pixels", "dropout", "attention_dropout")
        if not 1 <= self.side <= LARGEST:
            raise ModelError(f"Images are shrunk to a side of 1 to {LARGEST} pixels, not {self.side}.")


class Pixels(Model):
    """The network of one `PixelsConfig`: area averages, one value a pixel and colour, and a linear layer on them."""

    config: PixelsConfig
    explained_by: ClassVar[ExplainedBy] = "weights"

    def __init__(self, config: PixelsConfig) -> None:
        super().__init__()
        self.config = config
        self.shrink = nn.AdaptiveAvgPool2d(config.side)
        self.head = nn.Linear(3 * config.side**2, config.num_classes)

    @property
    def channels(self) -> int:
        """The number of colours of the shrunk images."""
        return 3

    def encode(self, images: Images, part: BatchPart | None = None) -> FeatureMaps:
        """Return the shrunk images, (batch, 3, side, side)."""
        return FeatureMaps(self.shrink(images))

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the shrunk images as one row each."""
        assert isinstance(encoded, FeatureMaps), "shrunk images are maps"
        return encoded.maps.flatten(1)

    def blocks(self) -> list[nn.Module]:
        """Return the one step before the head, which has nothing to learn."""
        return [self.shrink]

    def apply_rates(self) -> None:
        """Do nothing: there is no branch that stochastic depth could leave out."""

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw the head, which is all there is."""
        self.init_head(seeded(self, seed))

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head as torch does."""
        init_torch_default(self.head, generator, bias=self.config.head_bias)
