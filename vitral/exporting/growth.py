"""Connected pixels, and which of them each pixel is nearest to, as a graph: what `vitral.tasks.components.grow` gives.

Only loops, shifts and scattered maxima, whose rounds hang on what is in the photo. Where two seeds are equally near, the choice
is OpenCV's, whose two passes over the photo a round repeats for all pixels at once (imgproc/src/distransform.cpp).
"""

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Bool, Int64
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional

Flags = Bool[Tensor, "batch height width"]
Numbers = Int64[Tensor, "batch height width"]
Stacks = Int64[Tensor, "batch kinds height width"]

JUMPS = 2  # from parent to parent, after each time that parts have met
FIXED = 1 << 16  # one pixel's distance in OpenCV's whole numbers
SIDE = FIXED  # the steps of its mask of 5 x 5
CORNER = round(1.4 * FIXED)
KNIGHT = round(2.1969 * FIXED)
# Rows and columns to a neighbour, and how far it is, in the order in which the first of two equal ones counts.
FORTH = (
    (-2, -1, KNIGHT), (-2, 1, KNIGHT), (-1, -2, KNIGHT), (-1, -1, CORNER),
    (-1, 0, SIDE), (-1, 1, CORNER), (-1, 2, KNIGHT), (0, -1, SIDE),
)  # fmt: skip
BACK = tuple((-down, -across, length) for down, across, length in FORTH)
CHOICES = 16  # a distance times this has room for the number of a neighbour
FAR = 1 << 40  # from any seed


def grown(seeds: Flags, whole: Flags) -> Numbers:
    """Return the number of the object that each pixel is of, from 1; 0 outside of `whole`.

    Args:
        seeds: Pixels of which those that are connected are one object.
        whole: All pixels of objects, each of which is the nearest seed's; what is connected and has no seed is one object.
    """
    within = seeds & whole
    roots, parts = (each.flatten(1) for each in connected(torch.stack([within, whole], dim=1)).unbind(1))
    flat = within.flatten(1).long()
    seeded = torch.zeros_like(parts).scatter_add(1, parts, flat).gather(1, parts) > 0
    core = (flat > 0) | (~seeded & whole.flatten(1))
    roots = torch.where(seeded, roots, parts)
    first = core & (roots == torch.arange(roots.shape[1]))
    numbers = first.long().cumsum(dim=1).gather(1, roots) * core
    return nearest(numbers.reshape(whole.shape), whole) * whole


def connected(masks: Bool[Tensor, "batch kinds height width"]) -> Stacks:
    """Return for each pixel of a mask the highest place, counted by rows, that it is connected to, by a side or a corner."""
    own = torch.arange(masks.shape[2] * masks.shape[3]).reshape(masks.shape[2:]).expand(masks.shape).contiguous()

    def more(parents: Tensor, going: Tensor) -> Tensor:
        return going.any()

    def meet(parents: Tensor, going: Tensor) -> tuple[Tensor, Tensor]:
        met = torch.where(masks, _highest(torch.where(masks, parents, -1)), parents).flatten(2)
        flat = parents.flatten(2)
        flat = torch.maximum(met, flat.scatter_reduce(2, flat, met, "amax"))
        for _ in range(JUMPS):
            flat = flat.gather(2, flat)
        found = flat.reshape(parents.shape)
        return found, (found != parents).any().reshape(1)

    return repeated(more, meet, (own, torch.ones(1, dtype=torch.bool)))[0]


def _highest(numbers: Stacks) -> Stacks:
    """Return the highest of each pixel and its eight neighbours."""
    for dimension, sides in ((2, (0, 0, 1, 1)), (3, (1, 1, 0, 0))):
        padded, size = functional.pad(numbers, sides, value=-1), numbers.shape[dimension]
        here, after = (padded.narrow(dimension, shift, size) for shift in (1, 2))
        numbers = torch.maximum(torch.maximum(padded.narrow(dimension, 0, size), here), after)
    return numbers


def nearest(numbers: Numbers, whole: Flags) -> Numbers:
    """Return the number of the nearest numbered pixel of each pixel of `whole`, each connected part of which has one."""
    start = torch.where(numbers > 0, 0, FAR)
    done = torch.zeros(1, dtype=torch.int64)

    def more(rounds: Tensor, forth: Tensor, forth_numbers: Tensor, back: Tensor, back_numbers: Tensor) -> Tensor:
        # A step is at least a side long, so that what is no farther than there were rounds does not change any more.
        return (whole & (back > rounds * (SIDE * CHOICES))).any()

    def step(
        rounds: Tensor, forth: Tensor, forth_numbers: Tensor, back: Tensor, back_numbers: Tensor
    ) -> tuple[Tensor, ...]:
        forth, forth_numbers = _passed(forth, forth_numbers, (start, numbers), FORTH)
        back, back_numbers = _passed(back, back_numbers, (forth, forth_numbers), BACK)
        return rounds + 1, forth, forth_numbers, back, back_numbers

    carried = (each.clone() for each in (start, numbers, start, numbers))  # what a loop carries is nothing else in it
    return repeated(more, step, (done, *carried))[4]


def _passed(
    distances: Numbers, numbers: Numbers, own: tuple[Numbers, Numbers], steps: tuple[tuple[int, int, int], ...]
) -> tuple[Numbers, Numbers]:
    """Return distances and numbers after one step from the neighbours of a pass, which its own equal ones come before."""
    height, width = distances.shape[1:]
    padded = functional.pad(distances, (2, 2, 2, 2), value=FAR)
    best = own[0]
    jumps = [0]
    for choice, (down, across, length) in enumerate(steps, start=1):
        there = padded.narrow(1, 2 + down, height).narrow(2, 2 + across, width)
        best = torch.minimum(best, there + (length * CHOICES + choice))
        jumps.append(down * width + across)
    chosen = best & (CHOICES - 1)
    here = torch.arange(height * width).reshape(height, width)
    towards = torch.stack([torch.scalar_tensor(jump, dtype=torch.int64) for jump in jumps])
    given = numbers.flatten(1).gather(1, (here + towards[chosen]).flatten(1)).reshape(numbers.shape)
    return best - chosen, torch.where(chosen == 0, own[1], given)


def repeated(
    more: Callable[..., Tensor], step: Callable[..., tuple[Tensor, ...]], carried: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Return what a step makes of some tensors when it is taken again and again, while a condition on them holds."""
    return tuple(while_loop(more, step, carried))  # type: ignore[no-untyped-call]


def highest(numbers: Int64[Tensor, "*axes"]) -> int:
    """Return the highest of some numbers, at least 0, as the length of an axis."""
    length = cast(int, numbers.max().item())
    torch._check(length >= 0)
    return length
