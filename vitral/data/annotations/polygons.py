"""Polygons as masks by COCO's rule, which differs from OpenCV's at the borders (pycocotools' maskApi.c, `rleFrPoly`).

The boundary is drawn on a grid five times as fine. Where it steps to another fine column whose middle is that of a column of
pixels, the pixels of this column change sides from there down.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from vitral.images.run_lengths import RunLengths, decode_mask, encode_mask

FINER = 5
FEWEST_POINTS = 3
# How far outside the image points may be; others are moved there, or a boundary would not end.
AROUND = 1000  # pixels, or
TIMES = 2  # the image's side so often


def polygons_mask(polygons: Sequence[Sequence[float]], size: tuple[int, int]) -> RunLengths:
    """Return the mask, of a height and width, that polygons cover together, by x and y of their points in turn, pixels.

    Those of fewer than three points cover nothing.
    """
    masks = [_mask(polygon, size) for polygon in polygons if len(polygon) >= 2 * FEWEST_POINTS]
    if len(masks) == 1:
        return masks[0]
    covered = np.zeros(size, dtype=bool)
    for runs in masks:
        covered |= decode_mask(runs, size)
    return encode_mask(covered)


def _mask(polygon: Sequence[float], size: tuple[int, int]) -> RunLengths:
    height, width = size
    points = np.asarray(polygon, dtype=np.float64)[: len(polygon) // 2 * 2].reshape(-1, 2)
    sides = np.array([width, height])
    around = np.maximum(AROUND, TIMES * sides)
    points = points.clip(-around, sides + around)
    x, y = _boundary(np.trunc(FINER * points + 0.5).astype(np.int64))
    moved = np.flatnonzero(x[1:] != x[:-1])
    column = np.minimum(x[moved], x[moved + 1]) - FINER // 2
    row = -((FINER // 2 - np.minimum(y[moved], y[moved + 1])) // FINER)
    counts = (column % FINER == 0) & (column >= 0) & (column // FINER < width)
    changes = column[counts] // FINER * height + row[counts].clip(0, height)
    places, times = np.unique(changes, return_counts=True)
    bounds = places[(times % 2 == 1) & (places < height * width)]
    return np.diff(np.concatenate([[0], bounds, [height * width]])).astype(np.uint32)


def _boundary(points: Int64[np.ndarray, "points 2"]) -> tuple[Int64[np.ndarray, " steps"], Int64[np.ndarray, " steps"]]:
    """Return x and y of the steps along a closed polygon, one for each fine column of a flat side, or row of a steep one."""
    ends = np.roll(points, -1, axis=0)
    across = np.abs(ends - points)
    flat = across[:, 0] >= across[:, 1]
    main = np.where(flat, 0, 1)
    sides = np.arange(len(points))
    # A side is drawn from the end with the smaller coordinate, whichever way it goes, so that neighbours share it.
    back = points[sides, main] > ends[sides, main]
    low, high = np.where(back[:, None], ends, points), np.where(back[:, None], points, ends)
    length = across[sides, main]
    slope = (high - low)[sides, 1 - main] / np.maximum(length, 1)
    side = np.repeat(sides, length + 1)
    step = np.arange(len(side)) - np.repeat(np.cumsum(length + 1) - length - 1, length + 1)
    step = np.where(back[side], length[side] - step, step)
    along = low[side, main[side]] + step
    beside = _rounded(low[side, 1 - main[side]] + slope[side] * step)
    return np.where(flat[side], along, beside), np.where(flat[side], beside, along)


def _rounded(values: Float64[np.ndarray, " steps"]) -> Int64[np.ndarray, " steps"]:
    """Return values rounded as C rounds when it adds a half and cuts."""
    return np.trunc(values + 0.5).astype(np.int64)
