"""What an image's header says, without decoding its pixels."""

import io
import warnings
from pathlib import Path

from PIL import Image

from vitral.errors import ImageError, one_line
from vitral.images.decode import ORIENTATION, UPRIGHT, formats
from vitral.paths import is_regular


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
                return image.size[::-1], _turn(image)
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise ImageError(f"{name} is damaged or no image ({one_line(error)[:120]}); replace or remove it.") from error


def _turn(image: Image.Image) -> int:
    try:
        turn = image.getexif().get(ORIENTATION, 1)
    except Exception:  # the pixels may be intact although the metadata is damaged
        return 1
    return turn if turn in UPRIGHT else 1
