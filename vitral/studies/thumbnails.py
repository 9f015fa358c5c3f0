"""Small images of a dataset, for pages that show what was found in it."""

from collections.abc import Iterable

import numpy as np
from PIL import Image

from vitral.data.source import DataSet
from vitral.images.decode import Pixels

THUMBNAIL = 224  # pixels of the longer side


def thumbnail(pixels: Pixels) -> Pixels:
    """Return an image at most 224 pixels wide and high."""
    image = Image.fromarray(pixels)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return np.asarray(image)


def thumbnails(data: DataSet, places: Iterable[tuple[str, str, int]]) -> dict[tuple[str, str], Pixels]:
    """Return small images by split and name.

    Args:
        data: where they are.
        places: split, name and place in the split of each.
    """
    return {(split, name): thumbnail(data.splits[split].image(index)) for split, name, index in places}
