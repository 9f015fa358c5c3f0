"""Objects by their insides and their rims, place by place, on the maps of `DetailHead`.

Rims keep objects that touch apart, as in the U-Net (arXiv 1505.04597, section 3), where they weigh more in the loss; here they
are a class of their own. Every pixel teaches, so that few photos are enough; an object in two parts becomes two.
"""

from dataclasses import dataclass
from typing import ClassVar

from vitral.models.dense.detail import DetailHead, DetailHeadConfig
from vitral.models.model import ModelConfig

FURTHER = 2  # outputs beside the classes: rims, and what is in no object


@dataclass(frozen=True, slots=True)
class RimHeadConfig(DetailHeadConfig):
    """What a decoder of insides and rims is."""

    kind: ClassVar[str] = "rims"
    title: ClassVar[str] = "a decoder of insides and rims"


class RimHead(DetailHead):
    """Logits at each pixel of the inside of each class's objects, of rims, and of no object."""

    def __init__(self, config: RimHeadConfig, backbone: ModelConfig, channels: int, num_classes: int) -> None:
        super().__init__(config, backbone, channels, num_classes + FURTHER)
