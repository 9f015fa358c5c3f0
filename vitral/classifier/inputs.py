"""The images that `predict` and `explain` take, in whatever form a user has them."""

import os
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image
from torch import Tensor

from vitral.data.image_files import LazyImage
from vitral.data.image_stream import list_unlabelled
from vitral.errors import ImageError
from vitral.events import Listener
from vitral.images.decode import Pixels, ReadsPixels, Shrink, damaged, read_image, to_rgb

Encodings = bytes | bytearray | memoryview | BinaryIO  # an open file, or what is in it
ImageInput = str | Path | Encodings | Image.Image | np.ndarray | LazyImage
NAMED = "The image"  # in messages about one that has no name
FORMS = (
    "give a path, encoded bytes, an open file, a PIL image or an array (height, width, 3) of uint8, which of a tensor "
    "tensor.permute(1, 2, 0).numpy() is"
)


def list_images(images: ImageInput | Iterable[ImageInput], listener: Listener) -> list[LazyImage]:
    """Return the images that a user names or passes, in order; none is read yet.

    Raises:
        DataError: an archive, a table or a dataset cannot be read.
        ImageError: a folder or archive without images; or something that is no image.
    """
    return [listed for index, image in enumerate(_several(images)) for listed in _listed(index, image, listener)]


def _several(images: Any) -> Iterable[Any]:  # noqa: ANN401  # whatever a user passes
    """Return what may be images, one by one."""
    is_one = _is_image(images) or isinstance(images, Mapping | Tensor) or not isinstance(images, Iterable)
    return [images] if is_one else images


def _listed(index: int, image: ImageInput, listener: Listener) -> list[LazyImage]:
    if isinstance(image, str | os.PathLike):
        return list_unlabelled(os.fspath(image), listener)
    if isinstance(image, LazyImage):
        return [image]
    if not _is_image(image):
        raise ImageError(f"Image {index} is of the type {type(image).__name__}; {FORMS}.")
    held = image if isinstance(image, Image.Image | np.ndarray) else _encoded(image)
    return [LazyImage(f"image {index}", InMemory(held))]


def _is_image(given: object) -> bool:
    held = bytes | bytearray | memoryview | Image.Image | np.ndarray
    return hasattr(given, "read") or isinstance(given, str | os.PathLike | held)


def _encoded(image: Encodings) -> bytes:
    """Return the bytes of an encoded image; of an open file from its beginning.

    Raises:
        ImageError: the file cannot be read, or gives text.
    """
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    try:
        if image.seekable():
            image.seek(0)
        content = image.read()
    except (OSError, ValueError) as error:
        raise damaged(NAMED, error) from error
    if not isinstance(content, bytes):
        raise ImageError(f"The file gives {type(content).__name__} in place of bytes; open it in the mode 'rb'.")
    return content


@dataclass(frozen=True, eq=False)
class InMemory:
    """Gives the pixels of an image that the user passed."""

    image: bytes | Image.Image | np.ndarray

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
    if isinstance(image, Image.Image):
        return _of_pillow(image)
    return read_image(image if isinstance(image, str | Path) else _encoded(image), shrink=shrink)


def _of_pillow(image: Image.Image) -> Pixels:
    """Return the pixels of a PIL image, which may be decoded only now."""
    try:
        return to_rgb(image)
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise damaged(NAMED, error) from error
