"""Networks of stages of blocks, whose first blocks may have their maps kept in training."""

from collections.abc import Callable
from typing import Protocol

from torch import nn

from vitral.models.layers import BatchPart, FeatureMaps, Maps, TokenGrid, spread_stochastic_depth
from vitral.models.model import Features, Images, Model


class Front(Protocol):
    """The first blocks of a network, whose maps are kept.

    Attributes:
        blocks: How many these are.
    """

    blocks: int

    def __call__(self, images: Images, compute: Callable[[Images], Maps]) -> Maps:
        """Return the maps of images: as they are kept, or as `compute` makes them."""


class StagedModel(Model):
    """A network of stages of blocks, which ends in feature maps.

    Attributes:
        frozen_front: What keeps the maps that the first blocks make of an image in training, where these do not learn; None
            where nothing is kept.
    """

    stages: nn.ModuleList
    frozen_front: Front | None = None

    def through(self, images: Images, stem: Callable[[Images], Maps], part: BatchPart | None) -> FeatureMaps:
        """Return what the blocks make of the maps that a stem makes of images."""
        front, blocks = self.frozen_front, self.blocks()
        if front is None or not self.training:
            return FeatureMaps.through(blocks, stem(images), part)
        first, last = blocks[: front.blocks], blocks[front.blocks :]
        maps = front(images, lambda some: FeatureMaps.through(first, stem(some), None).maps)
        return FeatureMaps.through(last, maps, part)

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the mean of the feature maps."""
        assert isinstance(encoded, FeatureMaps), "it is not what this network gives"
        return encoded.maps.mean(dim=(2, 3))

    def blocks(self) -> list[nn.Module]:
        """Return the blocks of all stages in order."""
        return [block for stage in self.stages for block in stage.children()]

    def apply_rates(self) -> None:
        """Hand the config's rates to the layers: stochastic depth to the blocks."""
        spread_stochastic_depth(self.blocks(), self.config.stochastic_depth)
