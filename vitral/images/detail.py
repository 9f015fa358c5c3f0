"""How much detail an image has: the size of an enlarged image says little about it."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from vitral.images.decode import Pixels

LOST = 0.005  # share of the brightness' variance that may be lost in shrinking and enlarging again
ENLARGED = 1.5  # the least factor of enlargement that counts


def detail_side(pixels: Pixels, sides: Sequence[int]) -> int | None:
    """Return the shorter side, in pixels, at which an image shows as much as at its own size.

    If the image is shrunk to that side and enlarged again, its brightness differs by less than a two-hundredth of its
    variance. For photographs that were enlarged by interpolation from 32 to 96 pixels this is the side that they were enlarged
    from, or its neighbour in the list. Photographs in their own size lose more at 160 pixels, and at 48 ten times as much.
    Radiographs, which are smooth, count as enlarged from 112 pixels. Enlargement by repeated pixels is not detected.

    Args:
        pixels: The image, uint8 (height, width, 3).
        sides: The sides to try, pixels, in rising order.

    Returns:
        The least side at which nothing is lost; None if something is lost at the largest side that is below two thirds of the
        image's own.
    """
    image = Image.fromarray(pixels).convert("L")
    most = 2 * max(sides)  # finer detail is lost at every side
    if min(image.size) > most:
        image = image.resize(_with_side(image, most), Image.Resampling.BICUBIC, reducing_gap=2.0)
    found = None
    for side in reversed(sides):  # most images lose something at the first side
        if ENLARGED * side <= min(image.size):
            if _lost(image, side) > LOST:
                break
            found = side
    return found


def _lost(image: Image.Image, side: int) -> float:
    """Return the share of the variance that a grey image loses if its shorter side is shrunk to `side`."""
    values = np.asarray(image, np.float32)
    shrunk = image.resize(_with_side(image, side), Image.Resampling.BICUBIC)
    again = np.asarray(shrunk.resize(image.size, Image.Resampling.BICUBIC), np.float32)
    difference = np.square(again - values).mean()
    return float(difference / values.var()) if difference else 0.0


def _with_side(image: Image.Image, side: int) -> tuple[int, int]:
    """Return width and height of an image with that shorter side."""
    scale = side / min(image.size)
    return max(side, round(scale * image.width)), max(side, round(scale * image.height))
