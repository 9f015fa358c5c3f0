"""A detector of boxes by their middles, over any backbone: it learns from few images, where a set of queries does not.

After TTFNet (arXiv 1909.00700): each place of a fine map says which classes have the middle of a region there, and how far
that region reaches to the left, top, right and bottom. Ours differs in what the map is made of: the backbone's last maps, made
finer by interpolation, and a few convolutions on the pixels, because a patch of 14 or 16 pixels is coarse beside small regions.
Distances are exponentials, as FCOS has them (arXiv 1904.01355), so that small and large regions err by the same share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.convolution import Convolution, init_convolution
from vitral.models.dense.answers import PointAnswers
from vitral.models.dense.head import DenseHead, HeadConfig
from vitral.models.layers import BatchPart, Maps, init_norms
from vitral.models.model import Images, Model, ModelConfig

STRIDES = (4, 8)  # pixels
GROUPS = 8  # of channels in a norm
DETAIL_WIDTH = 32  # channels of the first convolution on the pixels; each later one has twice as many
PRIOR = 0.01  # probability of a middle at any place before training, so that the many empty places do not drown the few
REACH = 4  # strides from a middle to each side of its box before training
LARGEST_EXPONENT = 8.0  # of a distance in units of REACH strides
ANSWER_STD = 0.01  # of the last layers' first weights
SMALL = 4.0  # strides: where small regions are narrower than that, the finer map is taken


@dataclass(frozen=True, slots=True)
class PointsHeadConfig(HeadConfig):
    """What a detector by middles is.

    Attributes:
        stride: The step between the places of its map, pixels: 4 or 8.
        width: Its channels, a multiple of 8.
    """

    kind: ClassVar[str] = "points"
    title: ClassVar[str] = "a detector by middles"

    stride: int = 8
    width: int = 128

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if self.stride not in STRIDES or self.width < GROUPS or self.width % GROUPS:
            raise ModelError(
                f"A detector by middles has a stride of 4 or 8 and a width that 8 divides, not {self.stride} and {self.width}."
            )


def stride_for(side: float) -> int:
    """Return the stride for regions: the finer one where they are narrower than four places of the coarser.

    Args:
        side: The shorter side of small regions as the network sees them, pixels.
    """
    fine, coarse = STRIDES
    return fine if side < SMALL * coarse else coarse


class NormedConvolution(nn.Sequential):
    """A convolution, a norm of groups of channels, which needs no batch, and SiLU."""

    def __init__(self, channels: int, width: int, kernel: int = 3, *, stride: int = 1) -> None:
        convolution = Convolution(channels, width, kernel, stride=stride, padding=kernel // 2)
        super().__init__(convolution, nn.GroupNorm(GROUPS, width), nn.SiLU())


class PointsHead(DenseHead):
    """Logits of each class's middles and the boxes around them; see `PointAnswers`."""

    def __init__(self, config: PointsHeadConfig, backbone: ModelConfig, channels: int, num_classes: int) -> None:
        super().__init__(config, backbone, channels, num_classes)
        self.stride = config.stride
        halvings = int(math.log2(config.stride))
        widths = [3, *(DETAIL_WIDTH * 2**step for step in range(halvings - 1)), config.width]
        halved = [NormedConvolution(*pair, stride=2) for pair in zip(widths[:-1], widths[1:], strict=True)]
        self.detail = nn.Sequential(*halved)
        self.context = nn.Conv2d(channels, config.width, 1)
        self.context_norm = nn.GroupNorm(GROUPS, config.width)
        self.mixed = nn.ModuleList(NormedConvolution(config.width, config.width) for _ in range(2))
        self.class_tower = NormedConvolution(config.width, config.width)
        self.box_tower = NormedConvolution(config.width, config.width)
        self.classifier = nn.Conv2d(config.width, num_classes, 1)
        self.distances = nn.Conv2d(config.width, 4, 1)

    def answer(self, backbone: Model, images: Images, part: BatchPart | None = None) -> PointAnswers:
        """Return the answer of each place; see `DenseHead`."""
        maps = self.fused(backbone.encode(images, part).maps, images)
        boxes = self.boxes(self.distances(self.box_tower(maps)), images.shape[-2:])
        return PointAnswers(self.classifier(self.class_tower(maps)), boxes)

    def fused(self, maps: Maps, images: Images) -> Maps:
        """Return the fine map: the backbone's, interpolated, with what the pixels add."""
        detail = self.detail(images)
        context = self.context_norm(self.context(maps))
        fused = detail + functional.interpolate(context, size=detail.shape[-2:], mode="bilinear", align_corners=False)
        for layer in self.mixed:
            fused = fused + layer(fused)
        return fused

    def boxes(
        self, distances: Float[Tensor, "batch 4 rows columns"], size: Sequence[int]
    ) -> Float[Tensor, "batch 4 rows columns"]:
        """Return the boxes around all places, in shares of the view.

        Args:
            distances: What the last layer gives: logarithms of distances from the middle of each place.
            size: Height and width of the images, pixels.
        """
        rows, columns = distances.shape[-2:]
        reach = distances.float().clamp(max=LARGEST_EXPONENT).exp() * (REACH * self.stride)
        y = (torch.arange(rows, device=reach.device) + 0.5)[:, None].expand(rows, columns) / rows
        x = (torch.arange(columns, device=reach.device) + 0.5).expand(rows, columns) / columns
        left, top, right, bottom = reach.unbind(1)
        height, width = size
        return torch.stack([x - left / width, y - top / height, x + right / width, y + bottom / height], dim=1)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Convolutions as He draws them, norms of scale 1; the last layers near 0, with biases of few middles."""
        init_norms(self)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                init_convolution(module, generator)
        for last, bias in ((self.classifier, -math.log(1 / PRIOR - 1)), (self.distances, 0.0)):
            init_convolution(last, generator, std=ANSWER_STD)
            assert last.bias is not None
            nn.init.constant_(last.bias, bias)
