"""Photos that are much larger than a network's input: seen through windows, whose answers become one.

Scores of classes are averaged where windows overlap (EoMT, training/lightning_module.py, `window_imgs_semantic` and
`revert_window_logits_semantic`; DINOv3's sliding windows). Regions that two windows show are one where they agree on what both
see; of a region that a window's edge cuts, the window that shows all of it is believed, even if it finds nothing there.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.images.decode import Pixels
from vitral.images.geometry import Crop, Geometry, Resize, Size
from vitral.images.moved_masks import joined
from vitral.images.preprocessing import Preprocessing
from vitral.images.run_lengths import RunLengths, decode_mask
from vitral.images.to_photo import at_size
from vitral.models.model import Images
from vitral.tasks.regions import FoundRegions, Regions

Scores = Float[Tensor, "batch classes rows columns"]
Find = Callable[[Any, Sequence[Geometry]], Sequence[FoundRegions]]
Cut = Bool[np.ndarray, " regions"]
Key = tuple[int, int]  # a window, and one of the regions that were found in it

AT_ONCE = 4  # windows that are computed together
FINE = 1 << 26  # scores up to which they are averaged at each pixel of a canvas: 256 MiB
COARSE = 4  # pixels between the scores of a larger one
AGREE = 0.5  # the overlap from which on what two windows show is one region
TOUCH = 1.5  # pixels from a window's edge at which it cuts a region


@dataclass(frozen=True)
class Windows:
    """How a photo is seen.

    Attributes:
        photo: The photo's height and width, pixels.
        canvas: What it is resized to.
        size: The windows' height and width, pixels of the canvas.
        tops: The first rows of the windows; there is one at each of them and each of `lefts`.
        lefts: Their first columns.
        step: A number of pixels of which canvas, windows and their places are multiples.
    """

    photo: Size
    canvas: Size
    size: Size
    tops: tuple[int, ...]
    lefts: tuple[int, ...]
    step: int = 1

    def corners(self) -> list[tuple[int, int]]:
        """Return the first row and column of each window."""
        return [(top, left) for top in self.tops for left in self.lefts]

    def views(self) -> list[Geometry]:
        """Return the steps from the photo to each window."""
        return [Geometry(self.photo, (Resize(*self.canvas), Crop(*corner, *self.size))) for corner in self.corners()]


def spread_windows(photo: Size, size: Size, *, scale: float = 1.0, overlap: float = 0.0, classes: int = 1) -> Windows:
    """Return windows that cover a photo, evenly spread.

    Args:
        photo: The photo's height and width, pixels.
        size: The network's input, pixels.
        scale: How large the photo is made: at 1, the windows just cover its shorter side.
        overlap: The share of a window, 0 to 1, that its neighbour shows, too, at least.
        classes: The number of classes whose scores are averaged at each place, by which many pixels are too many.
    """
    factor = scale * max(size[0] / photo[0], size[1] / photo[1])
    canvas = [max(least, round(side * factor)) for side, least in zip(photo, size, strict=True)]
    step = math.gcd(COARSE, *size) if classes * canvas[0] * canvas[1] > FINE else 1
    rows, columns = (-(-side // step) * step for side in canvas)
    tops, lefts = _starts(rows, size[0], overlap, step), _starts(columns, size[1], overlap, step)
    return Windows(photo, (rows, columns), size, tops, lefts, step)


def _starts(length: int, side: int, overlap: float, step: int) -> tuple[int, ...]:
    count = max(1, math.ceil((length / side - overlap) / (1 - overlap) - 1e-9))
    # In whole numbers, so that the last one ends where the canvas does.
    return tuple(number * (length - side) // max(count - 1, 1) // step * step for number in range(count))


def find_classes_by_windows(
    photo: Pixels,
    windows: Windows,
    preprocessing: Preprocessing,
    score: Callable[[Images], Scores],
    find: Find,
) -> FoundRegions:
    """Return the class of each pixel of a photo from scores that are averaged over the windows.

    Args:
        photo: The photo.
        windows: How it is seen.
        preprocessing: The network's; the photo is resized and normalised by it, and not cropped.
        score: What computes the scores of classes of prepared images.
        find: What tells the classes from scores of a view of the whole photo; see `DenseTask.find`.
    """
    rows, columns = (side // windows.step for side in windows.canvas)
    cells = windows.size[0] // windows.step, windows.size[1] // windows.step
    sums, counts = torch.zeros(0, rows, columns), torch.zeros(rows, columns)
    corners = iter(windows.corners())
    for images, _ in _seen(photo, windows, preprocessing):
        for scores in score(images).float().cpu():
            sums = sums if len(sums) else sums.new_zeros(len(scores), rows, columns)
            top, left = (start // windows.step for start in next(corners))
            part = slice(top, top + cells[0]), slice(left, left + cells[1])
            sums[:, *part] += at_size(scores, cells)
            counts[part] += 1
    return find(sums.div_(counts)[None], [Geometry(windows.photo, (Resize(rows, columns),))])[0]


def find_regions_by_windows(
    photo: Pixels,
    windows: Windows,
    preprocessing: Preprocessing,
    compute: Callable[[Images], Any],
    find: Find,
) -> FoundRegions:
    """Return the objects of a photo, the likeliest first, each once however many windows show it.

    What is no larger than the windows' overlap is whole in one of them. A network computes answers to prepared images, of
    which regions are found as by `DenseTask.find`.
    """
    found: list[FoundRegions] = []
    for images, views in _seen(photo, windows, preprocessing):
        found += find(compute(images), views)
    return merge_regions(found, windows)


def _seen(photo: Pixels, windows: Windows, preprocessing: Preprocessing) -> Iterator[tuple[Images, list[Geometry]]]:
    """Give the windows, prepared, in batches, and the steps to each."""
    canvas = preprocessing.whole().with_size(windows.canvas).fit(photo)
    corners, views = windows.corners(), windows.views()
    height, width = windows.size
    for first in range(0, len(corners), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        images = [canvas[:, top : top + height, left : left + width] for top, left in corners[part]]
        yield preprocessing.normalize(torch.stack(images)), views[part]


def merge_regions(found: Sequence[FoundRegions], windows: Windows) -> FoundRegions:
    """Return what was found in the windows of a photo as what is in the photo, the likeliest first."""
    shown = [np.array([~_cut(each.regions, corner, windows) for corner in windows.corners()]) for each in found]
    cut = [~whole[window] for window, whole in enumerate(shown)]
    groups = {(window, row): [(window, row)] for window, each in enumerate(found) for row in range(len(each.scores))}
    for one, other in combinations(range(len(found)), 2):
        for pair in _same(one, other, found, cut, windows):
            first, second = (groups[key] for key in pair)
            if first is not second:
                first += second
                groups.update(dict.fromkeys(second, first))
    missed = [cut[window] & whole.any(axis=0) for window, whole in enumerate(shown)]
    distinct = [
        group
        for (window, row), group in groups.items()
        if group[0] == (window, row) and not (len(group) == 1 and missed[window][row])
    ]
    merged = [_one(group, found, cut) for group in distinct]
    scores = np.array([max(found[window].scores[row] for window, row in group) for group in distinct], dtype=np.float64)
    order = np.argsort(-scores, kind="stable")
    nothing = found[0].regions.chosen([])  # which says whether there are masks where nothing is found
    return FoundRegions(_together([nothing, *merged]).chosen(order), scores[order])


def _cut(regions: Regions, corner: tuple[int, int], windows: Windows) -> Cut:
    """Return which regions a window does not show whole: they reach an edge of it that is not the photo's, or beyond."""
    boxes = Geometry(windows.photo, (Resize(*windows.canvas),)).boxes(regions.boxes)
    starts, size = np.array(corner[::-1]), np.array(windows.size[::-1])
    before = (boxes[:, :2] < starts + TOUCH) & (starts > 0)
    behind = (boxes[:, 2:] > starts + size - TOUCH) & (starts + size < windows.canvas[::-1])
    cut: Cut = (before | behind).any(axis=1)
    return cut


