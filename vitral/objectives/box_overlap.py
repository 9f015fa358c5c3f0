"""How far boxes overlap: IoU, and the generalised IoU, which falls with the distance of boxes apart (arXiv 1902.09630).

A box is left, top, right, bottom in whatever unit; both measures are the same in every unit, of height and width each.
"""

import torch
from jaxtyping import Float
from torch import Tensor

CornerBoxes = Float[Tensor, "*boxes 4"]
SMALLEST = 1e-9  # an area to divide by


def corners(boxes: Float[Tensor, "*boxes 4"]) -> CornerBoxes:
    """Return boxes of middle x, middle y, width and height by their corners."""
    middles, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([middles - half, middles + half], dim=-1)


def middles(boxes: CornerBoxes) -> Float[Tensor, "*boxes 4"]:
    """Return boxes of corners as middle x, middle y, width and height."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return torch.cat([(low + high) / 2, high - low], dim=-1)


def overlaps(first: CornerBoxes, second: CornerBoxes) -> tuple[Float[Tensor, "*boxes"], Float[Tensor, "*boxes"]]:
    """Return the IoU of boxes with those of the same place, and their generalised IoU; shapes are broadcast.

    For all pairs give (first, 1, 4) and (1, second, 4).
    """
    inner = _area(torch.maximum(first[..., :2], second[..., :2]), torch.minimum(first[..., 2:], second[..., 2:]))
    hull = _area(torch.minimum(first[..., :2], second[..., :2]), torch.maximum(first[..., 2:], second[..., 2:]))
    union = _area(first[..., :2], first[..., 2:]) + _area(second[..., :2], second[..., 2:]) - inner
    shared = inner / union.clamp(min=SMALLEST)
    return shared, shared - (hull - union) / hull.clamp(min=SMALLEST)


def _area(low: Float[Tensor, "*boxes 2"], high: Float[Tensor, "*boxes 2"]) -> Float[Tensor, "*boxes"]:
    return (high - low).clamp(min=0).prod(dim=-1)
