"""Image operations of big_vision's pp/autoaugment.py, a fork of EfficientNet's for TPUs.

They give the bits of TensorFlow 2.15: nearest neighbours, truncated fractions, bytes that overflow (big_vision's issue 110).
Every operation takes pixels (height, width, 3) and a value in the operation's own unit; those that need no value ignore it.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import cv2
import numpy as np
from jaxtyping import Float32
from PIL import Image, ImageOps

from vitral.images.decode import Pixels
from vitral.images.geometry import MATRICES, Affine, Steps

Operation = Callable[[Pixels, float], Pixels]
Number = float | np.float32
Weights = tuple[Number, Number, Number]  # of x, y and 1
Values = Float32[np.ndarray, "..."]

GREY = 128  # the colour beyond the edge, and of what is cut out
GREY_SHARES = (0.2989, 0.5870, 0.1140)  # of red, green and blue, in tf.image.rgb_to_grayscale
VALUES = np.arange(256, dtype=np.float32)


def autocontrast(image: Pixels, value: float) -> Pixels:
    """Stretch each channel over the whole range."""
    tables = [VALUES] * 3
    for channel, plane in enumerate(cv2.split(image)):
        low, high = np.float32(plane.min()), np.float32(plane.max())
        if high > low:
            scale = np.float32(255) / (high - low)
            tables[channel] = VALUES * scale + -low * scale
    return cv2.LUT(image, _bytes(np.stack(tables, axis=-1)[None]))


def equalize(image: Pixels, value: float) -> Pixels:
    """Make each channel's values equally frequent, by Pillow's rule."""
    return np.asarray(ImageOps.equalize(Image.fromarray(image)))


def invert(image: Pixels, value: float) -> Pixels:
    """Turn an image into its negative."""
    return 255 - image


def rotate(image: Pixels, degrees: float) -> Pixels:
    """Turn an image counterclockwise about its middle."""
    return _transform(image, *_rotation(degrees, image.shape[:2]))


def _rotation(degrees: float, size: tuple[int, int]) -> tuple[Weights, Weights]:
    bottom, end = (np.float32(side - 1) for side in size)
    radians = np.float32(math.radians(degrees))
    cosine, sine = np.cos(radians), np.sin(radians)
    right = (end - (cosine * end - sine * bottom)) / 2
    down = (bottom - (sine * end + cosine * bottom)) / 2
    return (cosine, -sine, right), (sine, cosine, down)


def posterize(image: Pixels, bits: float) -> Pixels:
    """Keep the highest bits of each value; for 0 bits, or more than 8, one bit remains.

    TensorFlow shifts a byte by at most 7, and the shift itself is a byte too, so that -1 is 255.
    """
    shift = min((8 - int(bits)) % 256, 7)
    return image & np.uint8((0xFF >> shift) << shift)


def solarize(image: Pixels, threshold: float) -> Pixels:
    """Turn the values from a threshold on into their negative; the threshold becomes a byte, so that 256 is 0."""
    lowest = int(threshold) % 256
    return _by_value(image, np.concatenate([VALUES[:lowest], 255 - VALUES[lowest:]]))


def solarize_add(image: Pixels, addition: float) -> Pixels:
    """Brighten the darker half of the values."""
    return _by_value(image, np.where(VALUES < 128, VALUES + int(addition), VALUES))


def color(image: Pixels, factor: float) -> Pixels:
    """Blend an image with its grey version; a factor of 0 gives only that."""
    return _blend(_grey(image)[..., None], image, factor)


def contrast(image: Pixels, factor: float) -> Pixels:
    """Blend an image with a grey: because of a bug in the source not the mean, but the number of pixels over 256."""
    grey = min(image.shape[0] * image.shape[1] / 256, 255)
    return _by_value(image, _blended(np.asarray(int(grey), np.float32), VALUES, factor))


def brightness(image: Pixels, factor: float) -> Pixels:
    """Blend an image with black; a factor of 0 gives only that."""
    return _by_value(image, _blended(np.zeros_like(VALUES), VALUES, factor))


def sharpness(image: Pixels, factor: float) -> Pixels:
    """Blend an image with its smoothed version; a factor of 0 gives that, with the border unchanged."""
    smooth = image.copy()
    if min(image.shape[:2]) > 2:
        smooth[1:-1, 1:-1] = _smooth(image.astype(np.float32))[1:-1, 1:-1]
    return _blend(smooth, image, factor)


def _moved(name: str, image: Pixels, value: float) -> Pixels:
    """Shear an image or move it; for a value above 0 rows go to the left, columns upwards."""
    matrix = MATRICES[name](value)
    return _transform(image, matrix[:3], matrix[3:])


def steps_of(name: str, value: float, size: tuple[int, int]) -> Steps:
    """Return the steps by which a named operation moves the pixels of an image of (height, width); none if it moves none."""
    if name == "Rotate":
        column, row = _rotation(value, size)
        return (Affine.of_indices([*map(float, column), *map(float, row)]),)
    return (Affine.of_indices(MATRICES[name](value)),) if name in MATRICES else ()


def cutout(image: Pixels, half: int, row: int, column: int) -> Pixels:
    """Draw a grey square, twice `half` pixels a side, centred on a pixel and clipped at the edges."""
    image = image.copy()
    image[max(row - half, 0) : row + half, max(column - half, 0) : column + half] = GREY
    return image


def _bytes(values: Values) -> Pixels:
    return np.clip(values, 0, 255).astype(np.uint8)


def _by_value(image: Pixels, values: Values) -> Pixels:
    return cv2.LUT(image, _bytes(values))


def _blended(start: Values, end: Values, factor: float) -> Values:
    return start + np.float32(factor) * (end - start)


def _blend(start: Pixels, end: Pixels, factor: float) -> Pixels:
    """Interpolate between images, from `start` at a factor of 0 to `end` at 1, or extrapolate beyond them."""
    if factor == 1:
        return end
    return _bytes(_blended(start.astype(np.float32), end.astype(np.float32), factor))


def _grey(image: Pixels) -> Pixels:
    shares = (VALUES * np.float32(1 / 255) * np.float32(share) for share in GREY_SHARES)
    red, green, blue = (share[image[..., channel]] for channel, share in enumerate(shares))
    return ((red + green + blue) * np.float32(255.5)).astype(np.uint8)


def _smooth(image: Values) -> Pixels:
    kernel = np.ones((3, 3), dtype=np.float32)
    kernel[1, 1] = 5
    return _bytes(cv2.filter2D(image, cv2.CV_32F, kernel / np.float32(13)))


def _transform(image: Pixels, column: Weights, row: Weights) -> Pixels:
    """Return the image whose pixel (x, y) is the given image's nearest pixel to (column · (x, y, 1), row · (x, y, 1))."""
    height, width = image.shape[:2]
    x, y = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]

    def nearest(weights: Weights) -> Values:
        across, along, shift = (np.float32(weight) for weight in weights)
        position = across * x + along * y + shift
        return np.trunc(position + np.copysign(np.float32(0.5), position))  # halves away from 0, as in C

    return cv2.remap(
        image, nearest(column), nearest(row), cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT, borderValue=(GREY,) * 3
    )


OPERATIONS: Mapping[str, Operation] = {
    "AutoContrast": autocontrast,
    "Equalize": equalize,
    "Invert": invert,
    "Rotate": rotate,
    "Posterize": posterize,
    "Solarize": solarize,
    "SolarizeAdd": solarize_add,
    "Color": color,
    "Contrast": contrast,
    "Brightness": brightness,
    "Sharpness": sharpness,
    **{name: partial(_moved, name) for name in MATRICES},
}
