"""Image operations by Pillow, bit-identical to those of timm's and torchvision's pipelines on Pillow images, except one blur.

Every operation takes the image, a value in the operation's own unit and a `Canvas`; those that need no value ignore it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vitral.images.geometry import MATRICES, Affine, Steps

Colour = tuple[int, int, int]
HALF = 128  # brightness from which an image is solarised
BLUR_SIDE = 7  # pixels of the window of a Gaussian that is cut off


@dataclass(frozen=True)
class Canvas:
    """What stands beyond the edge where pixels move, red, green, blue, 0 to 255, and the interpolation between pixels."""

    fill: Colour
    resample: Image.Resampling


Change = Callable[[Image.Image], Image.Image]
Enhance = Callable[[Image.Image], ImageEnhance._Enhance]
Operation = Callable[[Image.Image, float, Canvas], Image.Image]


def _always(change: Change, image: Image.Image, value: float, canvas: Canvas) -> Image.Image:
    """Change an image by what needs no value."""
    return change(image)


def _enhanced(kind: Enhance, image: Image.Image, factor: float, canvas: Canvas) -> Image.Image:
    """Blend an image with its grey version, its mean grey, black or its smoothed version; a factor of 0 gives only that."""
    return kind(image).enhance(factor)


def _moved(name: str, image: Image.Image, value: float, canvas: Canvas) -> Image.Image:
    """Shear an image or move it; for a value above 0 rows go to the left, columns upwards."""
    matrix = MATRICES[name](value)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, canvas.resample, fillcolor=canvas.fill)


def rotate(image: Image.Image, degrees: float, canvas: Canvas) -> Image.Image:
    """Turn an image counterclockwise about its middle."""
    return image.rotate(degrees, resample=canvas.resample, fillcolor=canvas.fill)


def posterize(image: Image.Image, bits: float, canvas: Canvas) -> Image.Image:
    """Keep the highest bits, 0 to 8, of each value; 0 bits give black, which Pillow used to allow."""
    return image.point([value >> 8 - int(bits) << 8 - int(bits) for value in range(256)] * 3)


def solarize(image: Image.Image, threshold: float, canvas: Canvas) -> Image.Image:
    """Turn the values from a threshold on, 0 to 256, into their negative."""
    return ImageOps.solarize(image, threshold)  # type: ignore[arg-type]  # a float is compared like an integer


def solarize_add(image: Image.Image, addition: float, canvas: Canvas) -> Image.Image:
    """Brighten the darker half of the values."""
    table = [min(255, value + int(addition)) if value < HALF else value for value in range(256)]
    return image.point(table * 3)


def steps_of(name: str, value: float, size: tuple[int, int]) -> Steps:
    """Return the steps by which a named operation moves the pixels of an image of (width, height); none if it moves none.

    Pillow counts from the edges of pixels, and an affine map goes from the new place to the old place.
    """
    if name == "Rotate":
        return (_rotation(value, *size),)
    return (Affine(MATRICES[name](value)),) if name in MATRICES else ()


def _rotation(degrees: float, width: int, height: int) -> Affine:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = width / 2, height / 2
    return Affine((cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y))


def grey(image: Image.Image) -> Image.Image:
    """Remove the colour."""
    return image.convert("L").convert("RGB")


def blur(image: Image.Image, radius: float) -> Image.Image:
    """Blur an image by Pillow's approximation of a Gaussian of that standard deviation, pixels."""
    return image.filter(ImageFilter.GaussianBlur(radius))


def hue(image: Image.Image, shift: float) -> Image.Image:
    """Turn the hue by a share of the circle, -0.5 to 0.5, as torchvision's `adjust_hue` of a Pillow image."""
    tone, saturation, value = image.convert("HSV").split()
    turned = np.asarray(tone) + np.int32(shift * 255).astype(np.uint8)  # wraps around
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def gaussian_blur(image: Image.Image, sigma: float) -> Image.Image:
    """Blur an image by a Gaussian of that standard deviation, pixels, cut to 7 x 7, the image mirrored beyond its edge.

    As torchvision's `gaussian_blur`: computed in float32, and rounded.
    """
    exact = np.asarray(image, dtype=np.float32)
    blurred = cv2.GaussianBlur(exact, (BLUR_SIDE, BLUR_SIDE), sigma, borderType=cv2.BORDER_REFLECT_101)
    return Image.fromarray(np.rint(blurred).astype(np.uint8))


OPERATIONS: Mapping[str, Operation] = {
    "AutoContrast": partial(_always, ImageOps.autocontrast),
    "Equalize": partial(_always, ImageOps.equalize),
    "Invert": partial(_always, ImageOps.invert),
    "Rotate": rotate,
    "Posterize": posterize,
    "Solarize": solarize,
    "SolarizeAdd": solarize_add,
    "Color": partial(_enhanced, ImageEnhance.Color),
    "Contrast": partial(_enhanced, ImageEnhance.Contrast),
    "Brightness": partial(_enhanced, ImageEnhance.Brightness),
    "Sharpness": partial(_enhanced, ImageEnhance.Sharpness),
    **{name: partial(_moved, name) for name in MATRICES},
}
