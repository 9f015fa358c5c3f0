"""The fifteen corruptions of ImageNet-C at five severities (Hendrycks and Dietterich, arXiv 1903.12261), on any image.

Written from the published definitions; the strengths, for images of 224 pixels, are those of the authors' program
(hendrycks/robustness, ImageNet-C/create_c/make_imagenet_c.py). Three things differ: the streaks of motion blur and snow are a
straight kernel (the authors use ImageMagick's), frost is a generated crust (the authors use photos of ice), and elastic shifts
scale with the image's shorter side. Noise and places are drawn anew and the authors' images are JPEGs, so compare accuracies
here with each other and not with published ones. Blurs, blocks and streaks keep their size in pixels, so a larger image suffers
less.
"""

import math
from collections.abc import Callable, Mapping

import cv2
import numpy as np
from jaxtyping import Float32
from PIL import Image as Pillow

from vitral.images.decode import Pixels

Image = Float32[np.ndarray, "height width 3"]  # 0 to 1
Planes = Float32[np.ndarray, "height width channels"]
Kernel = Float32[np.ndarray, "side side"]
Corruption = Callable[[Image, int, np.random.Generator], Image]

SEVERITIES = (1, 2, 3, 4, 5)
SIDE = 224  # pixels of the authors' images
ROUNDING = 1e-3  # levels by which a float32 may stand below a whole number of them
ELASTIC_SIDE = 244  # by which the authors' program multiplies the lengths of elastic shifts of images of 224 pixels


def corrupt(image: Pixels, name: str, severity: int, rng: np.random.Generator) -> Pixels:
    """Return a corrupted image of the same size.

    Args:
        image: The RGB pixels.
        name: A key of `CORRUPTIONS`.
        severity: The strength, from 1, the weakest, to 5.
        rng: The generator of noise and places.
    """
    assert severity in SEVERITIES, severity
    changed = CORRUPTIONS[name](image.astype(np.float32) / 255, severity - 1, rng)
    return np.rint(np.clip(changed, 0, 1) * 255).astype(np.uint8)


def _gaussian_noise(image: Image, level: int, rng: np.random.Generator) -> Image:
    sigma = (0.08, 0.12, 0.18, 0.26, 0.38)[level]
    return image + sigma * rng.standard_normal(image.shape, dtype=np.float32)


def _shot_noise(image: Image, level: int, rng: np.random.Generator) -> Image:
    photons = (60, 25, 12, 5, 3)[level]
    return (rng.poisson(image * photons) / photons).astype(np.float32)


def _impulse_noise(image: Image, level: int, rng: np.random.Generator) -> Image:
    share = (0.03, 0.06, 0.09, 0.17, 0.27)[level]
    drawn = rng.random(image.shape)
    return np.where(drawn < share / 2, np.float32(0), np.where(drawn < share, np.float32(1), image))


def _defocus_blur(image: Image, level: int, rng: np.random.Generator) -> Image:
    radius, soft = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[level]
    return _filtered(image, _disk(radius, soft))


def _glass_blur(image: Image, level: int, rng: np.random.Generator) -> Image:
    sigma, reach, rounds = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))[level]
    height, width = image.shape[:2]
    origin = list(range(height * width))
    for _ in range(rounds):
        shifts = (
            rng.integers(-reach, reach, (height, width)) * width + rng.integers(-reach, reach, (height, width))
        ).tolist()
        # Each pixel in turn, from the lower right, becomes a copy of a neighbour, which may be a copy already. The authors
        # write an exchange, but of views of one array, of which the second only copies the first back.
        for row in range(height - reach, reach, -1):
            for pixel in range(row * width + width - reach, row * width + reach, -1):
                origin[pixel] = origin[pixel + shifts[row][pixel - row * width]]
    blurred = np.floor(_gaussian(image, sigma) * 255 + ROUNDING) / 255  # the authors' are cut to whole levels here
    return _gaussian(blurred.astype(np.float32).reshape(-1, 3)[origin].reshape(image.shape), sigma)


def _motion_blur(image: Image, level: int, rng: np.random.Generator) -> Image:
    radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[level]
    return _filtered(image, _streak(radius, sigma, rng.uniform(-45, 45)))


def _zoom_blur(image: Image, level: int, rng: np.random.Generator) -> Image:
    end, step = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))[level]
    zooms = np.arange(1, end, step)
    total = image + sum((_zoomed(image, float(zoom)) for zoom in zooms), np.zeros_like(image))
    return total / np.float32(len(zooms) + 1)


