"""Many masks of one image moved by one computation: what a view shows of each, from run lengths to run lengths.

A view shows some of the image's rows and columns. Only there are the masks drawn, all into one image of numbers, which is
moved once: the work grows with the view and the runs, not with the image times the number of its masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int64

from vitral.images.geometry import Boxes, Geometry, Size
from vitral.images.run_lengths import RunLengths, runs_between

DRAWN_AT_ONCE = 16
PAINTED_AT_ONCE = 1 << 20  # pixels

Numbers = Int64[np.ndarray, " numbers"]


@dataclass(frozen=True, eq=False)
class MovedMasks:
    """The masks that a view shows something of: their numbers among all of the image, ascending, and how they look there."""

    numbers: Numbers
    masks: tuple[RunLengths, ...]
    boxes: Boxes
    areas: Numbers


def move_masks(masks: Sequence[RunLengths], geometry: Geometry) -> MovedMasks:
    """Return what a view shows of an image's masks, each moved as `Geometry.mask` moves it."""
    (height, width), (rows, columns) = geometry.original, geometry.places()
    row_ranks, column_ranks = _ranks(rows, height), _ranks(columns, width)
    stride = (
        int(row_ranks[-1]) + 1
    )  # the last row and the last column of the image stay empty: what is not seen is there
    image = np.empty(stride * (int(column_ranks[-1]) + 1), dtype=np.int32)
    places = (column_ranks[columns].T * stride + row_ranks[rows].T).reshape(-1)
    drawn, owners = _pixels(masks, height, row_ranks, column_ranks)
    runs = [np.zeros((3, 0), dtype=np.int64)]
    while len(drawn):  # once, and again for what is below another mask
        image.fill(-1)
        image[drawn] = owners
        shown = image[places]
        changes = np.flatnonzero(shown[1:] != shown[:-1]) + 1
        starts, stops = np.append(0, changes), np.append(changes, len(shown))
        runs.append(np.stack([shown[starts], starts, stops])[:, shown[starts] >= 0])
        below = image[drawn] != owners
        drawn, owners = drawn[below], owners[below]
    return _encoded(np.concatenate(runs, axis=1), geometry.size)


def draw_masks(masks: Sequence[RunLengths], size: Size) -> Bool[np.ndarray, "masks height width"]:
    """Return the masks of an image of that size; only the pixels inside are written, so that many small masks cost little."""
    height, width = size
    bitmaps = np.zeros(len(masks) * height * width, dtype=bool)
    for first in range(0, len(masks), DRAWN_AT_ONCE):
        owners, starts, stops = _runs_inside(masks[first : first + DRAWN_AT_ONCE])
        run, number = _counted(stops - starts)
        columns, rows = np.divmod(starts[run] + number, height)
        bitmaps[((first + owners[run]) * height + rows) * width + columns] = True
    return bitmaps.reshape(-1, height, width)


