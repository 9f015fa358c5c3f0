"""Draw relevance over an image: a grid of numbers as a smooth map in the colours of the scale.

The colours go from deep blue over violet and orange to pale yellow. Lightness rises by equal steps in Oklab, a space made
for equal differences to look equal, so that the order of the colours holds for colour-blind eyes and in grey print, too.
"""

import functools
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float, Float32, Float64, UInt8
from PIL import Image, ImageOps

from vitral.images.decode import Pixels

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

    Args:
        image: What the network saw, at any resolution.
        relevance: One value a patch, at least 0.
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
