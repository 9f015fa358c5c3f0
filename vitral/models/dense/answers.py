"""What networks of regions answer: of each query its class and its mask or box, or of each place of a map."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

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

KINDS: dict[str, type[QueryAnswers | PointAnswers]] = {"queries": QueryAnswers, "points": PointAnswers}
PLACES = "logits"  # what a head answers that gives logits of each place alone


def named_parts(answers: Any) -> dict[str, Tensor]:  # noqa: ANN401  # of whatever head
    """Return the tensors of a network's answers, by names that tell the kind of answers."""
    if isinstance(answers, Tensor):
        return {PLACES: answers}
    name = next(name for name, kind in KINDS.items() if isinstance(answers, kind))
    values = {field.name: getattr(answers, field.name) for field in fields(answers)}
    return {f"{name}.{field}": value for field, value in values.items() if isinstance(value, Tensor)}


def answers_of(parts: Mapping[str, Tensor]) -> Any:  # noqa: ANN401  # of whatever head
    """Return the answers of which `named_parts` gave the tensors."""
    if PLACES in parts:
        return parts[PLACES]
    name = next(iter(parts)).partition(".")[0]
    kind: Any = KINDS[name]
    return kind(**{part.removeprefix(f"{name}."): value for part, value in parts.items()})
