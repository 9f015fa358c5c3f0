"""Which sizes of images a network can take, beside its own."""

import math

from vitral.models.model import Model


def grain(model: Model) -> int:
    """Return of how many pixels the sides of a network's images are multiples."""
    return int(model.config.size_step)


def size_of_shape(own: tuple[int, int], shape: float, step: int) -> tuple[int, int]:
    """Return the height and width of a shape with about as many pixels as the network's own, in whole patches.

    Args:
        own: height and width of the network's images.
        shape: height by width.
        step: of which both sides are multiples.
    """
    if shape == 1 and own[0] == own[1]:
        return own
    pixels = own[0] * own[1]
    rows, columns = (max(1, round(math.sqrt(side) / step)) * step for side in (pixels * shape, pixels / shape))
    return rows, columns
