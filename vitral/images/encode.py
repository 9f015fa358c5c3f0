"""Encode pixels as a file, in the format that its name says, and shrink them for pages that show many images."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vitral.errors import ImageError
from vitral.images.decode import Pixels

FORMATS_BY_SUFFIX = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
THUMBNAIL = 224  # pixels of the longer side
QUALITY = 92  # of a JPEG or WebP, without chroma subsampling, which would smear thin letters


def image_format(path: str | Path) -> str:
    """Return the format that a file's name asks for.

    Raises:
        ImageError: The name does not end in the suffix of a format that we write.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS_BY_SUFFIX:
        known = ", ".join(FORMATS_BY_SUFFIX)
        raise ImageError(f"'{path}' does not say which image format to write; let its name end in one of {known}.")
    return FORMATS_BY_SUFFIX[suffix]


def encode(pixels: Pixels, kind: str, *, comment: str = "") -> bytes:
    """Return pixels as a file's content.

    Args:
        pixels: The image.
        kind: The format: "PNG", "JPEG" or "WEBP".
        comment: A line of ASCII that is stored in the file with the image.

    Raises:
        ImageError: The format cannot hold an image of that size.
    """
    buffer = io.BytesIO()
    try:
        Image.fromarray(pixels).save(buffer, kind, **_options(kind, comment))
    except (OSError, ValueError) as error:  # a JPEG has at most 65,500 pixels a side, a WebP 16,383
        height, width = pixels.shape[:2]
        raise ImageError(f"A {kind} cannot hold {width}x{height} pixels; write a .png.") from error
    return buffer.getvalue()


def _options(kind: str, comment: str) -> dict[str, Any]:
    if kind == "PNG":
        text = PngInfo()
        text.add_text("Comment", comment)
        return {"pnginfo": text}
    if kind == "JPEG":
        return {"quality": QUALITY, "subsampling": 0, "comment": comment}
    return {"quality": QUALITY, "xmp": comment.encode("ascii")}


def thumbnail(pixels: Pixels) -> Pixels:
    """Return an image at most 224 pixels wide and high."""
    image = Image.fromarray(pixels)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return np.asarray(image)