def _same(
    one: int, other: int, found: Sequence[FoundRegions], cut: Sequence[Cut], windows: Windows
) -> Iterator[tuple[Key, Key]]:
    """Give the pairs of regions of two windows that are the same by what both windows show."""
    corners = np.array(windows.corners())[[one, other]]
    top, left = corners.max(axis=0).tolist()
    height, width = (corners.min(axis=0) + windows.size - [top, left]).tolist()
    if min(height, width) <= 0:
        return
    common = Geometry(windows.photo, (Resize(*windows.canvas), Crop(top, left, height, width)))
    parts = [
        replace(found[window].regions, classes=np.arange(len(found[window].scores))).follow(common)
        for window in (one, other)
    ]
    for row, column, shared in _overlaps(*parts):
        keys = (one, int(parts[0].classes[row])), (other, int(parts[1].classes[column]))
        classes = [found[window].regions.classes[region] for window, region in keys]
        is_cut = [bool(cut[window][region]) for window, region in keys]
        areas = _area(parts[0], row), _area(parts[1], column)
        of = sum(areas) - shared if is_cut[0] == is_cut[1] else areas[is_cut.index(True)]
        if classes[0] == classes[1] and shared >= AGREE * of:
            yield keys


def _overlaps(one: Regions, other: Regions) -> Iterator[tuple[int, int, float]]:
    """Give the pairs of regions that overlap, and the pixels that they share."""
    starts = np.maximum(one.boxes[:, None, :2], other.boxes[None, :, :2])
    ends = np.minimum(one.boxes[:, None, 2:], other.boxes[None, :, 2:])
    for row, column in np.argwhere((ends > starts).all(axis=2)).tolist():
        if one.masks is None or other.masks is None:
            yield row, column, float((ends - starts)[row, column].prod())
        else:
            inside = decode_mask(one.masks[row], one.size) & decode_mask(other.masks[column], other.size)
            yield row, column, float(inside.sum())


