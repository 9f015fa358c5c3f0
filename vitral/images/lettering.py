"""Text in drawings: a font that has the letters of a name, and a name shortened to fit."""

import functools

from PIL import Image, ImageDraw, ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# Tried on the machine in this order where the built-in font lacks a letter.
FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "NotoSansCJK-Regular.ttc", "NotoNaskhArabic-Regular.ttf"),
    *("NotoSansHebrew-Regular.ttf", "NotoSansDevanagari-Regular.ttf", "Arial Unicode.ttf", "PingFang.ttc"),
    *("arial.ttf", "msyh.ttc", "msgothic.ttc", "malgun.ttf", "Nirmala.ttf"),
)
ABSENT = "\U0010fffe"  # a character that no font has: it is drawn as every missing letter is


def lettering(text: str, size: int) -> tuple[str, Font]:
    """Return a text on one line as it can be drawn, and the font for it.

    Where no font on the machine has all letters, those that the built-in one lacks become question marks.

    Args:
        text: in any script; control characters become spaces.
        size: of the letters, pixels.
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
    """Shorten a text to fit into `width` pixels, with an ellipsis at its end; at least one letter is kept."""
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
    """Break a text into lines of at most `width` pixels, between words; a longer word has a line of its own."""
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
