"""The loss of a detector by middles: TTFNet (arXiv 1909.00700, section 3), with CornerNet's focal loss (arXiv 1808.01244).

The target of a class's map is 1 at the middle of each region and falls off as a Gaussian inside the box shrunk to 0.54 of its
sides, whose places also learn the box. Two things are ours: every region weighs the same in the loss of the boxes, where
TTFNet weighs by the logarithm of the area; and places inside a crowd teach nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.models.dense.answers import PointAnswers
from vitral.objectives.box_overlap import CornerBoxes, overlaps

SPREAD = 0.54  # of a box's sides in which its places learn (section 4.1)
FOCUS = 2  # alpha of CornerNet's equation 1
FORGIVENESS = 4  # its beta
BOX_WEIGHT = 5.0  # of the loss of the boxes beside that of the middles


@dataclass(frozen=True)
class MarkedRegions:
    """The regions of one view that are learned, and its crowds, by left, top, right and bottom in shares of the view."""

    classes: Int64[Tensor, " regions"]
    boxes: Float[Tensor, "regions 4"]
    crowds: Float[Tensor, "crowds 4"]


def point_loss(answers: PointAnswers, regions: Sequence[MarkedRegions]) -> Float[Tensor, ""]:
    """Return the loss of the middles plus five times that of the boxes, each over the number of regions in the batch."""
    count = max(sum(len(marked.classes) for marked in regions), 1)
    total = answers.classes.new_zeros((), dtype=torch.float32)
    for logits, boxes, marked in zip(answers.classes.float(), answers.boxes.float(), regions, strict=True):
        near = _nearness(marked.boxes, logits.shape[-2:])
        total = total + _middle_loss(logits, marked, near) + BOX_WEIGHT * _box_loss(boxes, marked.boxes, near)
    return total / count


def _nearness(boxes: CornerBoxes, grid: tuple[int, int]) -> Float[Tensor, "regions rows columns"]:
    """Return how near each place of a grid is to the middle of each region: 1 there, 0 beyond the shrunk box."""
    sides = boxes.new_tensor([grid[1], grid[0]])
    half = ((boxes[:, 2:] - boxes[:, :2]) * sides * SPREAD / 2).floor()
    middle = ((boxes[:, :2] + boxes[:, 2:]) / 2 * sides).floor().clamp(min=0).minimum(sides - 1)
    across, down = (
        _fall(torch.arange(side, device=boxes.device), middle[:, axis, None], half[:, axis, None])
        for axis, side in ((0, grid[1]), (1, grid[0]))
    )
    return down[:, :, None] * across[:, None, :]


def _fall(
    places: Tensor, middle: Float[Tensor, "regions 1"], half: Float[Tensor, "regions 1"]
) -> Float[Tensor, "regions places"]:
    away = places - middle
    deviation = (2 * half + 1) / 6
    return torch.exp(-(away**2) / (2 * deviation**2)) * (away.abs() <= half)


def _middle_loss(
    logits: Float[Tensor, "classes rows columns"], marked: MarkedRegions, near: Float[Tensor, "regions rows columns"]
) -> Float[Tensor, ""]:
    """Return the focal loss (CornerNet, equation 1), summed; places near a middle are forgiven for what they say."""
    target = torch.zeros_like(logits)
    for number in torch.unique(marked.classes).tolist():
        target[number] = near[marked.classes == number].amax(dim=0)
    probability = logits.sigmoid()
    hit = -((1 - probability) ** FOCUS) * functional.logsigmoid(logits)
    miss = -((1 - target) ** FORGIVENESS) * probability**FOCUS * functional.logsigmoid(-logits)
    taught = ~_inside(marked.crowds, (logits.shape[1], logits.shape[2]))
    return torch.where(target == 1, hit, miss * taught).sum()


def _inside(boxes: CornerBoxes, grid: tuple[int, int]) -> Tensor:
    """Return which places of a grid have their middle in one of the boxes, (rows, columns)."""
    rows, columns = grid
    y = (torch.arange(rows, device=boxes.device) + 0.5)[None, :, None] / rows
    x = (torch.arange(columns, device=boxes.device) + 0.5)[None, None, :] / columns
    left, top, right, bottom = boxes[:, :, None, None].unbind(1)
    return ((x >= left) & (x <= right) & (y >= top) & (y <= bottom)).any(dim=0)


def _box_loss(
    boxes: Float[Tensor, "4 rows columns"], truths: CornerBoxes, near: Float[Tensor, "regions rows columns"]
) -> Float[Tensor, ""]:
    """Return 1 - GIoU at the places of each region, weighted by their nearness, which sums to 1 over a region.

    A place of several regions is the smallest one's.
    """
    if not len(truths):
        return boxes.sum() * 0.0
    areas = (truths[:, 2:] - truths[:, :2]).prod(dim=1)[:, None, None]
    owner = areas.expand_as(near).masked_fill(near == 0, torch.inf).argmin(dim=0)
    weight = (near / near.sum(dim=(1, 2), keepdim=True)).gather(0, owner[None])[0]
    at = weight > 0
    _, generalised = overlaps(boxes.permute(1, 2, 0)[at], truths[owner[at]])
    return ((1 - generalised) * weight[at]).sum()