def _snow(image: Image, level: int, rng: np.random.Generator) -> Image:
    mean, deviation, zoom, threshold, radius, sigma, opacity = (
        (0.1, 0.3, 3.0, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )[level]
    layer = (mean + deviation * rng.standard_normal(image.shape[:2])).astype(np.float32)
    layer = _zoomed(layer[..., None], zoom)[..., :1]
    layer = np.where(layer < threshold, np.float32(0), layer)
    flakes = np.clip(_filtered(layer, _streak(radius, sigma, rng.uniform(-135, -45))), 0, 1)
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None]
    pale = opacity * image + (1 - opacity) * np.maximum(image, grey * 1.5 + 0.5)
    return (pale + flakes + flakes[::-1, ::-1]).astype(np.float32)


def _frost(image: Image, level: int, rng: np.random.Generator) -> Image:
    opacity, crust = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[level]
    height, width = image.shape[:2]
    rough = _plasma(image.shape, 1.7, rng)
    # Needles of ice grow from the seeds in six directions.
    seeds = (rng.random((height, width, 1)) < 0.01).astype(np.float32)
    needles = sum((_filtered(seeds, _streak(14, 7, degrees)) for degrees in range(0, 360, 60)), np.zeros_like(seeds))
    ice = np.clip(0.7 * rough + 4 * needles, 0, 1) * np.array([0.85, 0.95, 1.0], np.float32)
    return (opacity * image + crust * ice * np.clip(1.6 * rough, 0, 1)).astype(np.float32)


def _fog(image: Image, level: int, rng: np.random.Generator) -> Image:
    strength, decay = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))[level]
    most = image.max()
    mist = _plasma(image.shape, decay, rng)
    return ((image + strength * mist) * most / (most + strength)).astype(np.float32)


def _brightness(image: Image, level: int, rng: np.random.Generator) -> Image:
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    hsv[..., 2] = np.clip(hsv[..., 2] + (0.1, 0.2, 0.3, 0.4, 0.5)[level], 0, 1)
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))


def _contrast(image: Image, level: int, rng: np.random.Generator) -> Image:
    means = image.mean(axis=(0, 1), keepdims=True)
    return (image - means) * np.float32((0.4, 0.3, 0.2, 0.1, 0.05)[level]) + means


def _elastic_transform(image: Image, level: int, rng: np.random.Generator) -> Image:
    side = min(image.shape[:2])
    length = side * ELASTIC_SIDE / SIDE
    alpha, sigma, shift = (
        (2.0, 0.7, 0.1),
        (2.0, 0.08, 0.2),
        (0.05, 0.01, 0.02),
        (0.07, 0.01, 0.02),
        (0.12, 0.01, 0.02),
    )[level]
    height, width = image.shape[:2]
    middle, centre, third = width // 2, height // 2, side // 3
    corners = np.array(
        [[middle + third, centre + third], [middle + third, centre - third], [middle - third, centre - third]],
        np.float32,
    )
    moved = corners + rng.uniform(-shift * length, shift * length, corners.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(corners, moved)
    turned = cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    offsets = [
        _gaussian(
            rng.uniform(-1, 1, (height, width)).astype(np.float32),
            max(sigma * length, 1e-3),
            reach=3.0,
            border=cv2.BORDER_REFLECT,
        )
        for _ in range(2)
    ]
    columns, rows = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    return np.asarray(
        cv2.remap(
            turned,
            columns + np.float32(alpha * length) * offsets[0],
            rows + np.float32(alpha * length) * offsets[1],
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REFLECT,
        )
    )


def _pixelate(image: Image, level: int, rng: np.random.Generator) -> Image:
    share = (0.6, 0.5, 0.4, 0.3, 0.25)[level]
    height, width = image.shape[:2]
    whole = Pillow.fromarray(np.rint(image * 255).astype(np.uint8))
    small = whole.resize((max(1, int(width * share)), max(1, int(height * share))), Pillow.Resampling.BOX)
    return np.asarray(small.resize((width, height), Pillow.Resampling.BOX), np.float32) / 255


def _jpeg_compression(image: Image, level: int, rng: np.random.Generator) -> Image:
    quality = (25, 18, 15, 10, 7)[level]
    pixels = np.ascontiguousarray(np.rint(image[..., ::-1] * 255).astype(np.uint8))
    _, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_COLOR))[..., ::-1].astype(np.float32) / 255


