"""A linear layer on each place of a backbone's last maps: the protocol by which DINOv3 is evaluated on segmentation.

Dropout of whole channels, batch norm, a 1 x 1 convolution drawn with a standard deviation of 0.01 (dinov3,
eval/segmentation/models/heads/linear_head.py; configs/config-ade20k-linear-training.yaml).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.models.dense.head import DenseHead, HeadConfig
from vitral.models.layers import BatchPart, init_norms
from vitral.models.model import Images, Model, ModelConfig

WEIGHT_STD = 0.01


@dataclass(frozen=True, slots=True)
class LinearHeadConfig(HeadConfig):
    """What a linear head is.

    Attributes:
        dropout: The share of channels left out while training.
    """

    kind: ClassVar[str] = "linear"
    title: ClassVar[str] = "a linear head"

    dropout: float = 0.1


class LinearHead(DenseHead):
    """Logits of each class at each place of the last maps (batch, classes, rows, columns)."""

    def __init__(self, config: LinearHeadConfig, backbone: ModelConfig, channels: int, num_classes: int) -> None:
        super().__init__(config, backbone, channels, num_classes)
        self.dropout = nn.Dropout2d(config.dropout)
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Conv2d(channels, num_classes, 1)

    def answer(
        self, backbone: Model, images: Images, part: BatchPart | None = None
    ) -> Float[Tensor, "batch classes rows columns"]:
        """Return the logits; see `DenseHead`."""
        return self.classifier(self.norm(self.dropout(backbone.encode(images, part).maps)))

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draw the weights as DINOv3's head has them; biases are 0."""
        init_norms(self)
        self.classifier.weight.normal_(std=WEIGHT_STD, generator=generator)
        assert self.classifier.bias is not None
        nn.init.zeros_(self.classifier.bias)
