"""How much an image shows: its own size says little of one that was enlarged."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from vitral.images.decode import Pixels

LOST = 0.005  # of the variance of the brightness, in shrinking and enlarging again: less is not missed
ENLARGED = 1.5  # times, at least: less makes no difference


def detail_side(pixels: Pixels, sides: Sequence[int]) -> int | None:
    """Return the shorter side, in pixels, at which an image shows as much as at its own size.

    Shrunk to it and enlarged again, its brightness differs by less than a two-hundredth of its variance. For photographs that
    were enlarged by interpolation from 32 to 96 pixels this is the side that they were enlarged from, or one beside it in the
    list; photographs in their own size lose more at 160 pixels, and at 48 ten times as much. Radiographs, which are smooth,
    count as enlarged from 112 pixels. Enlarging by repeated pixels is not seen.

    Args:
        pixels: height x width x 3, uint8.
        sides: to try, pixels, in rising order.

    Returns:
        The first of the sides from which on nothing is lost; None where something is at the last that is below two thirds of
        the image's own.
    """
    image = Image.fromarray(pixels).convert("L")
    most = 2 * max(sides)  # finer detail is lost at each of them
    if min(image.size) > most:
        image = image.resize(_with_side(image, most), Image.Resampling.BICUBIC, reducing_gap=2.0)
    found = None
    for side in reversed(sides):  # most images lose something at the first that is tried
        if ENLARGED * side <= min(image.size):
            if _lost(image, side) > LOST:
                break
            found = side
    return found


def _lost(image: Image.Image, side: int) -> float:
    """Return the share of the variance that is lost by shrinking a grey image to a shorter side."""
    values = np.asarray(image, np.float32)
    shrunk = image.resize(_with_side(image, side), Image.Resampling.BICUBIC)
    again = np.asarray(shrunk.resize(image.size, Image.Resampling.BICUBIC), np.float32)
    difference = np.square(again - values).mean()
    return float(difference / values.var()) if difference else 0.0


def _with_side(image: Image.Image, side: int) -> tuple[int, int]:
    """Return width and height of an image with that shorter side."""
    scale = side / min(image.size)
    return max(side, round(scale * image.width)), max(side, round(scale * image.height))
