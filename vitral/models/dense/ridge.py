"""A head whose weights are found in closed form: filters over the image, directions of the backbone's maps, random products.

What the filters say of a place, and some directions of the backbone's last maps there, are standardised and cut off far from
what training photos have; a random layer with a ReLU multiplies them (Rahimi and Recht, "Weighted sums of random kitchen
sinks", NeurIPS 2008), which draws curved borders between classes. The last layer alone is fitted, by ridge regression. It
answers at stride 2, many times finer than the backbone's patches.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.dense.filters import NUM_FILTERS, filtered
from vitral.models.dense.head import DenseHead, HeadConfig
from vitral.models.layers import BatchPart, Maps
from vitral.models.model import Images, Model, ModelConfig

FURTHER = 2  # outputs of a head that tells objects apart, besides the classes: their rims, and what is in none
FARTHEST = 4.0  # standard deviations from the mean of training photos, beyond which a photo is like none of them


@dataclass(frozen=True, slots=True)
class RidgeHeadConfig(HeadConfig):
    """What a head in closed form is.

    Attributes:
        directions: The number of directions of the backbone's maps that it sees; 0 for none, and the backbone is not run.
        width: The number of random products.
        stride: The pixels between two places of its answer.
        objects: Whether it tells objects apart: then the logits of the classes are those of the objects' insides, followed by
            one for their rims and one for what is in no object.
    """

    kind: ClassVar[str] = "ridge"
    title: ClassVar[str] = "a linear layer in closed form on filters"

    directions: int = 0
    width: int = 256
    stride: int = 2
    objects: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if self.directions < 0 or self.width < 0 or self.stride < 1:
            raise ModelError(
                "A head in closed form needs directions and a width of 0 or more, and a stride of 1 or more, not "
                f"{self.directions}, {self.width} and {self.stride}."
            )


class RidgeHead(DenseHead):
    """Logits at each place of a fine grid (batch, classes, rows, columns); see `RidgeHeadConfig.objects` for further ones."""

    mean: Tensor
    scale: Tensor

    def __init__(self, config: RidgeHeadConfig, backbone: ModelConfig, channels: int, num_classes: int) -> None:
        super().__init__(config, backbone, channels, num_classes)
        self.config = config
        self.project = nn.Conv2d(channels, config.directions, 1) if config.directions else None
        known = NUM_FILTERS + config.directions
        self.register_buffer("mean", torch.zeros(known, 1, 1))
        self.register_buffer("scale", torch.ones(known, 1, 1))
        self.expand = nn.Conv2d(known, config.width, 1)
        self.classifier = nn.Conv2d(known + config.width, num_classes + FURTHER * config.objects, 1)

    def answer(
        self, backbone: Model, images: Images, part: BatchPart | None = None
    ) -> Float[Tensor, "batch classes rows columns"]:
        """Return the logits; see `DenseHead`."""
        return self.classifier(self.wide(self.standardized(self.known(backbone, images, part))))

    @property
    def stride(self) -> int:
        """The pixels between two places of the answer."""
        return self.config.stride

    def standardized(self, known: Maps) -> Maps:
        """Return what is known of each place in standard deviations, cut off far from what training photos have."""
        return ((known - self.mean) * self.scale).clamp(-FARTHEST, FARTHEST)

    def wide(self, known: Maps) -> Maps:
        """Return what the last layer sees: what is known of each place, standardised, and random products of that."""
        return torch.cat([known, functional.relu(self.expand(known))], dim=1)

    def known(self, backbone: Model, images: Images, part: BatchPart | None = None) -> Maps:
        """Return what filters and maps say of each place."""
        filters = filtered(images, self.stride)
        if self.project is None:
            return filters
        maps = self.project(backbone.encode(images, part).maps)
        finer = functional.interpolate(maps, size=filters.shape[-2:], mode="bilinear", align_corners=False)
        return torch.cat([filters, finer], dim=1)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draw what is random; the last layer says nothing before it is fitted."""
        nn.init.zeros_(self.mean)
        nn.init.ones_(self.scale)
        for layer in (self.project, self.expand):
            if layer is not None:
                layer.weight.normal_(std=layer.in_channels**-0.5, generator=generator)
                assert layer.bias is not None
                layer.bias.normal_(std=0.5, generator=generator)
        nn.init.zeros_(self.classifier.weight)
        assert self.classifier.bias is not None
        nn.init.zeros_(self.classifier.bias)
