"""TIFF files: which of them are photos, and which have more than 8 bits a value.

Of several pages the first is read. Pillow turns a TIFF upright by itself as it decodes it, and OpenCV does, too.
"""

import io
import warnings

from PIL import Image

from vitral.images.depth import FULL

FORMAT = "TIFF"
EXTENSIONS = (".tif", ".tiff")
MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # little- and big-endian, of 32-bit and of 64-bit offsets
RAW = slice(8, 10)  # where Canon's raw files say that they are such
# Tags.
BITS = 258
PURPOSE = 254  # of which the lowest bit says that the image is a smaller one of another in the file
DNG_VERSION = 50706
MEANING = 262  # of the values
WHITE_IS_ZERO = 0


def fault(image: Image.Image) -> str:
    """Return why a TIFF that Pillow has opened is not read as what it is, in words that follow its name; empty if it is."""
    tags, file = getattr(image, "tag_v2", {}), getattr(image, "fp", None)
    if tags.get(MEANING) == WHITE_IS_ZERO and image.mode.startswith(("I", "F")):
        return "has more than 8 bits a value, of which 0 is white; save it so that 0 is black"
    if file is None:
        return ""
    position = file.tell()
    file.seek(0)
    start = file.read(RAW.stop)
    file.seek(position)
    is_raw = DNG_VERSION in tags or tags.get(PURPOSE, 0) & 1 or start[RAW] == b"CR"
    return "is a camera's raw file, of which only a preview could be read; save it as JPEG or PNG" if is_raw else ""


def has_deep_colours(image: Image.Image) -> bool:
    """Tell of a TIFF that Pillow has opened whether it has colours of 16 bits a value, which Pillow cuts to 8."""
    bits = getattr(image, "tag_v2", {}).get(BITS, ())
    return image.mode in ("RGB", "RGBA") and set(bits) == {FULL}


def is_deep_tiff(content: bytes) -> bool:
    """Tell whether an encoded image is a TIFF of more than 8 bits a value."""
    if not content.startswith(MAGIC):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged tags
            with Image.open(io.BytesIO(content), formats=(FORMAT,)) as image:
                return image.mode.startswith(("I", "F")) or has_deep_colours(image)
    except Exception:  # reported where it is read
        return False
