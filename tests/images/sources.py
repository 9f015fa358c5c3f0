"""The operations of the policies' sources, rewritten plainly and slowly, to compare ours with."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageEnhance, ImageOps

from vitral.images.augment import Augmentation, TrainingView, training_view

Pixels = Any  # whole numbers, (height, width, 3)
MEAN = (124, 116, 104)


def photo(height: int = 24, width: int = 22, seed: int = 0) -> Pixels:
    """Return an image of edges, gradients and noise, so small that every operation is quick."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    channels = [rows * 255 / height, columns * 255 / width, 127 + 90 * np.sin(rows / 2) * np.cos(columns / 3)]
    noise = rng.normal(0, 25, (height, width, 3))
    return np.clip(np.stack(channels, -1) + noise, 9, 240).astype(np.uint8)


def augment(image: Pixels, how: Augmentation, **told: Any) -> TrainingView:  # noqa: ANN401
    """Return a random view of an image that is decoded already."""
    return training_view(lambda shrink: image, how, **told)


def timm_operation(name: str, magnitude: float, sign: int, resample: Image.Resampling) -> Callable[[Pixels], Pixels]:
    """Return an operation of timm's "increasing" set at a magnitude from 0 to 10, after data/auto_augment.py."""
    level = magnitude / 10
    enhancers: dict[str, Any] = {
        "Color": ImageEnhance.Color,
        "Contrast": ImageEnhance.Contrast,
        "Brightness": ImageEnhance.Brightness,
        "Sharpness": ImageEnhance.Sharpness,
    }

    def change(image: Image.Image) -> Image.Image:
        width, height = image.size
        matrices = {
            "ShearX": (1, sign * 0.3 * level, 0, 0, 1, 0),
            "ShearY": (1, 0, 0, sign * 0.3 * level, 1, 0),
            "TranslateX": (1, 0, sign * 0.45 * level * width, 0, 1, 0),
            "TranslateY": (1, 0, 0, 0, 1, sign * 0.45 * level * height),
        }
        if name in matrices:
            return image.transform(image.size, Image.Transform.AFFINE, matrices[name], resample, fillcolor=MEAN)
        if name in enhancers:
            return enhancers[name](image).enhance(max(0.1, 1 + sign * 0.9 * level))
        if name == "Rotate":
            return image.rotate(sign * 30 * level, resample, fillcolor=MEAN)
        if name == "Invert":
            return ImageChops.invert(image)
        if name in ("AutoContrast", "Equalize"):
            return ImageOps.autocontrast(image) if name == "AutoContrast" else ImageOps.equalize(image)
        values = np.asarray(image).astype(int)
        if name == "Posterize":
            step = 2 ** (8 - (4 - int(4 * level)))
            values = values // step * step
        elif name == "Solarize":
            values = np.where(values >= 256 - int(256 * level), 255 - values, values)
        else:
            values = np.where(values < 128, np.minimum(values + int(110 * level), 255), values)
        return Image.fromarray(values.astype(np.uint8))

    return lambda pixels: np.asarray(change(Image.fromarray(pixels)))


def big_vision_operation(name: str, magnitude: float, sign: int) -> Callable[[Pixels], Pixels]:
    """Return an operation at a magnitude, after big_vision's pp/autoaugment.py and what TensorFlow makes of it."""
    level = magnitude / 10
    change: dict[str, Callable[[Pixels], Pixels]] = {
        "AutoContrast": _stretched,
        "Equalize": _equalized,
        "Invert": lambda image: 255 - image,
        "Rotate": lambda image: _turned(image, sign * 30 * level),
        "Posterize": lambda image: image >> _shift(level) << _shift(level),
        "Solarize": lambda image: np.where(image < int(256 * level) % 256, image, 255 - image),
        "SolarizeAdd": lambda image: np.where(image < 128, np.minimum(image + int(110 * level), 255), image),
        "Color": lambda image: _blended(_grey(image), image, level),
        "Contrast": lambda image: _blended(np.full_like(image, min(255, image[..., 0].size // 256)), image, level),
        "Brightness": lambda image: _blended(np.zeros_like(image), image, level),
        "Sharpness": lambda image: _blended(_smoothed(image), image, level),
        "ShearX": lambda image: _moved(image, lambda x, y: (x + sign * 0.3 * level * y, y)),
        "ShearY": lambda image: _moved(image, lambda x, y: (x, y + sign * 0.3 * level * x)),
        "TranslateX": lambda image: _moved(image, lambda x, y: (x + sign * 100 * level, y)),
        "TranslateY": lambda image: _moved(image, lambda x, y: (x, y + sign * 100 * level)),
    }
    return lambda pixels: np.asarray(change[name](pixels.astype(int))).astype(np.uint8)


def _shift(level: float) -> int:
    bits = int(4 * level)
    return min(8 - bits, 7) if bits <= 8 else 7


def _blended(one: Pixels, other: Pixels, level: float) -> Pixels:
    factor = np.float32(1.8 * level + 0.1)
    line = one.astype(np.float32) + factor * (other - one).astype(np.float32)
    return np.trunc(np.clip(line, 0, 255))


def _grey(image: Pixels) -> Pixels:
    share = image.astype(np.float32) / np.float32(255)
    grey = share[..., 0] * np.float32(0.2989) + share[..., 1] * np.float32(0.587) + share[..., 2] * np.float32(0.114)
    return np.trunc(grey * np.float32(255.5))[..., None].repeat(3, -1).astype(int)


def _smoothed(image: Pixels) -> Pixels:
    smooth = image.copy()
    for row in range(1, image.shape[0] - 1):
        for column in range(1, image.shape[1] - 1):
            around = image[row - 1 : row + 2, column - 1 : column + 2].sum((0, 1))
            smooth[row, column] = (around + 4 * image[row, column]) // 13
    return smooth


def _stretched(image: Pixels) -> Pixels:
    low, high = (of(image, axis=(0, 1)).astype(np.float32) for of in (np.min, np.max))
    scale = np.float32(255) / (high - low)
    return np.trunc(np.clip(image.astype(np.float32) * scale - low * scale, 0, 255))


def _equalized(image: Pixels) -> Pixels:
    result = image.copy()
    for channel in range(3):
        counts = np.bincount(image[..., channel].ravel(), minlength=256)
        step = (counts.sum() - counts[counts > 0][-1]) // 255
        if step:
            below = np.concatenate([[0], np.cumsum(counts)[:-1]])
            result[..., channel] = np.clip((below + step // 2) // step, 0, 255)[image[..., channel]]
    return result


def _turned(image: Pixels, degrees: float) -> Pixels:
    angle = math.radians(degrees)
    middle_x, middle_y = (image.shape[1] - 1) / 2, (image.shape[0] - 1) / 2

    def place(x: float, y: float) -> tuple[float, float]:
        x, y = x - middle_x, y - middle_y
        return (
            middle_x + math.cos(angle) * x - math.sin(angle) * y,
            middle_y + math.sin(angle) * x + math.cos(angle) * y,
        )

    return _moved(image, place)


def _moved(image: Pixels, place: Callable[[float, float], tuple[float, float]]) -> Pixels:
    height, width = image.shape[:2]
    result = np.full_like(image, 128)
    for row in range(height):
        for column in range(width):
            x, y = (math.floor(abs(part) + 0.5) * (1 if part >= 0 else -1) for part in place(column, row))
            if 0 <= x < width and 0 <= y < height:
                result[row, column] = image[y, x]
    return result
