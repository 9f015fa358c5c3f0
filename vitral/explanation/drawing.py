"""An explanation as one image to show: the photo, the map drawn over it, what the classifier said, and what the colours mean.

A map is a grid of numbers, drawn smooth in the colours of the scale. These go from deep blue over violet and orange to pale
yellow. Lightness rises by equal steps in Oklab, a space made for equal differences to look equal, so that the order of the
colours holds for colour-blind eyes and in grey print, too.
"""

import functools
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from jaxtyping import Float, Float32, Float64, UInt8
from PIL import Image, ImageDraw, ImageOps

from vitral.images.decode import Pixels
from vitral.images.drawing import lettering, shorten, wrap

SMALLEST = 224  # pixels of a drawing's longer side
LARGEST = 1024  # likewise
FIELD = 256  # pixels of a field's longer side: enough for the finest grid, and quick to blur
BLUR = 0.4  # of a patch: enough to hide the grid
COLOUR = 0.55  # share of the colour in the overlay; the image keeps the rest
EVEN = 0.05  # of the mean: relevances that differ by less are alike, whose colours would make up a difference
SHADES = 256
LIGHTNESS = (0.22, 0.94)
HUE = (280.0, 465.0)  # degrees
CHROMA = 0.17  # at the middle; at the ends no colour of a screen is both that dark or light and that full

# From Oklab to the cube roots of cone responses, and from those to linear red, green and blue
# (bottosson.github.io/posts/oklab).
TO_CONES = np.array(
    [
        (1.0, 0.3963377774, 0.2158037573),
        (1.0, -0.1055613458, -0.0638541728),
        (1.0, -0.0894841775, -1.2914855480),
    ]
)
TO_RGB = np.array(
    [
        (4.0767416621, -3.3077115913, 0.2309699292),
        (-1.2684380046, 2.6097574011, -0.3413193965),
        (-0.0041960863, -0.7034186147, 1.7076147010),
    ]
)
Style = Literal["side", "overlay", "heat"]
Box = tuple[int, int, int, int]
Point = tuple[float, float]
Colour = tuple[int, int, int]

PAPER = (255, 255, 255)
INK = (34, 37, 43)
MUTED = (102, 106, 115)
WARNING = (176, 58, 36)
UNSEEN = 0.75  # how far what the network did not see fades into the paper
SMALLEST_TEXT = 15  # pixels
LARGEST_TEXT = 96  # pixels
NARROWEST = 17  # width of the drawing, in letters' heights
LEGEND = 15  # width of the legend, likewise
LINE = 1.35  # in letters' heights


@dataclass(frozen=True, eq=False)
class Field:
    """Relevance as a smooth field.

    Attributes:
        values: Relevance from 0, where it is least, to 1, where it is most; all 1 where all parts matter alike, all 0 where
            none does.
        lowest: Relevance where `values` is 0, in multiples of the mean relevance.
        highest: Relevance where `values` is 1, likewise; equal to `lowest` where all parts matter alike.
    """

    values: Float32[np.ndarray, "height width"]
    lowest: float
    highest: float


def relevance_field(relevance: Float[np.ndarray, "rows columns"], *, shape: float) -> Field:
    """Return a relevance grid as a smooth field.

    Args:
        relevance: One value a patch, at least 0.
        shape: Width divided by height of the image that the grid spans.
    """
    rows, columns = relevance.shape
    size = (FIELD, max(1, round(FIELD / shape))) if shape >= 1 else (max(1, round(FIELD * shape)), FIELD)
    mean = float(relevance.mean())
    if mean <= 0:
        return Field(np.zeros(size[::-1], dtype=np.float32), 0.0, 0.0)
    coarse = Image.fromarray((relevance / mean).astype(np.float32))
    fine = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC))
    fine = cv2.GaussianBlur(
        fine, (0, 0), sigmaX=BLUR * size[0] / columns, sigmaY=BLUR * size[1] / rows, borderType=cv2.BORDER_REPLICATE
    )
    fine = np.maximum(fine, 0.0)  # bicubic interpolation swings below
    low, high = float(fine.min()), float(fine.max())
    if high - low < EVEN:
        return Field(np.ones_like(fine), 1.0, 1.0)
    return Field((fine - low) / (high - low), low, high)


def heat(field: Field, size: tuple[int, int]) -> Image.Image:
    """Return a field in the colours of the scale, `size` its width and height."""
    indices = Image.fromarray(np.rint(field.values * 255).astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)
    indices.putpalette(colour_scale().tobytes())
    return indices.convert("RGB")


def laid_over(photo: Image.Image, field: Field) -> Image.Image:
    """Return a field over a grey image; a dark image is made lighter, so that both can be seen."""
    grey = ImageOps.autocontrast(ImageOps.grayscale(photo), cutoff=1).convert("RGB")
    return Image.blend(grey, heat(field, photo.size), COLOUR)


