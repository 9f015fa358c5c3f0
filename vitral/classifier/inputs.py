"""The images that `predict` and `explain` take, in whatever form a user has them."""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from vitral.data.image_files import LazyImage
from vitral.data.image_stream import list_unlabelled
from vitral.errors import ImageError
from vitral.events import Listener
from vitral.images.decode import Pixels, ReadsPixels, Shrink, read_image, to_rgb

ImageInput = str | Path | bytes | Image.Image | np.ndarray | LazyImage


def list_images(images: ImageInput | Iterable[ImageInput], listener: Listener) -> list[LazyImage]:
    """Return the images that a user names or passes, in order; none is read yet.

    Raises:
        DataError: an archive, a table or a dataset cannot be read.
        ImageError: a folder or archive without images.
    """
    given = [images] if isinstance(images, ImageInput) else images
    return [listed for index, image in enumerate(given) for listed in _listed(index, image, listener)]


def _listed(index: int, image: ImageInput, listener: Listener) -> list[LazyImage]:
    if isinstance(image, str | Path):
        return list_unlabelled(str(image), listener)
    if isinstance(image, LazyImage):
        return [image]
    return [LazyImage(f"image {index}", InMemory(image))]


@dataclass(frozen=True, eq=False)
class InMemory:
    """Gives the pixels of an image that the user passed."""

    image: ImageInput

    def __call__(self, *, shrink: Shrink | None = None) -> Pixels:
        """Return its RGB pixels, or raise ImageError; `shrink` is that of `read_image`."""
        return to_pixels(self.image, shrink=shrink)


def pixels_of(image: LazyImage) -> ReadsPixels | None:
    """Return what gives an image again: a file is read again, an image in memory is shown as long as the user keeps it.

    None of encoded bytes, which cannot be held without keeping them from being freed.
    """
    if not isinstance(image.read, InMemory):
        return image.read
    try:
        kept = weakref.ref(image.read.image)
    except TypeError:
        return None

    def read(*, shrink: Shrink | None = None) -> Pixels:
        if (alive := kept()) is None:
            raise ImageError("The image is no longer in memory.")
        return to_pixels(alive, shrink=shrink)

    return read


def to_pixels(image: ImageInput, *, shrink: Shrink | None = None) -> Pixels:
    """Return an image in any of the forms that `predict` takes as RGB pixels; `shrink` is that of `read_image`.

    Raises:
        ImageError: it cannot be read.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8:
            raise ImageError(f"An array must be uint8 with values 0 to 255, not {image.dtype}.")
        if not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)) or not image.size:
            raise ImageError(
                f"An array must be (height, width, 3) or (height, width), at least 1 pixel each, not {image.shape}."
            )
        return to_rgb(Image.fromarray(image))
    if isinstance(image, LazyImage):
        return image.read(shrink=shrink)
    return to_rgb(image) if isinstance(image, Image.Image) else read_image(image, shrink=shrink)