CORRUPTIONS: Mapping[str, Corruption] = {
    "gaussian noise": _gaussian_noise,
    "shot noise": _shot_noise,
    "impulse noise": _impulse_noise,
    "defocus blur": _defocus_blur,
    "glass blur": _glass_blur,
    "motion blur": _motion_blur,
    "zoom blur": _zoom_blur,
    "snow": _snow,
    "frost": _frost,
    "fog": _fog,
    "brightness": _brightness,
    "contrast": _contrast,
    "elastic transform": _elastic_transform,
    "pixelate": _pixelate,
    "jpeg compression": _jpeg_compression,
}


def _gaussian(
    image: Float32[np.ndarray, "height width *channels"],
    sigma: float,
    *,
    reach: float = 4.0,
    border: int = cv2.BORDER_REPLICATE,
) -> Float32[np.ndarray, "height width *channels"]:
    """Return an image blurred by a Gaussian that is cut off at so many standard deviations."""
    side = 2 * int(reach * sigma + 0.5) + 1
    return np.asarray(cv2.GaussianBlur(image, (side, side), sigma, borderType=border))


def _filtered(image: Planes, kernel: Kernel) -> Planes:
    filtered = np.asarray(cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REFLECT_101))
    return filtered.reshape(image.shape)


def _disk(radius: int, soft: float) -> Kernel:
    """Return the kernel of a lens out of focus: a disk with a softened rim."""
    reach = np.arange(-max(8, radius), max(8, radius) + 1)
    columns, rows = np.meshgrid(reach, reach)
    disk = (columns**2 + rows**2 <= radius**2).astype(np.float32)
    side = 3 if radius <= 8 else 5
    kernel = np.asarray(cv2.GaussianBlur(disk, (side, side), soft))
    return kernel / kernel.sum()


def _streak(radius: int, sigma: float, degrees: float) -> Kernel:
    """Return the kernel of a motion: a line that begins in the middle and fades like a Gaussian."""
    side = 2 * radius + 1
    kernel = np.zeros((side, side), dtype=np.float32)
    for distance in range(radius + 1):
        row = radius + round(distance * math.sin(math.radians(degrees)))
        column = radius + round(distance * math.cos(math.radians(degrees)))
        kernel[row, column] += math.exp(-(distance**2) / (2 * sigma**2))
    return kernel / kernel.sum()


def _zoomed(image: Planes, zoom: float) -> Planes:
    """Return the middle of an image, enlarged to its size."""
    height, width = image.shape[:2]
    rows, columns = math.ceil(height / zoom), math.ceil(width / zoom)
    top, left = (height - rows) // 2, (width - columns) // 2
    part = image[top : top + rows, left : left + columns]
    return np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_LINEAR)).reshape(image.shape)


def _plasma(shape: tuple[int, ...], decay: float, rng: np.random.Generator) -> Planes:
    """Return the corner of a fractal of values 0 to 1 by the diamond-square algorithm; its side is a power of two."""
    height, width = shape[:2]
    side = 1 << max(1, (max(height, width) - 1).bit_length())
    heights = np.zeros((side, side), dtype=np.float32)
    step, wobble = side, 100.0
    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        sums = corners + np.roll(corners, -1, 0)
        sums = sums + np.roll(sums, -1, 1)
        heights[half::step, half::step] = sums / 4 + _drawn(rng, wobble, sums.shape)
        middles, corners = heights[half::step, half::step], heights[::step, ::step]
        across = middles + np.roll(middles, 1, 0) + corners + np.roll(corners, -1, 1)
        heights[::step, half::step] = across / 4 + _drawn(rng, wobble, across.shape)
        down = middles + np.roll(middles, 1, 1) + corners + np.roll(corners, -1, 0)
        heights[half::step, ::step] = down / 4 + _drawn(rng, wobble, down.shape)
        step, wobble = half, wobble / decay
    heights -= heights.min()
    return (heights / max(float(heights.max()), 1e-6))[:height, :width, None]


def _drawn(rng: np.random.Generator, wobble: float, shape: tuple[int, ...]) -> Float32[np.ndarray, "rows columns"]:
    return (wobble * rng.uniform(-wobble, wobble, shape)).astype(np.float32)