def overlay(
    image: Pixels, relevance: Float[np.ndarray, "rows columns"]
) -> UInt8[np.ndarray, "drawn_height drawn_width 3"]:
    """Return the image with the relevance drawn over it, the longer side between 224 and 1,024 pixels.

    The grid spans the image whatever its shape, which undoes the squash to the network's square.
    """
    photo = enlarged(Image.fromarray(image))
    photo.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    return np.asarray(laid_over(photo, relevance_field(relevance, shape=photo.width / photo.height)))


def enlarged(photo: Image.Image) -> Image.Image:
    """Return an image too small to be looked at several times as large, its pixels as squares; others as they are."""
    factor = -(-SMALLEST // max(photo.size))
    if factor == 1:
        return photo.copy()
    return photo.resize((photo.width * factor, photo.height * factor), Image.Resampling.NEAREST)


@functools.cache
def colour_scale() -> UInt8[np.ndarray, "256 3"]:
    """Return the scale as sRGB values, from no relevance to the largest."""
    position = np.linspace(0.0, 1.0, SHADES)
    lightness = LIGHTNESS[0] + (LIGHTNESS[1] - LIGHTNESS[0]) * position
    chroma = CHROMA * np.sin(np.pi * (0.12 + 0.76 * position)) ** 0.8
    hue = np.deg2rad(HUE[0] + (HUE[1] - HUE[0]) * position)
    return _srgb(np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=-1))


def _srgb(oklab: Float64[np.ndarray, "colours 3"]) -> UInt8[np.ndarray, "colours 3"]:
    linear = (oklab @ TO_CONES.T) ** 3 @ TO_RGB.T
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 0.0) ** (1 / 2.4) - 0.055)
    return np.rint(np.clip(curved, 0.0, 1.0) * 255).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Content:
    """What a drawing shows: fields of an `Explanation`, with what follows from them.

    Attributes:
        method: What gave the relevance, and of what part of the network.
        answer: The class that the classifier says instead, and its probability; None if that is `label`.
        nearest: Images with their labels and how alike they are, -1 to 1, the nearest first.
    """

    photo: Pixels
    box: Box
    relevance: Float[np.ndarray, "rows columns"]
    label: str
    probability: float
    method: str
    warning: str = ""
    answer: tuple[str, float] | None = None
    nearest: tuple[tuple[Pixels, str, float], ...] = ()
    nearest_of: str = "training images"


def draw(content: Content, style: Style) -> Pixels:
    """Draw at the photo's own size, a small one several times as large."""
    field = relevance_field(content.relevance, shape=content.box[3] / content.box[2])
    photo = enlarged(Image.fromarray(content.photo))
    panels = {
        "side": lambda: [photo, _mapped(content, photo, field)],
        "overlay": lambda: [_mapped(content, photo, field)],
        "heat": lambda: [_mapped(content, photo, field, alone=True)],
    }[style]()
    foot = _Foot(content, field, panels)
    text, height = foot.text, foot.height
    strip = _Strip(content, foot.width, text)
    drawing = Image.new("RGB", (foot.width, photo.height + text + height + strip.height), PAPER)
    left = (foot.width - sum(panel.width for panel in panels) - (len(panels) - 1) * text) // 2
    for panel in panels:
        drawing.paste(panel, (left, text))
        left += panel.width + text
    foot.draw(ImageDraw.Draw(drawing), top=photo.height + text)
    strip.draw(drawing, top=photo.height + text + height)
    return np.asarray(drawing)


def _mapped(content: Content, photo: Image.Image, field: Field, *, alone: bool = False) -> Image.Image:
    """Return the photo with the map over the part that the network saw, the rest faded."""
    factor = photo.height // content.photo.shape[0]
    top, left, height, width = (side * factor for side in content.box)
    seen = photo.crop((left, top, left + width, top + height))
    paper = Image.new("RGB", photo.size, PAPER)
    mapped = paper if alone else Image.blend(photo, paper, UNSEEN)
    mapped.paste(heat(field, seen.size) if alone else laid_over(seen, field), (left, top))
    return mapped


