"""Small images, for pages that show many."""

import numpy as np
from PIL import Image

from vitral.images.decode import Pixels

THUMBNAIL = 224  # pixels of the longer side


def thumbnail(pixels: Pixels) -> Pixels:
    """Return an image at most 224 pixels wide and high."""
    image = Image.fromarray(pixels)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return np.asarray(image)
