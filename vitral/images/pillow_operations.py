"""Image operations by Pillow, bit-identical to those of timm's and torchvision's pipelines on Pillow images, except one blur.

Every operation takes the image, a value in the operation's own unit and a `Canvas`; those that need no value ignore it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import cv2
import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vitral.images.geometry import Affine, Steps, shear_or_shift

Colour = tuple[int, int, int]
HALF = 128  # brightness from which an image is solarised
BLUR_SIDE = 7  # pixels of the window of a Gaussian that is cut off


@dataclass(frozen=True)
class Canvas:
    """The settings of operations that move an image's pixels.

    Attributes:
        fill: The colour beyond the edge: red, green, blue, 0 to 255.
        resample: The interpolation between pixels.
    """

    fill: Colour
    resample: Image.Resampling


Operation = Callable[[Image.Image, float, Canvas], Image.Image]


def autocontrast(image: Image.Image, value: float, canvas: Canvas) -> Image.Image:
    """Stretch each channel over the whole range."""
    return ImageOps.autocontrast(image)


def equalize(image: Image.Image, value: float, canvas: Canvas) -> Image.Image:
    """Make each channel's values equally frequent."""
    return ImageOps.equalize(image)


def invert(image: Image.Image, value: float, canvas: Canvas) -> Image.Image:
    """Turn an image into its negative."""
    return ImageOps.invert(image)


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


def color(image: Image.Image, factor: float, canvas: Canvas) -> Image.Image:
    """Blend an image with its grey version; a factor of 0 gives only that."""
    return ImageEnhance.Color(image).enhance(factor)


def contrast(image: Image.Image, factor: float, canvas: Canvas) -> Image.Image:
    """Blend an image with its mean grey; a factor of 0 gives only that."""
    return ImageEnhance.Contrast(image).enhance(factor)


def brightness(image: Image.Image, factor: float, canvas: Canvas) -> Image.Image:
    """Blend an image with black; a factor of 0 gives only that."""
    return ImageEnhance.Brightness(image).enhance(factor)


def sharpness(image: Image.Image, factor: float, canvas: Canvas) -> Image.Image:
    """Blend an image with its smoothed version; a factor of 0 gives only that."""
    return ImageEnhance.Sharpness(image).enhance(factor)


def shear_x(image: Image.Image, slope: float, canvas: Canvas) -> Image.Image:
    """Move each row by `slope` times its index, to the left for a slope above 0."""
    return _affine(image, (1, slope, 0, 0, 1, 0), canvas)


def shear_y(image: Image.Image, slope: float, canvas: Canvas) -> Image.Image:
    """Move each column by `slope` times its index, upwards for a slope above 0."""
    return _affine(image, (1, 0, 0, slope, 1, 0), canvas)


def translate_x(image: Image.Image, pixels: float, canvas: Canvas) -> Image.Image:
    """Move an image to the left."""
    return _affine(image, (1, 0, pixels, 0, 1, 0), canvas)


def translate_y(image: Image.Image, pixels: float, canvas: Canvas) -> Image.Image:
    """Move an image upwards."""
    return _affine(image, (1, 0, 0, 0, 1, pixels), canvas)


def steps_of(name: str, value: float, size: tuple[int, int]) -> Steps:
    """Return the steps by which a named operation moves the pixels of an image of (width, height); none if it moves none.

    Pillow counts from the edges of pixels, and an affine map goes from the new place to the old place.
    """
    if name == "Rotate":
        return (_rotation(value, *size),)
    matrix = shear_or_shift(name, value)
    return () if matrix is None else (Affine(matrix),)


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


def _affine(image: Image.Image, matrix: tuple[float, ...], canvas: Canvas) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, canvas.resample, fillcolor=canvas.fill)


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
    "ShearX": shear_x,
    "ShearY": shear_y,
    "TranslateX": translate_x,
    "TranslateY": translate_y,
}