class _Foot:
    """What stands below the panels: the answer, or the map's class and the answer; the scale beside or below; a warning."""

    def __init__(self, content: Content, field: Field, panels: list[Image.Image]) -> None:
        width, height = sum(panel.width for panel in panels), panels[0].height
        # Letters that can be read where the drawing is shown as large as a page.
        self.text = text = min(max(round(min(width, 1.6 * height) / 36), SMALLEST_TEXT), LARGEST_TEXT)
        self.width = max(width + (len(panels) + 1) * text, NARROWEST * text)
        self.content, self.field = content, field
        self.beside = self.width >= 2.2 * LEGEND * text
        self.warning = wrap(content.warning, text, width=self.width - 2 * text)
        self.line = LINE * text
        self.rows = [("", content.label, content.probability)]
        if content.answer is not None:
            self.rows = [("map of", content.label, content.probability), ("answer", *content.answer)]
        self.more = (len(self.rows) - 1) * 1.6 * self.line  # below the first row
        self.height = round(self.more + (3.1 if self.beside else 5.4) * self.line + len(self.warning) * self.line)

    def draw(self, draw: ImageDraw.ImageDraw, *, top: int) -> None:
        """Draw it from `top` on."""
        text, line, y = self.text, self.line, top + 0.7 * self.text
        for number, (words, label, probability) in enumerate(self.rows):
            self._draw_class(draw, y + 1.6 * line * number, words, label, probability)
        legend = (self.width - (LEGEND + 1) * text, y) if self.beside else (text, y + 2.6 * line + self.more)
        self._draw_legend(draw, legend)
        y += self.more
        _write(draw, f"method: {self.content.method}", (text, y + 1.35 * line), text, self._room(), MUTED)
        for number, note in enumerate(self.warning):
            below = y + (2.3 if self.beside else 4.6) * line + number * line
            _write(draw, note, (text, below), text, self.width, WARNING)

    def _room(self) -> float:
        return self.width - 2 * self.text - (LEGEND + 2) * self.text * self.beside

    def _draw_class(self, draw: ImageDraw.ImageDraw, y: float, words: str, label: str, probability: float) -> None:
        """Write what a class is, its label, cut if it must be, and its probability, which is never cut."""
        size, room = round(1.3 * self.text), self._room()
        percent = f"{probability:.1%}"
        taken = lettering(percent, size)[1].getlength(percent) + size / 2
        start: float = self.text
        if words:
            start = _write(draw, words, (start, y), size, room, MUTED) + size / 2
        end = _write(draw, label, (start, y), size, room - taken - (start - self.text), INK)
        _write(draw, percent, (end + size / 2, y), size, taken, INK)

    def _draw_legend(self, draw: ImageDraw.ImageDraw, corner: Point) -> None:
        """Draw the scale, and below it what its ends stand for."""
        left, top = round(corner[0]), round(corner[1])
        text, width, height = self.text, LEGEND * self.text, round(0.9 * self.text)
        if self.field.highest <= self.field.lowest:
            note = "all parts count alike" if self.field.highest else "nothing speaks for it"
            _write(draw, note, (left, top), text, width, MUTED)
            return
        colours = colour_scale()
        for column in range(width):
            red, green, blue = colours[column * (len(colours) - 1) // (width - 1)].tolist()
            draw.line((left + column, top, left + column, top + height - 1), fill=(red, green, blue))
        below = top + 1.2 * text
        digits = 1 if self.field.highest - self.field.lowest >= 1 else 2
        _write(draw, f"{self.field.lowest:.{digits}f}", (left, below), text, width / 3, INK)
        _write(draw, "times the mean", (left + width / 2, below), text, width / 2, MUTED, anchor="ma")
        _write(draw, f"{self.field.highest:.{digits}f}", (left + width, below), text, width / 3, INK, anchor="ra")


class _Strip:
    """The nearest images in a row below everything else; of no height where there are none."""

    def __init__(self, content: Content, width: int, text: int) -> None:
        self.nearest, self.of, self.text = content.nearest, content.nearest_of, text
        count = max(len(self.nearest), 1)
        self.side = max((width - (count + 1) * text) // count, 1)
        self.height = round(self.side + 5.4 * LINE * text) if self.nearest else 0

    def draw(self, drawing: Image.Image, *, top: int) -> None:
        """Draw it from `top` on."""
        if not self.nearest:
            return
        text, line, draw = self.text, LINE * self.text, ImageDraw.Draw(drawing)
        _write(
            draw,
            f"nearest {self.of}, and how alike their features are",
            (text, top + 0.5 * line),
            text,
            drawing.width - 2 * text,
            MUTED,
        )
        for index, (pixels, label, similarity) in enumerate(self.nearest):
            left, row = text + index * (self.side + text), round(top + 1.8 * line)
            image = ImageOps.contain(
                enlarged(Image.fromarray(pixels)), (self.side, self.side), Image.Resampling.LANCZOS
            )
            drawing.paste(image, (left + (self.side - image.width) // 2, row + (self.side - image.height) // 2))
            _write(draw, label, (left, row + self.side + 0.3 * line), text, self.side, INK)
            _write(draw, f"{similarity:.3f}", (left, row + self.side + 1.4 * line), text, self.side, MUTED)


def _write(
    draw: ImageDraw.ImageDraw, text: str, corner: Point, size: int, room: float, colour: Colour, *, anchor: str = "la"
) -> float:
    """Write a text, cut to its room, and return where it ends if it begins at `corner`."""
    line, font = lettering(text, size)
    line = shorten(line, font, width=room)
    draw.text(corner, line, fill=colour, font=font, anchor=anchor)
    return corner[0] + font.getlength(line)