def paint_masks(
    masks: Sequence[RunLengths], values: Numbers, size: Size, *, ground: int
) -> Int64[np.ndarray, "height width"]:
    """Return one map of an image in which each mask's pixels have its value; of masks that overlap the last has the pixels.

    Time and memory grow with the map and the pixels inside, not with the image times the number of its masks.
    """
    painted = np.full(size[0] * size[1], ground, dtype=np.int64)
    owners, starts, stops = _runs_inside(masks)
    counts = stops - starts
    bounds = np.flatnonzero(np.diff(np.cumsum(counts) // PAINTED_AT_ONCE)) + 1
    for first, last in pairwise([0, *bounds.tolist(), len(counts)]):
        part = slice(first, last)
        run, number = _counted(counts[part])
        painted[starts[part][run] + number] = values[owners[part]][run]  # of equal places the last is what remains
    return np.ascontiguousarray(painted.reshape(size[1], size[0]).T)


def joined(masks: Sequence[RunLengths], size: Size) -> RunLengths:
    """Return the mask of all pixels that are in any of an image's masks; `size` is the image's height and width."""
    _, starts, stops = _runs_inside(masks)
    places = np.concatenate([starts, stops])
    order = np.argsort(places, kind="stable")  # where one ends and another begins, the beginning comes first
    change = np.where(order < len(starts), 1, -1)
    depth = np.cumsum(change)
    return runs_between(places[order][(depth == 0) | ((depth == 1) & (change == 1))], size[0] * size[1])


def _ranks(places: Int64[np.ndarray, "_ _"], length: int) -> Numbers:
    """Return how many of an image's rows (or columns) before each are seen; the last number is that of all."""
    seen = np.zeros(length + 1, dtype=bool)
    seen[places] = True  # what is not seen, -1, falls on the end
    return np.concatenate([[0], np.cumsum(seen[:-1])])


def _pixels(
    masks: Sequence[RunLengths], height: int, row_ranks: Numbers, column_ranks: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the places in the image, column by column, of all masks' pixels that may be seen, and the mask of each."""
    owners, starts, stops = _runs_inside(masks)
    first, last = starts // height, (stops - 1) // height
    run, number = _counted(last - first + 1)
    column = first[run] + number
    top, bottom = (starts[run] - column * height).clip(0), (stops[run] - column * height).clip(max=height)
    low, high = row_ranks[top], row_ranks[bottom]
    seen = (column_ranks[column + 1] > column_ranks[column]) & (high > low)
    run, low, high = run[seen], low[seen], high[seen]
    segment, number = _counted(high - low)
    base = column_ranks[column[seen]] * (row_ranks[-1] + 1) + low
    return base[segment] + number, owners[run][segment]


def _runs_inside(masks: Sequence[RunLengths]) -> tuple[Numbers, Numbers, Numbers]:
    """Return of every run inside a mask the number of that mask, its first pixel and the pixel after its last."""
    owners, number = _counted(np.array([len(runs) for runs in masks], dtype=np.int64))
    runs = np.concatenate([np.zeros(0, np.uint32), *masks]).astype(np.int64)
    stops = np.cumsum(runs)
    before = stops - runs
    stops -= before[number == 0][owners]  # counted anew in each mask
    inside = (number % 2 == 1) & (runs > 0)
    return owners[inside], (stops - runs)[inside], stops[inside]


def _counted(counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return for things of which there are several: the index of each one's kind, and its number among its kind."""
    kinds = np.repeat(np.arange(len(counts)), counts)
    return kinds, np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)


def _encoded(runs: Int64[np.ndarray, "3 runs"], size: Size) -> MovedMasks:
    """Return masks from their runs in any order: of each its mask, its first pixel and the pixel after its last."""
    pixels = size[0] * size[1]
    owners, starts, stops = runs[:, np.lexsort((runs[1], runs[0]))]
    if not len(owners):
        return MovedMasks(owners, (), np.zeros((0, 4)), owners)
    goes_on = (owners[1:] == owners[:-1]) & (starts[1:] == stops[:-1])
    begins, ends = np.append(True, ~goes_on), np.append(~goes_on, True)
    owners, starts, stops = owners[begins], starts[begins], stops[ends]
    numbers, first, counts = np.unique(owners, return_index=True, return_counts=True)
    changes = np.stack([starts, stops], axis=1).reshape(-1)
    before = np.concatenate([[0], changes[:-1]])
    before[2 * first] = 0
    rest = pixels - stops[first + counts - 1]
    runs = np.insert(changes - before, (2 * (first + counts))[rest > 0], rest[rest > 0]).astype(np.uint32)
    ends = np.cumsum(2 * counts + (rest > 0))
    within = starts // size[0] == (stops - 1) // size[0]  # one column; a longer run has its first and its last row
    tops, bottoms = np.where(within, starts % size[0], 0), np.where(within, (stops - 1) % size[0] + 1, size[0])
    boxes = [
        starts[first] // size[0],
        np.minimum.reduceat(tops, first),
        (stops[first + counts - 1] - 1) // size[0] + 1,
        np.maximum.reduceat(bottoms, first),
    ]
    areas = np.add.reduceat(stops - starts, first)
    return MovedMasks(numbers, tuple(np.split(runs, ends[:-1])), np.stack(boxes, axis=1).astype(np.float64), areas)
