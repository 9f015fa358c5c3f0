"""What annotation tools have in common: turned boxes, ellipses, sizes of photos, and which regions can be used."""

import math
from collections.abc import Sequence

import numpy as np

from vitral.data.annotations.annotation import Mark, Size
from vitral.data.annotations.marked import FEW_POINTS, NO_AREA, Trap, has_area
from vitral.data.annotations.polygons import FEWEST_POINTS
from vitral.images.decode import HALVED, pixel_limit

Outline = tuple[float, ...]  # of each point x and y in turn
Box = tuple[float, float, float, float]
POINTS = 64  # of the polygon that stands for an ellipse
NAMELESS = "regions without a class, left out"
NO_REGION = "points, lines and skeletons, which cover nothing, left out"


def turned_box(box: Box, degrees: float, pivot: tuple[float, float]) -> Outline:
    """Return the corners of a box that is turned clockwise about a point: its left top one first, then clockwise."""
    left, top, right, bottom = box
    return _turned(np.array([[left, top], [right, top], [right, bottom], [left, bottom]]) - pivot, degrees, pivot)


def ellipse(centre: tuple[float, float], radii: tuple[float, float], degrees: float) -> Outline:
    """Return a polygon that stands for an ellipse of two radii, along x and y before it is turned clockwise."""
    angles = np.linspace(0, 2 * math.pi, POINTS, endpoint=False)
    return _turned(np.stack([np.cos(angles), np.sin(angles)], axis=1) * radii, degrees, centre)


def _turned(offsets: np.ndarray, degrees: float, pivot: tuple[float, float]) -> Outline:
    angle = math.radians(degrees)  # clockwise, as y points down
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return tuple((offsets @ turn + pivot).reshape(-1).tolist())


def around(outline: Outline) -> Box:
    """Return the box around a polygon."""
    return min(outline[::2]), min(outline[1::2]), max(outline[::2]), max(outline[1::2])


def stated_size(height: int, width: int) -> Size:
    """Return the size that a file states for a photo.

    Raises:
        ValueError: no photo that is read has such a size, so that masks of it would only take memory.
    """
    if min(height, width) < 1 or height * width > HALVED * pixel_limit():
        raise ValueError(f"of a photo of {width}x{height} pixels")
    return height, width


def usable(marks: Sequence[Mark], file: str, traps: list[Trap]) -> list[Mark]:
    """Return the regions that have a class and an extent; what is left out is added to the traps."""
    kept = list[Mark]()
    counts = {NAMELESS: 0, FEW_POINTS: 0, NO_AREA: 0}
    for mark in marks:
        if not mark.name:
            counts[NAMELESS] += 1
        elif mark.polygons and not mark.has_mask and all(len(each) < 2 * FEWEST_POINTS for each in mark.polygons):
            counts[FEW_POINTS] += 1
        elif not has_area(mark):
            counts[NO_AREA] += 1
        else:
            kept.append(mark)
    traps += [Trap(kind, file, count) for kind, count in counts.items() if count]
    return kept
