"""From what a network answers to a view, place by place, back to the pixels of the photo: bilinear, as it was trained.

Maps of logits go first to the view's size, then what lies beyond the photo is cut off, then they go to the photo's size: the
order of EoMT's inference (training/lightning_module.py, `revert_resize_and_pad_logits_instance_panoptic`) and of transformers'.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Float64, Num
from torch import Tensor
from torch.nn import functional

from vitral.images.geometry import Affine, Flip, Geometry
from vitral.images.run_lengths import RunLengths, encode_part

Maps = Float[Tensor, "channels rows columns"]
Line = Float64[np.ndarray, " places"]

MOST_VALUES = 1 << 26  # of a photo's maps that are computed at once: 256 MiB
MASKS_AT_ONCE = 16


def bands_in_photo(
    maps: Maps, view: Geometry, *, fill: float = 0.0, most_values: int | None = MOST_VALUES
) -> Iterator[Float[Tensor, "channels rows width"]]:
    """Give maps of a view at the size of its photo, in bands of rows from the top: a large one need not be held at once.

    Args:
        maps: Values at evenly spread places of the view, in any number of channels.
        view: The steps from the photo to the view, which neither turn nor mirror it.
        fill: The value where the view shows nothing of the photo.
        most_values: The number of values in a band, at most, if a row has no more; None for one band.
    """
    height, width = view.original
    whole, seen = at_size(maps, view.size), _Seen(view)
    rows = height if most_values is None else max(1, most_values // (len(maps) * width))
    top, bottom, left, right = seen.part
    if seen.all and rows >= height:
        yield at_size(whole[:, top:bottom, left:right], view.original)
        return
    for first in range(0, height, rows):
        if seen.all:  # several times faster than to read columns
            band = seen.read(whole, slice(first, first + rows), None, fill)[:, :, left:right]
            yield at_size(band, (band.shape[1], width))
        else:
            yield seen.read(whole, slice(first, first + rows), slice(0, width), fill)


def parts_in_photo(
    logits: Float[Tensor, "masks rows columns"], view: Geometry
) -> Iterator[tuple[Float[Tensor, "height width"], RunLengths]]:
    """Give of each mask, which is where logits are above 0, the logits in a part of the photo that holds it, and the mask."""
    seen = _Seen(view)
    for first in range(0, len(logits), MASKS_AT_ONCE):
        for whole in at_size(logits[first : first + MASKS_AT_ONCE], view.size):
            rows, columns = seen.around(whole > 0)
            part = seen.read(whole[None], rows, columns, 0.0)[0]
            yield part, encode_part((part > 0).cpu().numpy(), (rows.start, columns.start), view.original)


def at_size(maps: Maps, size: tuple[int, int]) -> Float[Tensor, "channels height width"]:
    """Return maps at another height and width, bilinear between the middles of their places; those of that size as they are."""
    if maps.shape[-2:] == size:
        return maps
    return functional.interpolate(maps[None], size=size, mode="bilinear", align_corners=False)[0]


class _Seen:
    """Which place of the view each row and each column of the photo has.

    Attributes:
        part: The part of the view that shows the photo: top, bottom, left, right, pixels of the view.
        all: Whether the view shows all of the photo.
    """

    def __init__(self, view: Geometry) -> None:
        assert not any(isinstance(step, Affine | Flip) for step in view.steps), "the view is turned or mirrored"
        height, width = view.original
        left, top, right, bottom = view.boxes(np.array([[0.0, 0.0, width, height]]))[0].round().astype(int).tolist()
        self.part = top, bottom, left, right
        side = max(height, width)
        middles = view.points(np.repeat(np.arange(side) + 0.5, 2).reshape(-1, 2))
        self.lines = (middles[:height, 1], top, bottom), (middles[:width, 0], left, right)
        self.all = all(line[0] > first and line[-1] < end for line, first, end in self.lines)

    def around(self, mask: Num[Tensor, "rows columns"]) -> tuple[slice, slice]:
        """Return the rows and the columns of the photo that a mask of the view may reach."""
        first, last = [], []
        for (line, _, _), axis in zip(self.lines, (1, 0), strict=True):
            places = mask.any(dim=axis).nonzero().flatten().tolist() or [0]
            first.append(int(np.searchsorted(line, places[0] - 0.5)))
            last.append(max(int(np.searchsorted(line, places[-1] + 1.5, side="right")), first[-1] + 1))
        return slice(first[0], last[0]), slice(first[1], last[1])

    def read(self, whole: Maps, rows: slice, columns: slice | None, fill: float) -> Maps:
        """Return some rows and columns of the photo from maps at the view's size; None leaves the columns as they are."""
        unseen = []
        for dimension, part in ((1, rows), *([] if columns is None else [(2, columns)])):
            line, first, end = self.lines[dimension - 1]
            line = line[part]
            whole = _read_along(whole, (line - 0.5).clip(first, max(end - 1, first)), dimension)
            unseen.append(torch.from_numpy((line < first) | (line >= end)).to(whole.device))
        outside = unseen[0][:, None] | unseen[-1][None] if columns is not None else unseen[0][:, None]
        return whole.masked_fill_(outside, fill) if bool(outside.any()) else whole


def _read_along(maps: Maps, places: Line, dimension: int) -> Maps:
    """Return maps at some places of an axis, counted from the middle of the first, each between its two neighbours."""
    low = torch.from_numpy(np.floor(places).astype(np.int64)).to(maps.device)
    share = torch.from_numpy(places).to(maps) - low.to(maps)
    high = (low + 1).clamp(max=maps.shape[dimension] - 1)
    shape = [-1 if axis == dimension else 1 for axis in range(3)]
    return torch.lerp(maps.index_select(dimension, low), maps.index_select(dimension, high), share.view(shape))
