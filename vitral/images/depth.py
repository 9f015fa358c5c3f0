"""Images of 16 bits a value as 8: how many of the 16 their values use decides what is white.

Cameras, microscopes and X-ray machines write 10, 12 or 14 bits into files of 16. Read as 16, such an image is almost black.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np
from jaxtyping import UInt8, UInt16
from PIL import Image

from vitral.errors import ImageError

DEPTHS = (8, 10, 12, 14, 16)  # bits that such images use
FULL = 16
WHITE = 255

Values = UInt16[np.ndarray, "height width *channels"]


class DeepPixels(np.ndarray):
    """RGB pixels of a 16-bit image, uint8 (height, width, 3), which can be made anew for another depth.

    A view or a copy of them is of plain pixels.

    Attributes:
        bits: The bits that white was taken to have.
        values: What the pixels were made from; None in a view or a copy.
        alpha: How opaque each pixel is, over white; None where all are.
    """

    bits: int = FULL
    values: Values | None = None
    alpha: UInt8[np.ndarray, "height width"] | None = None

    @classmethod
    def of(cls, values: Values, bits: int | None, alpha: UInt8[np.ndarray, "height width"] | None = None) -> Self:
        """Return the pixels of upright grey or RGB values; without `bits` by the least depth that holds them all."""
        bits = bits or depth_of(values)
        most = (1 << bits) - 1
        colours = (np.minimum(values, most).astype(np.uint32) * WHITE // most).astype(np.uint8)
        if colours.ndim == 2:
            colours = np.repeat(colours[..., None], 3, axis=2)
        if alpha is not None:
            opaque = Image.fromarray(np.ascontiguousarray(colours))
            white = Image.new("RGB", opaque.size, (WHITE,) * 3)
            white.paste(opaque, mask=Image.fromarray(np.ascontiguousarray(alpha)))
            colours = np.array(white)
        pixels = colours.view(cls)
        pixels.bits, pixels.values, pixels.alpha = bits, values, alpha
        return pixels


def depth_of(values: Values) -> int:
    """Return the least of `DEPTHS` that holds all values."""
    return next(bits for bits in DEPTHS if int(values.max(initial=0)) < 1 << bits)


def values_of(image: Image.Image, name: str) -> UInt16[np.ndarray, "height width"]:
    """Return the values of a grey image of integers of more than 8 bits, or of fractions, as whole numbers.

    Raises:
        ImageError: They are no levels from black to white: below 0, above those of 16 bits, or none above 1.
    """
    values = np.asarray(image)
    least, most = values.min(), values.max()
    of_shares = image.mode == "F" and 0 < most <= 1
    if of_shares or not (least >= 0 and most < 1 << FULL):  # NaN is refused, too
        raise ImageError(
            f"{name} has numbers from {least:.6g} to {most:.6g}, of which nothing says what is black and what is white; give "
            "it with 8 bits a value, or with 16."
        )
    return values.astype(np.uint16)


def read_bits(preprocessing: object) -> int | None:
    """Return the bits that a written preprocessing states; earlier versions took all 16-bit images to use 16.

    Raises:
        ValueError: It states no such number.
    """
    bits = preprocessing.get("bits", FULL) if isinstance(preprocessing, Mapping) else preprocessing
    if bits is None or (isinstance(bits, int) and bits in DEPTHS):
        return bits
    raise ValueError(f"bits are one of {', '.join(map(str, DEPTHS))}, not {str(bits)[:20]}")


def at_depth(pixels: UInt8[np.ndarray, "height width 3"], bits: int | None) -> UInt8[np.ndarray, "height width 3"]:
    """Return pixels as they are where white has so many bits; only a 16-bit image's change, and none without `bits`."""
    if bits is None or not isinstance(pixels, DeepPixels) or pixels.values is None or pixels.bits == bits:
        return pixels
    return DeepPixels.of(pixels.values, bits, pixels.alpha)


def colours_of(content: bytes) -> UInt16[np.ndarray, "height width 3"] | None:
    """Return the red, green and blue of a 16-bit PNG as they are stored, which Pillow cuts to 8 bits; None if it has none.

    Those of a TIFF come upright.
    """
    import cv2  # which few images need

    values = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)
    if values is None or values.dtype != np.uint16 or values.ndim != 3:
        return None
    return np.ascontiguousarray(values[..., 2::-1])
