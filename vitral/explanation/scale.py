"""The colours of relevance: from deep blue over violet and orange to pale yellow, in steps that look equally large.

Lightness rises by equal steps in Oklab, a space made for equal differences to look equal, so that the order of the
colours holds for colour-blind eyes and in grey print, too.
"""

import functools

import numpy as np
from jaxtyping import Float64, UInt8

STEPS = 256
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


@functools.cache
def colour_scale() -> UInt8[np.ndarray, "256 3"]:
    """Return the scale as sRGB values, from no relevance to the largest."""
    position = np.linspace(0.0, 1.0, STEPS)
    lightness = LIGHTNESS[0] + (LIGHTNESS[1] - LIGHTNESS[0]) * position
    chroma = CHROMA * np.sin(np.pi * (0.12 + 0.76 * position)) ** 0.8
    hue = np.deg2rad(HUE[0] + (HUE[1] - HUE[0]) * position)
    return _srgb(np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=-1))


def _srgb(oklab: Float64[np.ndarray, "colours 3"]) -> UInt8[np.ndarray, "colours 3"]:
    linear = (oklab @ TO_CONES.T) ** 3 @ TO_RGB.T
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 0.0) ** (1 / 2.4) - 0.055)
    return np.rint(np.clip(curved, 0.0, 1.0) * 255).astype(np.uint8)
