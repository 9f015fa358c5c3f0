"""What an image's header says, without decoding its pixels."""

import io
import warnings
from pathlib import Path

from PIL import Image

from vitral.errors import ImageError, one_line
from vitral.images import tiff
from vitral.images.decode import ORIENTATION, SIDEWAYS, UPRIGHT, formats
from vitral.images.depth import FULL
from vitral.paths import is_regular

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
PNG_DEPTH = 24  # where a PNG's header has its bits a value


def stored_size(source: Path | bytes) -> tuple[tuple[int, int], int]:
    """Return an encoded image's height and width as it is stored, and the EXIF orientation to turn it by, 1 for none.

    Raises:
        ImageError: it is no image.
    """
    name = "The image" if isinstance(source, bytes) else f"'{source}'"
    if isinstance(source, Path) and not is_regular(source):
        raise ImageError(f"{name} is not there, or not a regular file.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata, and of large images
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=formats()) as image:
                turn = _turn(image)
                lies = image.format == tiff.FORMAT and turn in SIDEWAYS  # Pillow says how large it is upright
                return image.size if lies else image.size[::-1], turn
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise ImageError(f"{name} is damaged or no image ({one_line(error)[:120]}); replace or remove it.") from error


def is_deep(content: bytes) -> bool:
    """Tell whether an encoded image is a PNG or TIFF of 16 bits a value."""
    if content.startswith(PNG_MAGIC):
        return content[PNG_DEPTH : PNG_DEPTH + 1] == bytes([FULL])
    return tiff.is_deep_tiff(content)


def _turn(image: Image.Image) -> int:
    try:
        turn = image.getexif().get(ORIENTATION, 1)
    except Exception:  # the pixels may be intact although the metadata is damaged
        return 1
    return turn if turn in UPRIGHT else 1
