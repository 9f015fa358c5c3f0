"""What networks of regions answer: of each query its class and its mask or box, or of each place of a map."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class QueryAnswers:
    """The answer of each query.

    Attributes:
        classes: Logits (batch, queries, classes), where the last class may be "no object" (EoMT) or not (RF-DETR).
        masks: Logits of each query's mask (batch, queries, rows, columns); None of a detector of boxes.
        boxes: Middle x, middle y, width and height in shares of the view (batch, queries, 4); None of masks.
        earlier: The answers of earlier layers, in order; only while training.
        groups: How many sets of as many queries each answer for all regions on their own; more than one only while training.
    """

    classes: Float[Tensor, "batch queries classes"]
    masks: Float[Tensor, "batch queries rows columns"] | None = None
    boxes: Float[Tensor, "batch queries 4"] | None = None
    earlier: tuple["QueryAnswers", ...] = ()
    groups: int = 1

    def __len__(self) -> int:
        return len(self.classes)


torch.export.register_dataclass(QueryAnswers)  # torch's sharding looks for the tensors in what a network returns


@dataclass(frozen=True)
class PointAnswers:
    """The answer of each place of a map: whether the middle of a region lies there, and how far that region reaches.

    Attributes:
        classes: Logits of each class's middles (batch, classes, rows, columns).
        boxes: Left, top, right and bottom in shares of the view (batch, 4, rows, columns).
    """

    classes: Float[Tensor, "batch classes rows columns"]
    boxes: Float[Tensor, "batch 4 rows columns"]

    def __len__(self) -> int:
        return len(self.classes)


torch.export.register_dataclass(PointAnswers)
