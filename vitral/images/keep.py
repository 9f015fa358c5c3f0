"""To what size training images shrink that are kept decoded in memory."""

import math

import cv2

from vitral.images.augment import Augmentation, covering
from vitral.images.decode import Pixels

SELDOM = 0.1  # share of the views whose box may be smaller than the view


def kept_shape(shape: tuple[int, int], augmentation: Augmentation, size: tuple[int, int]) -> tuple[int, int]:
    """Return the height and width at which an image is kept: of the same shape, and no larger than its views need.

    A view is made of a box, and one view in ten is of a smaller box than the kept image is meant for. For a random box its
    side, as a share of the image's, is evenly spread from the root of `min_area` ("inception"), or its area from `min_area`
    ("resized"), so the kept image is 1 / (r + 0.1 (1 - r)) or 1 / sqrt(a + 0.1 (1 - a)) times as large as the view: 1.8 times
    for an "inception" box from a quarter of the area, 3.3 times from a twentieth. At worst a view is enlarged by 1.35 there.
    Of "square" it is `margin` times as large as the view, of "padded" and "none" as large. A smaller image stays as it is.

    Args:
        shape: height and width of the decoded image, pixels.
        augmentation: how its views are cut out.
        size: height and width of the views.
    """
    factor = _factor(augmentation)
    rows, columns = covering(shape, (math.ceil(size[0] * factor), math.ceil(size[1] * factor)))
    return (rows, columns) if rows < shape[0] and columns < shape[1] else shape


def _factor(augmentation: Augmentation) -> float:
    least = augmentation.min_area
    if augmentation.crop == "inception":
        return 1 / (math.sqrt(least) + SELDOM * (1 - math.sqrt(least)))
    if augmentation.crop == "resized":
        return 1 / math.sqrt(least + SELDOM * (1 - least))
    return augmentation.margin if augmentation.crop == "square" else 1.0


def decoding_factor(shape: tuple[int, int], kept: tuple[int, int]) -> int:
    """Return by how much a JPEG of a shape may be decoded smaller and still be as large as what is kept of it."""
    return next(
        factor
        for factor in (8, 4, 2, 1)
        if factor == 1 or all(a >= factor * b for a, b in zip(shape, kept, strict=True))
    )


def shrunk(image: Pixels, kept: tuple[int, int]) -> Pixels:
    """Return an image averaged down to another height and width."""
    return image if image.shape[:2] == kept else cv2.resize(image, kept[::-1], interpolation=cv2.INTER_AREA)
