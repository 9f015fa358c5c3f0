"""From encoded bytes to RGB pixels: the content decides the format, and every failure is one line that names the file.

How much detail an image has is judged here, too, because the size of an enlarged image says little about it.
"""

import functools
import io
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import simplejpeg
from jaxtyping import UInt8, UInt16
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from vitral.advice import argument
from vitral.errors import ImageError, ImageTooLarge, UnknownFormat, one_line, refuse_shortage
from vitral.images import tiff
from vitral.images.depth import FULL, DeepPixels, colours_of, depth_of, values_of
from vitral.images.not_images import what_it_is
from vitral.paths import LIMIT, POINTER, is_pointer

Pixels = UInt8[np.ndarray, "height width 3"]
Encoded = str | Path | bytes | BinaryIO  # a path, the bytes, or an open file
# Takes an image's upright height and width; returns the factor by which a JPEG may be decoded smaller: 1, 2, 4 or 8.
Shrink = Callable[[int, int], int]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF", "PPM", tiff.FORMAT)
HEIF = "HEIF"  # the format that a package besides Pillow reads: an iPhone's photos
HEIC_EXTENSIONS = (".heic", ".heif", ".hif")
EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".avif", ".ppm", ".pgm", ".pbm", ".pnm"),
    *tiff.EXTENSIONS,
    *HEIC_EXTENSIONS,
)
HEIC_INSTALL = "pip install pi-heif"
MAX_PIXELS = 50_000_000
HALVED = 4  # times the limit up to which a JPEG is read, at half its height and width
# Scans of a JPEG at the limit of pixels. Every scan costs time for its whole part of the image, whatever it holds. It is about
# a second's work; a progressive photo has about 10 scans.
MAX_SCANS = 20
WHITE = (255, 255, 255)
JPEG_MAGIC = b"\xff\xd8\xff"
EXIF_MAGIC = b"Exif\x00\x00"
XMP_MAGIC = b"http://ns.adobe.com/xap/1.0/\x00"
# JPEG markers.
APP1 = 0xE1  # of metadata: EXIF, XMP
SCAN = 0xDA
END = 0xD9
FILL = 0xFF
SEQUENTIAL = (0xC0, 0xC1)  # of frames that are not progressive
STUFFING = (0x00, 0x01, FILL, *range(0xD0, 0xD8))  # may follow a 0xFF within a scan without beginning a segment
ORIENTATION = 0x0112  # the EXIF tag
# The array operation that each EXIF orientation requires; 1 requires none.
UPRIGHT: dict[object, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels.swapaxes(0, 1)[:, ::-1],
    7: lambda pixels: pixels.swapaxes(0, 1)[::-1, ::-1],
    8: lambda pixels: pixels.swapaxes(0, 1)[::-1],
}
SIDEWAYS = (5, 6, 7, 8)
LOST = 0.005  # share of the brightness' variance that may be lost in shrinking and enlarging again
ENLARGED = 1.5  # the least factor of enlargement that counts


class ReadsPixels(Protocol):
    """What reads a photo; `shrink` is that of `read_image`."""

    def __call__(self, *, shrink: Shrink | None = None) -> Pixels:
        """Return the photo as RGB pixels."""
        ...


def read_image(
    source: Encoded, *, max_pixels: int | None = None, shrink: Shrink | None = None, bits: int | None = None
) -> Pixels:
    """Read an image as RGB, the right way up.

    The content decides the format (JPEG, PNG, WebP, GIF, BMP, AVIF, PPM, TIFF or HEIC), never the extension. The orientation
    that EXIF states is applied, or else that of XMP, or that of AVIF and HEIC themselves; the first frame of an animation
    and the first page of a TIFF is used, transparency is composited over white, 16-bit values are scaled to 8 bits, and
    grey becomes three equal channels. Colour profiles are not applied, as in the reference pipelines.

    Args:
        source: A path, the encoded bytes, or an open binary file.
        max_pixels: The limit above which an image is refused before it takes memory; a JPEG of up to four times as many
            pixels is read at half its height and width. None for 50 million, or what VITRAL_MAX_PIXELS in the environment says.
        shrink: A function that gets height and width before a JPEG is decoded and returns the factor by which the
            decoder shrinks the image. This saves most of the work and changes pixels slightly. Other formats, and
            unusual JPEGs, ignore it.
        bits: The bits that 16-bit values use, the greatest of which is white; None for the least of 8, 10, 12, 14 and 16 that
            holds the image's own.

    Raises:
        ImageError: The source cannot be read as an image; the message names it and says why.
    """
    name = _name(source)
    max_pixels = pixel_limit() if max_pixels is None else max_pixels
    if (pixels := _read_plain_jpeg(source, max_pixels, shrink)) is not None:
        return pixels
    readable = formats()
    if max_pixels > MAX_PIXELS:
        Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit, which is lower than what was allowed
    try:
        with warnings.catch_warnings():
            # Pillow warns of damaged metadata, which does not matter, and of large images, which are refused below.
            warnings.simplefilter("ignore")
            with Image.open(_open(source, name), formats=readable) as image:
                return _decoded(image, name, max_pixels, shrink, bits)
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise _unknown(name, source) from error
    except OSError as error:
        if error.errno is None:  # raised by a decoder, about the file's content
            raise damaged(name, error) from error
        what = "no permission; allow reading it" if isinstance(error, PermissionError) else error.strerror
        raise ImageError(f"{name} cannot be read: {what}.") from error
    except Image.DecompressionBombError as error:
        raise ImageTooLarge(f"{name} is too large to decode; make it smaller.") from error
    except MemoryError as error:
        raise ImageError(f"{name} needs more memory to decode than there is; make it smaller.") from error
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise damaged(name, error) from error


