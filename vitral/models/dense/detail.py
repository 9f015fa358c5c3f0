"""A decoder that joins a backbone's last maps with the pixels: coarse maps know what a thing is, pixels where it ends.

Two convolutions on the pixels give maps of stride 2 and 4, which meet the backbone's maps, enlarged, on the way up, as the
detail capture of ViTMatte does (arXiv 2305.15272, section 3.3) and the skips of a U-Net (arXiv 1505.04597). Made for few
photos and few minutes: a linear layer on maps of stride 14 or 16 loses to a threshold there.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.models.dense.head import DenseHead, HeadConfig
from vitral.models.layers import BatchPart, Maps, init_norms, init_torch_default
from vitral.models.model import Images, Model, ModelConfig


@dataclass(frozen=True, slots=True)
class DetailHeadConfig(HeadConfig):
    """What a decoder with details is.

    Attributes:
        width: The channels of the joined maps.
        detail: The channels of the maps of pixels.
    """

    kind: ClassVar[str] = "detail"
    title: ClassVar[str] = "a decoder of details"

    width: int = 64
    detail: int = 32


class DetailHead(DenseHead):
    """Logits of each class at stride 2 (batch, classes, rows, columns)."""

    def __init__(self, config: DetailHeadConfig, backbone: ModelConfig, channels: int, num_classes: int) -> None:
        super().__init__(config, backbone, channels, num_classes)
        width, detail = config.width, config.detail
        self.fine = JoinedMaps(3, detail, stride=2)
        self.coarse = JoinedMaps(detail, detail, stride=2)
        self.project = nn.Conv2d(channels, width, 1)
        self.norm = nn.BatchNorm2d(width)
        self.join_coarse = JoinedMaps(width + detail, width)
        self.join_fine = JoinedMaps(width + detail, width)
        self.classifier = nn.Conv2d(width, num_classes, 1)

    def answer(
        self, backbone: Model, images: Images, part: BatchPart | None = None
    ) -> Float[Tensor, "batch classes rows columns"]:
        """Return the logits; see `DenseHead`."""
        return self.classifier(self.maps(backbone.encode(images, part).maps, images))

    def maps(self, encoded: Maps, images: Images) -> Maps:
        """Return the joined maps at stride 2."""
        fine = self.fine(images)
        coarse = self.coarse(fine)
        maps = self.norm(self.project(encoded))
        maps = self.join_coarse(torch.cat([_enlarged(maps, coarse), coarse], dim=1))
        return self.join_fine(torch.cat([_enlarged(maps, fine), fine], dim=1))

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draw the convolutions as torch does; norms begin as the identity."""
        init_norms(self)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                init_torch_default(module, generator)


class JoinedMaps(nn.Module):
    """A 3 x 3 convolution, batch norm and GELU."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, maps: Maps) -> Maps:
        """Return the maps."""
        return functional.gelu(self.norm(self.convolution(maps)))


def _enlarged(maps: Maps, like: Maps) -> Maps:
    """Return maps at the rows and columns of others."""
    return functional.interpolate(maps, size=like.shape[-2:], mode="bilinear", align_corners=False)
