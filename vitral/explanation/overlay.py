"""Draw relevance over a picture: bright where the network looked (paper figure 6 and appendix D.8)."""

from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, UInt8
from PIL import Image, ImageFilter

from vitral.images.decode import Pixels

Style = Literal["paper", "heat"]

SMALLEST, LARGEST = 224, 1024  # pixels of the drawing's longer side
# From deep blue over violet and orange to pale yellow, rising in lightness, so that it reads without colour too.
HEAT = np.array([(18, 22, 64), (74, 32, 122), (160, 46, 116), (228, 88, 72), (250, 160, 60), (252, 242, 170)])
HEAT_BLUR = 0.5  # of a patch: enough to hide the grid


def overlay(
    image: Pixels, relevance: Float[np.ndarray, "rows columns"], *, style: Style = "paper"
) -> UInt8[np.ndarray, "drawn_height drawn_width 3"]:
    """Return the picture with the relevance drawn over it.

    "paper" darkens what matters little: the grid is divided by its maximum, enlarged by Lanczos to the picture, blurred
    by a Gaussian of one patch, stretched to the range 0 to 1, and multiplies the picture over black. "heat" is ours: it
    colours a pale grey picture and blurs half as much, so that both the place and the picture can be seen.

    The grid spans the picture whatever its shape, which undoes the squash to the network's square. Very small pictures
    are enlarged and very large ones made smaller for the drawing, their shape kept.

    Args:
        image: what the network saw, at any resolution.
        relevance: one value a patch, at least 0.
        style: "paper" or "heat".
    """
    photo = _drawing_size(Image.fromarray(image))
    pixels = np.asarray(photo, dtype=np.float32)
    if style == "paper":
        drawn = pixels * relevance_mask(relevance, photo.size, blur=1.0)[:, :, None]
    else:
        drawn = _heat(pixels, relevance_mask(relevance, photo.size, blur=HEAT_BLUR))
    return np.clip(np.rint(drawn), 0, 255).astype(np.uint8)


def relevance_mask(
    relevance: Float[np.ndarray, "rows columns"], size: tuple[int, int], *, blur: float
) -> Float32[np.ndarray, "height width"]:
    """Return a relevance grid as a smooth mask from 0 to 1; all ones where every patch matters alike.

    Args:
        relevance: one value a patch, at least 0.
        size: width and height of the mask, pixels.
        blur: standard deviation of the Gaussian, in patches.
    """
    rows, columns = relevance.shape
    peak = max(float(relevance.max()), np.finfo(np.float32).tiny)
    coarse = Image.fromarray(np.rint(relevance / peak * 255).astype(np.uint8))
    fine = coarse.resize(size, Image.Resampling.LANCZOS)
    fine = fine.filter(ImageFilter.GaussianBlur((blur * size[0] / columns, blur * size[1] / rows)))
    mask = np.asarray(fine, dtype=np.float32)
    low, high = float(mask.min()), float(mask.max())
    return (mask - low) / (high - low) if high > low else np.ones_like(mask)


def _heat(
    pixels: Float32[np.ndarray, "height width 3"], mask: Float32[np.ndarray, "height width"]
) -> Float32[np.ndarray, "height width 3"]:
    stops = np.linspace(0.0, 1.0, len(HEAT))
    colour = np.stack([np.interp(mask, stops, HEAT[:, channel]) for channel in range(3)], axis=-1)
    grey = pixels @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    # The colour carries the relevance; the grey keeps enough contrast for the picture to be recognised under it.
    return (0.55 * colour + 0.45 * grey[:, :, None]).astype(np.float32)


def _drawing_size(image: Image.Image) -> Image.Image:
    longest = max(image.size)
    factor = SMALLEST / longest if longest < SMALLEST else min(1.0, LARGEST / longest)
    if factor == 1.0:
        return image
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(size, Image.Resampling.NEAREST if factor > 2 else Image.Resampling.LANCZOS)