def _area(regions: Regions, row: int) -> float:
    """Return the pixels of a region: of its mask, or of its box."""
    if regions.masks is not None:
        return float(regions.areas[row])
    return float((regions.boxes[row, 2:] - regions.boxes[row, :2]).prod())


def _one(group: Sequence[Key], found: Sequence[FoundRegions], cut: Sequence[Cut]) -> Regions:
    """Return the surest of the same regions that no window cuts; if all are cut, what they cover together."""
    whole = [key for key in group if not cut[key[0]][key[1]]]
    window, row = max(whole or group, key=lambda key: found[key[0]].scores[key[1]])
    best = found[window].regions.chosen([row])
    if whole or len(group) == 1:
        return best
    parts = [found[window].regions.chosen([row]) for window, row in group]
    boxes = np.concatenate([part.boxes for part in parts])
    box = np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])[None]
    masks: tuple[RunLengths, ...] | None = None
    area = (box[0, 2:] - box[0, :2]).prod()
    if best.masks is not None:
        masks = (joined([part.masks[0] for part in parts if part.masks], best.size),)
        area = masks[0][1::2].sum()
    return replace(best, boxes=box, masks=masks, areas=np.array([area], dtype=np.float64))


def _together(parts: Sequence[Regions]) -> Regions:
    """Return regions of one photo as one label."""
    masks = [part.masks for part in parts if part.masks is not None]
    return Regions(
        parts[0].size,
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.boxes for part in parts]),
        tuple(mask for each in masks for mask in each) if masks else None,
        np.concatenate([part.crowd for part in parts]),
        np.concatenate([part.areas for part in parts]),
    )