def _decoded(image: ImageFile.ImageFile, name: str, max_pixels: int, shrink: Shrink | None, bits: int | None) -> Pixels:
    """Return the pixels of an image that Pillow has opened; see `read_image`."""
    _check_scans(image, name, max_pixels)
    width, height = image.size
    _fit(image, name, max_pixels)
    deep = _content(image) if _has_deep_colours(image) else None
    image.load()  # refuses what is cut short
    colours = None if deep is None else colours_of(deep)
    pixels = to_rgb(image, bits, name) if colours is None else _from_deep_colours(image, colours, bits)
    if shrink is not None and image.size != (width, height):  # what it returns, 2 here, is settled
        lies = pixels.shape[:2] != image.size[::-1]
        shrink(*((width, height) if lies else (height, width)))
    return pixels


def _read_plain_jpeg(source: Encoded, max_pixels: int, shrink: Shrink | None) -> Pixels | None:
    """Decode a colour JPEG without Pillow, to the same pixels in two thirds of the time.

    Returns:
        The pixels; None for whatever is unusual, damaged, too large or not a JPEG. Pillow gets those, so that errors are
        handled in one place.
    """
    try:
        data = _jpeg_bytes(source)
        if data is None:
            return None
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        pixels, limit = height * width, HALVED * max_pixels
        if colours != "YCbCr" or pixels > limit or _scanned(data, pixels) > MAX_SCANS * max_pixels:
            return None
        turn = UPRIGHT.get(orientation := _orientation(data))
        upright = (width, height) if orientation in SIDEWAYS else (height, width)
        factor = max(1 if shrink is None else shrink(*upright), 1 if pixels <= max_pixels else 2)
        least = {"min_height": -(-height // factor), "min_width": -(-width // factor), "min_factor": factor}
        decode = functools.partial(simplejpeg.decode_jpeg, **({} if factor == 1 else least))
        try:
            decoded = decode(data)
        except ValueError:  # all may be there but the end's marker, which programs on small cameras leave out
            if not _in_one_scan(data):
                raise
            decoded = decode(data + bytes([FILL, END]))
    except (OSError, ValueError, MemoryError):
        return None
    return decoded if turn is None else np.ascontiguousarray(turn(decoded))


@functools.cache
def formats() -> tuple[str, ...]:
    """Return the formats that are read: HEIF, too, if pi-heif is installed, which only decodes and turns photos upright."""
    if find_spec("pi_heif") is None:
        return FORMATS
    try:
        import pi_heif
    except ImportError as error:  # of its libraries, too: no fault of the image that is being read
        refuse_shortage(error, "to load what reads HEIC photos")
        return FORMATS
    pi_heif.register_heif_opener()
    return (*FORMATS, HEIF)


def lacks_reader(name: str) -> bool:
    """Tell whether a file has the name of a HEIC photo, and what reads these is not installed."""
    return name.lower().endswith(HEIC_EXTENSIONS) and HEIF not in formats()


def pixel_limit() -> int:
    """Return the pixels above which an image is refused, or raise ImageError if the environment states no such number."""
    stated = os.environ.get(LIMIT, "")
    if not stated:
        return MAX_PIXELS
    if not (stated.isascii() and stated.isdigit() and int(stated) > 0):
        raise ImageError(f"{LIMIT} is '{stated[:20]}'; it must be a number of pixels, such as {MAX_PIXELS}.")
    return int(stated)


def _jpeg_bytes(source: Encoded) -> bytes | None:
    if isinstance(source, bytes):
        return source if source.startswith(JPEG_MAGIC) else None
    if not isinstance(source, str | Path) or not stat.S_ISREG(os.stat(source).st_mode):
        return None
    with open(source, "rb") as file:
        start = file.read(len(JPEG_MAGIC))
        return start + file.read() if start == JPEG_MAGIC else None


def _orientation(data: bytes) -> object:
    """Return what Pillow finds stated as a JPEG's orientation, which may be anything; 1 where nothing is."""
    exif, xmp = b"", b""
    for marker, start in _segments(data):
        if marker == SCAN:
            break
        if marker == APP1 and data.startswith((EXIF_MAGIC, XMP_MAGIC), start):
            content = data[start : start - 2 + int.from_bytes(data[start - 2 : start], "big")]
            if content.startswith(XMP_MAGIC):
                xmp = content[len(XMP_MAGIC) :]
            else:  # what is too long for one segment goes on in the next
                exif += content[len(EXIF_MAGIC) :] if exif else content
    if not exif and not xmp:
        return 1
    try:
        stating = Image.Image()
        stating.info = {name: stated for name, stated in (("exif", exif), ("xmp", xmp)) if stated}
        return stating.getexif().get(ORIENTATION, 1)
    except Exception:  # the pixels may be intact although the metadata is damaged
        return 1


def to_rgb(image: Image.Image, bits: int | None = None, name: str = "The image") -> Pixels:
    """Return a PIL image of any mode as RGB pixels, upright and with transparency over white; `bits` as for `read_image`.

    Raises:
        ImageError: It has numbers of which nothing says what is black and what is white; the message begins with `name`.
    """
    image = _upright(image)
    if image.mode.startswith(("I", "F")):
        return DeepPixels.of(values_of(image, name), bits)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        with_alpha = image.convert("RGBA")
        image = Image.new("RGB", image.size, WHITE)
        image.paste(with_alpha, mask=with_alpha.getchannel("A"))
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _name(source: Encoded) -> str:
    if isinstance(source, str | Path):
        return f"'{source}'"
    return f"'{source.name}'" if isinstance(getattr(source, "name", None), str) else "The image"  # type: ignore[union-attr]


def _open(source: Encoded, name: str) -> str | BinaryIO:
    if isinstance(source, bytes):
        _refuse_empty(len(source), name)
        return io.BytesIO(source)
    if not isinstance(source, str | Path):
        return source
    try:
        status = os.stat(source)
    except (OSError, ValueError) as error:
        raise ImageError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if not stat.S_ISREG(status.st_mode):
        # Opening a pipe would wait forever for a writer.
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise ImageError(f"{name} is {kind}; give an image file.")
    _refuse_empty(status.st_size, name)
    return str(source)


def _refuse_empty(size: int, name: str) -> None:
    if size == 0:
        raise ImageError(f"{name} is empty (0 bytes); replace or remove it.")


def _fit(image: ImageFile.ImageFile, name: str, max_pixels: int) -> None:
    """Refuse an image of no pixels, of too many or of others; let a JPEG of not much too many be decoded at half its sides."""
    width, height = image.size
    if image.format == tiff.FORMAT and (fault := tiff.fault(image)):
        raise ImageError(f"{name} {fault}.")
    if min(width, height) < 1:
        raise ImageError(f"{name} has no pixels ({width}x{height}); replace or remove it.")
    if max_pixels < width * height <= HALVED * max_pixels and image.format in ("JPEG", "MPO"):
        image.draft(image.mode, (max(1, width // 2), max(1, height // 2)))
    elif width * height > max_pixels:
        raise ImageTooLarge(
            f"{name} has {width}x{height} pixels, more than the limit of {max_pixels:,}; make it smaller, or raise the limit "
            f"by {argument('max_pixels', width * height)} ({LIMIT} in the environment)."
        )


def _content(image: ImageFile.ImageFile) -> bytes:
    """Return the file of an image that is not decoded yet."""
    assert image.fp is not None
    position = image.fp.tell()
    image.fp.seek(0)
    data = image.fp.read()
    image.fp.seek(position)
    return data


def _check_scans(image: ImageFile.ImageFile, name: str, max_pixels: int) -> None:
    """Refuse a JPEG with so many scans that a small file would take long to decode."""
    pixels = image.width * image.height
    if image.format not in ("JPEG", "MPO") or image.fp is None or pixels > HALVED * max_pixels:
        return
    data = _content(image)
    if _scanned(data, pixels) > MAX_SCANS * max_pixels:
        raise ImageError(
            f"{name} has {count_scans(data):,} scans of {image.width}x{image.height} pixels, which take far too long to "
            "decode; save it again or remove it."
        )


def _has_deep_colours(image: ImageFile.ImageFile) -> bool:
    """Tell of an image that is not decoded yet whether it is a 16-bit PNG or TIFF that has more than grey."""
    if image.format == tiff.FORMAT:
        return tiff.has_deep_colours(image)
    if image.format != "PNG" or image.mode not in ("RGB", "RGBA", "LA") or "transparency" in image.info:
        return False
    return bool(image.tile) and str(image.tile[0].args).endswith(";16B")


def _from_deep_colours(
    image: ImageFile.ImageFile, colours: UInt16[np.ndarray, "height width 3"], bits: int | None
) -> Pixels:
    """Return the pixels of a decoded 16-bit image, upright; those that use all bits are cut to 8 as Pillow does."""
    if (bits or depth_of(colours)) == FULL:
        return to_rgb(image)
    try:
        turn = UPRIGHT.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # the pixels are intact although the metadata is damaged
        turn = None
    alpha = np.asarray(image.getchannel("A")) if "A" in image.getbands() else None
    if turn is not None:
        colours, alpha = turn(colours), None if alpha is None else turn(alpha)
    return DeepPixels.of(colours, bits, alpha)


def _scanned(data: bytes, pixels: int) -> int:
    """Return a JPEG's scans times pixels."""
    return pixels if _in_one_scan(data) else count_scans(data) * pixels


def _in_one_scan(data: bytes) -> bool:
    """Tell by its headers whether all components of a JPEG are in one scan, as they nearly always are."""
    components = 0
    for marker, start in _segments(data):
        if marker in SEQUENTIAL and start + 6 <= len(data):
            components = data[start + 5]
        elif marker == SCAN:
            return components > 0 and data[start : start + 1] == bytes([components])
    return False


def count_scans(data: bytes) -> int:
    """Return how many scans a JPEG has: usually one, in a progressive JPEG several."""
    return sum(marker == SCAN for marker, _ in _segments(data))


def _segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield each segment of a JPEG: its marker, and the offset of its content."""
    offset = 2
    while (offset := data.find(b"\xff", offset)) >= 0 and offset + 4 <= len(data):
        marker = data[offset + 1]
        if marker == END:
            return
        if marker in STUFFING:
            offset += 1 if marker == FILL else 2
            continue
        yield marker, offset + 4
        offset += 2 + int.from_bytes(data[offset + 2 : offset + 4], "big")


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # the pixels are intact although the metadata is damaged
        return image


def _unknown(name: str, source: Encoded) -> ImageError:
    if is_pointer(source):
        return UnknownFormat(f"{name} {POINTER}.")
    if known := what_it_is(source):
        return UnknownFormat(f"{name} is not a readable image: it is {known}.")
    if lacks_reader(name.rstrip("'")):
        return UnknownFormat(f"{name} is a HEIC photo, and its reader is not installed: {HEIC_INSTALL}")
    return UnknownFormat(f"{name} is not a readable image; the formats are {', '.join(formats())}.")


def damaged(name: str, error: Exception) -> ImageError:
    """Return the error for an image that a decoder refuses."""
    return ImageError(f"{name} is damaged or cut short ({one_line(error)[:120]}); replace or remove it.")


def detail_side(pixels: Pixels, sides: Sequence[int]) -> int | None:
    """Return the shorter side, in pixels, at which an image shows as much as at its own size.

    If the image is shrunk to that side and enlarged again, its brightness differs by less than a two-hundredth of its
    variance. For photographs that were enlarged by interpolation from 32 to 96 pixels this is the side that they were enlarged
    from, or its neighbour in the list. Photographs in their own size lose more at 160 pixels, and at 48 ten times as much.
    Radiographs, which are smooth, count as enlarged from 112 pixels. Enlargement by repeated pixels is not detected.

    Args:
        pixels: The image, uint8 (height, width, 3).
        sides: The sides to try, pixels, in rising order.

    Returns:
        The least side at which nothing is lost; None if something is lost at the largest side that is below two thirds of the
        image's own.
    """
    image = Image.fromarray(pixels).convert("L")
    most = 2 * max(sides)  # finer detail is lost at every side
    if min(image.size) > most:
        image = image.resize(_with_side(image, most), Image.Resampling.BICUBIC, reducing_gap=2.0)
    found = None
    for side in reversed(sides):  # most images lose something at the first side
        if ENLARGED * side <= min(image.size):
            if _lost(image, side) > LOST:
                break
            found = side
    return found


def _lost(image: Image.Image, side: int) -> float:
    """Return the share of the variance that a grey image loses if its shorter side is shrunk to `side`."""
    values = np.asarray(image, np.float32)
    shrunk = image.resize(_with_side(image, side), Image.Resampling.BICUBIC)
    again = np.asarray(shrunk.resize(image.size, Image.Resampling.BICUBIC), np.float32)
    difference = np.square(again - values).mean()
    return float(difference / values.var()) if difference else 0.0


def _with_side(image: Image.Image, side: int) -> tuple[int, int]:
    """Return width and height of an image with that shorter side."""
    scale = side / min(image.size)
    return max(side, round(scale * image.width)), max(side, round(scale * image.height))
