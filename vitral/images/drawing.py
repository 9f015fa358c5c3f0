"""Drawings and their files: text in a font that has its letters, shortened to fit; sheets of many small images.

Pixels are encoded in the format that a file's name says, and shrunk for pages that show many images.
"""

import functools
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from vitral.errors import ImageError
from vitral.images.decode import Pixels

FORMATS_BY_SUFFIX = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
THUMBNAIL = 224  # pixels of the longer side
QUALITY = 92  # of a JPEG or WebP, without chroma subsampling, which would smear thin letters
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# Tried on the machine in this order where the built-in font lacks a letter.
FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "NotoSansCJK-Regular.ttc", "NotoNaskhArabic-Regular.ttf"),
    *("NotoSansHebrew-Regular.ttf", "NotoSansDevanagari-Regular.ttf", "Arial Unicode.ttf", "PingFang.ttc"),
    *("arial.ttf", "msyh.ttc", "msgothic.ttc", "malgun.ttf", "Nirmala.ttf"),
)
ABSENT = "\U0010fffe"  # no font has this character, so it is drawn as every missing letter is
CELL = 112  # pixels of an image's longer side
LABEL_HEIGHT = 18
LETTERS = 12  # pixels high
GAP = 8
BACKGROUND = (250, 249, 246)
INK = (60, 58, 54)


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


def thumbnail(pixels: Pixels, side: int = THUMBNAIL) -> Pixels:
    """Return an image at most `side` pixels wide and high."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side))
    return np.asarray(image)


def lettering(text: str, size: int) -> tuple[str, Font]:
    """Return a text on one line as it can be drawn, and the font for it.

    If no font on the machine has all letters, those that the built-in font lacks become question marks. The size is in pixels.
    """
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    built_in = ImageFont.load_default(size)
    if _has(built_in, line):
        return line, built_in
    for name in FONTS:
        font = _load_font(name, size)
        if font is not None and _has(font, line):
            return line, font
    return "".join(letter if _has(built_in, letter) else "?" for letter in line), built_in


def shorten(text: str, font: Font, *, width: float) -> str:
    """Shorten a text to fit into `width` pixels, with an ellipsis at its end; at least one letter stays."""
    if font.getlength(text) <= width:
        return text
    fits, too_long = 1, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if font.getlength(text[:middle].rstrip() + "…") <= width:
            fits = middle
        else:
            too_long = middle
    return text[:fits].rstrip() + "…"


def wrap(text: str, size: int, *, width: float) -> list[str]:
    """Break a text between words into lines of at most `width` pixels; a longer word has a line of its own."""
    line, font = lettering(text, size)
    lines: list[str] = []
    for word in line.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@functools.lru_cache(maxsize=256)
def _load_font(name: str, size: int) -> ImageFont.FreeTypeFont | None:
    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return None


def _has(font: Font, text: str) -> bool:
    absent = _drawn(font, ABSENT)
    return all(letter == " " or _drawn(font, letter) != absent for letter in set(text))


def _drawn(font: Font, letter: str) -> bytes:
    box = font.getbbox(letter)
    cell = Image.new("L", (max(1, int(box[2])), max(1, int(box[3]))))
    ImageDraw.Draw(cell).text((0, 0), letter, fill=255, font=font)
    return cell.tobytes()


def contact_sheet(images: Sequence[Pixels], labels: Sequence[str], *, columns: int = 8, cell: int = CELL) -> bytes:
    """Return a PNG of the images in rows, each over its label; small images are enlarged without smoothing.

    Args:
        images: The images.
        labels: The text below each.
        columns: The images in a row.
        cell: The longer side of each image on the sheet, pixels.
    """
    columns = min(columns, len(images))
    rows = math.ceil(len(images) / columns)
    width, height = columns * (cell + GAP) + GAP, rows * (cell + LABEL_HEIGHT + GAP) + GAP
    sheet = Image.new("RGB", (width, height), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        left = GAP + index % columns * (cell + GAP)
        top = GAP + index // columns * (cell + LABEL_HEIGHT + GAP)
        fitted = _fit(Image.fromarray(image), cell)
        sheet.paste(fitted, (left + (cell - fitted.width) // 2, top + (cell - fitted.height) // 2))
        line, font = lettering(label, LETTERS)
        text = shorten(line, font, width=cell)
        draw.text((left + cell // 2, top + cell + 2), text, fill=INK, font=font, anchor="ma")
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def _fit(image: Image.Image, cell: int) -> Image.Image:
    factor = cell / max(image.size)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(size, Image.Resampling.NEAREST if factor >= 2 else Image.Resampling.LANCZOS)
