"""Training views of an image: one random crop or one random affine map, one resampling, all from a given generator."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional

from vitral.images.decode import Pixels, Shrink
from vitral.images.geometry import Affine, Crop, Flip, Geometry, Pad, Resize, Steps
from vitral.images.pillow_operations import Colour
from vitral.images.policies import GREY, apply_policy, drawn_interpolation, jitter
from vitral.images.policies import Augmentation as Augmentation

Box = tuple[int, int, int, int]  # top, left, height, width
Moved = tuple[Pixels, Steps]  # an image and what was done to it

TENSORFLOW_ASPECT = (0.75, 1.33)  # the defaults of TensorFlow's sampler, whose upper bound is not 4/3
ASPECT = (3 / 4, 4 / 3)
ATTEMPTS = 100  # of TensorFlow's sampler
TORCHVISION_ATTEMPTS = 10
LESS_THAN_HALF = 0.5 - 1e-7  # of a pixel, TensorFlow's: what a width is rounded down by at most
LONGEST = 16  # the longer side of a "padded" image, at most, as a multiple of the shorter side
JITTERED = ("scale-jitter", "squash-jitter")
ANTIALIASED = ("resized", "square", "centre", "padded", *JITTERED)  # crops whose sources resize by Pillow
SELDOM = 0.1  # the share of views with a box that may be smaller than the view


@dataclass(frozen=True, eq=False)
class TrainingView:
    """An image as a network sees it in training, values 0 to 255, and the transforms from the whole image to the view."""

    pixels: UInt8[Tensor, "3 height width"]
    geometry: Geometry


def training_view(
    read: Callable[[Shrink | None], Pixels],
    augmentation: Augmentation,
    *,
    size: tuple[int, int],
    rng: np.random.Generator,
    fill: Colour = GREY,
    mirrored: bool | None = None,
) -> TrainingView:
    """Return a random view of an image that is not decoded yet: a pure function of image, generator and `mirrored`.

    Args:
        read: A function that decodes the image, no larger than its `Shrink` requires.
        augmentation: The augmentation that varies the view.
        size: The view's height and width, pixels.
        rng: The generator of every random choice.
        fill: The colour beyond the edge, of timm's RandAugment and of the jitters: red, green, blue, 0 to 255.
        mirrored: Whether the view is mirrored, where the augmentation's flips alternate; None to draw it.
    """
    draw = {"inception": inception_box, "resized": resized_box}.get(augmentation.crop)
    zoom = float(rng.uniform(*augmentation.scales)) if augmentation.crop in JITTERED else None
    zoomed = squashed if augmentation.crop == "squash-jitter" else jittered
    drawn: list[tuple[Box, tuple[int, int]]] = []

    def shrink(height: int, width: int) -> int:
        box = draw((height, width), augmentation.min_area, rng) if draw else (0, 0, height, width)
        drawn.append((box, (height, width)))
        needed = size if zoom is None else zoomed((height, width), size, zoom)
        return decoding_factor(box[2:], needed) if augmentation.decode == "scaled" else 1

    scaled = augmentation.decode == "kept" or (augmentation.decode == "scaled" and (draw or zoom) is not None)
    image = read(shrink if scaled else None)
    if not drawn:  # the image is decoded whole
        shrink(image.shape[0], image.shape[1])
    box, original = drawn[0]
    decoded = () if image.shape[:2] == original else (Resize(*image.shape[:2]),)
    if draw:
        image, cut = _cut(image, _scaled(box, image.shape[0] / original[0]))
    elif zoom is not None:
        image, cut = _jittered(image, zoomed(original, size, zoom), size, augmentation, rng)
    else:
        image, cut = _placed(image, augmentation, size, rng)
    view, resized = (image, ()) if zoom is not None else _resize(image, size, augmentation, rng)
    turned: Steps = ()
    if augmentation.shift or augmentation.rotate or augmentation.scale:
        view, turned = _affine(view, augmentation, rng)
    flipped: Steps = ()
    if augmentation.flip and (rng.random() < 0.5 if mirrored is None else mirrored):
        view, flipped = cv2.flip(view, 1), (Flip(),)
    if augmentation.vertical_flip and rng.random() < 0.5:
        view, flipped = cv2.flip(view, 0), (*flipped, Flip(vertical=True))
    view, moved = apply_policy(view, augmentation, rng, fill)
    if augmentation.jitter:
        view = jitter(view, augmentation.jitter, rng)
    view, filled = _filled(view, size, fill)
    planes = np.empty((3, *size), dtype=np.uint8)
    cv2.split(np.ascontiguousarray(view), list(planes))  # a transposed copy would take ten times as long
    steps = (*decoded, *cut, *resized, *turned, *flipped, *moved, *filled)
    return TrainingView(torch.from_numpy(planes), Geometry(original, steps))


def inception_box(shape: tuple[int, int], min_area: float, rng: np.random.Generator) -> Box:
    """Draw a box (top, left, height, width) as TensorFlow's `sample_distorted_bounding_box` does.

    The aspect is uniform. The height is a uniform integer within what the area allows, so the height is evenly spread and
    the area is not. After 100 failures the box is the whole image (vit_jax/input_pipeline.py, GenerateRandomCrop in
    tensorflow/core/kernels/image/sample_distorted_bounding_box_op.cc).
    """
    rows, columns = shape
    least, most = min_area * rows * columns, rows * columns
    for _ in range(ATTEMPTS):
        aspect = rng.uniform(*TENSORFLOW_ASPECT)
        high = round(math.sqrt(most / aspect))
        if round(high * aspect) > columns:
            high = int((columns + LESS_THAN_HALF) / aspect)
        high = min(high, rows)
        low = min(round(math.sqrt(least / aspect)), high)
        height = int(rng.integers(low, high + 1))
        if height * round(height * aspect) < least:  # because of rounding; another row may be enough
            height += 1
        if height * round(height * aspect) > most:
            height -= 1
        width = round(height * aspect)
        if least <= height * width <= most and 0 < width <= columns and 0 < height <= rows:
            top = int(rng.integers(0, max(rows - height, 1)))
            left = int(rng.integers(0, max(columns - width, 1)))
            return top, left, height, width
    return 0, 0, rows, columns


def resized_box(shape: tuple[int, int], min_area: float, rng: np.random.Generator) -> Box:
    """Draw a box (top, left, height, width) of uniform area, as torchvision's `RandomResizedCrop` does.

    The logarithm of the aspect is uniform. After ten failures the box is the centre, as wide or as high as the aspect allows.
    """
    rows, columns = shape
    for _ in range(TORCHVISION_ATTEMPTS):
        area = rows * columns * rng.uniform(min_area, 1.0)
        aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < width <= columns and 0 < height <= rows:
            top = int(rng.integers(0, rows - height + 1))
            left = int(rng.integers(0, columns - width + 1))
            return top, left, height, width
    height = min(rows, max(1, round(columns / ASPECT[0])))
    width = min(columns, max(1, round(rows * ASPECT[1])))
    return (rows - height) // 2, (columns - width) // 2, height, width


def _scaled(box: Box, factor: float) -> Box:
    top, left, height, width = box
    bottom, right = round((top + height) * factor), round((left + width) * factor)
    top, left = round(top * factor), round(left * factor)
    return top, left, max(1, bottom - top), max(1, right - left)


def _cut(image: Pixels, box: Box) -> Moved:
    top, left, height, width = box
    top, left = min(top, image.shape[0] - 1), min(left, image.shape[1] - 1)  # a scaled box was rounded
    part = image[top : top + height, left : left + width]
    return part, (Crop(top, left, part.shape[0], part.shape[1]),)


def _placed(image: Pixels, augmentation: Augmentation, size: tuple[int, int], rng: np.random.Generator) -> Moved:
    """Return the crop that the view is resized from; the whole image if the augmentation does not crop."""
    if augmentation.crop == "square":
        return _square(image, augmentation, size, rng)
    if augmentation.crop == "centre":
        return _centred(image, augmentation, size, rng)
    return _padded(image, augmentation, size, rng) if augmentation.crop == "padded" else (image, ())


def _square(image: Pixels, augmentation: Augmentation, size: tuple[int, int], rng: np.random.Generator) -> Moved:
    rows, columns = (round(side * augmentation.margin) for side in size)
    image, resized = _resize(image, (rows, columns), augmentation, rng)
    image, cut = _random_crop(image, size, rng)
    return image, (*resized, *cut)


def _centred(image: Pixels, augmentation: Augmentation, size: tuple[int, int], rng: np.random.Generator) -> Moved:
    rows, columns = (round(side * augmentation.margin) for side in size)
    most = LONGEST * min(image.shape[:2])
    image, shortened = _middle(image, (min(image.shape[0], most), min(image.shape[1], most)))
    image, resized = _resize(image, covering(image.shape[:2], (rows, columns)), augmentation, rng)
    image, cut = _middle(image, size)
    return image, (*shortened, *resized, *cut)


def _padded(image: Pixels, augmentation: Augmentation, size: tuple[int, int], rng: np.random.Generator) -> Moved:
    most = LONGEST * min(image.shape[:2])  # an image of one row would become enormous
    image, shortened = _random_crop(image, (min(image.shape[0], most), min(image.shape[1], most)), rng)
    image, resized = _resize(image, covering(image.shape[:2], size), augmentation, rng)
    vertical, horizontal = (min(round(side * augmentation.padding), side - 1) for side in size)
    border = cv2.BORDER_REFLECT_101 if augmentation.border == "reflect" else cv2.BORDER_CONSTANT
    image = cv2.copyMakeBorder(image, vertical, vertical, horizontal, horizontal, border)
    padded = Pad(vertical, horizontal, mirror=augmentation.border == "reflect")
    image, cut = _random_crop(image, size, rng)
    return image, (*shortened, *resized, padded, *cut)


def jittered(shape: tuple[int, int], size: tuple[int, int], zoom: float) -> tuple[int, int]:
    """Return the height and width of an image that fits into a view, times a factor, as torchvision's `ScaleJitter` does."""
    factor = min(size[0] / shape[0], size[1] / shape[1]) * zoom
    rows, columns = (max(1, int(side * factor)) for side in shape)
    return rows, columns


def squashed(shape: tuple[int, int], size: tuple[int, int], zoom: float) -> tuple[int, int]:
    """Return the height and width of a view, times a factor: of an image whose shape gives way to the view's."""
    rows, columns = (max(1, int(side * zoom)) for side in size)
    return rows, columns


def _jittered(
    image: Pixels, shape: tuple[int, int], size: tuple[int, int], augmentation: Augmentation, rng: np.random.Generator
) -> Moved:
    """Return a crop of the resized image, no larger than the view; it is filled up last, so that it is on the same sides."""
    image, resized = _resize(image, shape, augmentation, rng)
    image, cut = _random_crop(image, (min(shape[0], size[0]), min(shape[1], size[1])), rng)
    return image, (*resized, *cut)


def _filled(view: Pixels, size: tuple[int, int], fill: Colour) -> Moved:
    if view.shape[:2] == size:
        return view, ()
    below, beside = size[0] - view.shape[0], size[1] - view.shape[1]
    return cv2.copyMakeBorder(view, 0, below, 0, beside, cv2.BORDER_CONSTANT, value=fill), (Crop(0, 0, *size),)


def covering(shape: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Return the least height and width of the same aspect ratio that cover `size`, the longer side rounded down."""
    (rows, columns), (height, width) = shape, size
    if height * columns >= width * rows:
        return height, max(width, height * columns // rows)
    return max(height, width * rows // columns), width


def _random_crop(image: Pixels, size: tuple[int, int], rng: np.random.Generator) -> Moved:
    top = int(rng.integers(0, image.shape[0] - size[0] + 1))
    left = int(rng.integers(0, image.shape[1] - size[1] + 1))
    return _cut(image, (top, left, *size))


def _middle(image: Pixels, size: tuple[int, int]) -> Moved:
    return _cut(image, ((image.shape[0] - size[0]) // 2, (image.shape[1] - size[1]) // 2, *size))


def _resize(image: Pixels, size: tuple[int, int], augmentation: Augmentation, rng: np.random.Generator) -> Moved:
    if image.shape[:2] == size:
        return image, ()
    interpolation = drawn_interpolation(augmentation.interpolation, rng)
    if interpolation == "bicubic" or augmentation.crop in ANTIALIASED:
        planes = torch.from_numpy(np.require(image, requirements=["W"])).permute(2, 0, 1)[None]
        resized = functional.interpolate(planes, size, mode=interpolation, align_corners=False, antialias=True)
        return cv2.merge(list(resized[0].numpy())), (Resize(*size),)  # faster than a transposed copy
    # Whole factors are averaged away, so that bilinear interpolation skips no pixel; an average by any factor takes longer.
    factor = min(image.shape[0] // size[0], image.shape[1] // size[1])
    cut: Steps = ()
    if factor > 1:
        rows, columns = image.shape[0] // factor, image.shape[1] // factor
        image, cut = _cut(image, (0, 0, rows * factor, columns * factor))
        image = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA)
    return cv2.resize(image, (size[1], size[0]), interpolation=cv2.INTER_LINEAR), (*cut, Resize(*size))


def _affine(image: Pixels, augmentation: Augmentation, rng: np.random.Generator) -> Moved:
    height, width = image.shape[:2]
    angle = rng.uniform(-augmentation.rotate, augmentation.rotate)
    zoom = 1 + rng.uniform(-augmentation.scale, augmentation.scale)
    matrix = np.asarray(cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, zoom), dtype=np.float64)
    matrix[:, 2] += rng.uniform(-augmentation.shift, augmentation.shift, 2) * np.array([width, height])
    image = cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return image, (Affine.of_indices(cv2.invertAffineTransform(matrix).flatten().tolist(), border="edge"),)


def kept_shape(shape: tuple[int, int], augmentation: Augmentation, size: tuple[int, int]) -> tuple[int, int]:
    """Return the height and width at which a decoded image stays in memory: no larger than its views need.

    The aspect ratio stays. The size is chosen so that one view in ten has a box smaller than the view itself. The side of an
    "inception" box, as a share of the image's, is evenly spread from r, the root of `min_area`; the area of a "resized" box
    from a, `min_area`. So the image is 1 / (r + 0.1 (1 - r)) or 1 / sqrt(a + 0.1 (1 - a)) times as large as the view: 1.8 times
    for an "inception" box from a quarter of the area, 3.3 times from a twentieth. At worst a view is enlarged by 1.35 there.
    With "square" and "centre" it is `margin` times as large as the view, with the jitters their largest factor, with "padded"
    and "none" as large. A smaller image stays as it is.
    """
    factor = _factor(augmentation)
    rows, columns = covering(shape, (math.ceil(size[0] * factor), math.ceil(size[1] * factor)))
    return (rows, columns) if rows < shape[0] and columns < shape[1] else shape


def _factor(augmentation: Augmentation) -> float:
    least = augmentation.min_area
    if augmentation.crop == "inception":
        return 1 / (math.sqrt(least) + SELDOM * (1 - math.sqrt(least)))
    if augmentation.crop == "resized":
        return 1 / math.sqrt(least + SELDOM * (1 - least))
    if augmentation.crop in JITTERED:
        return augmentation.scales[1]
    return augmentation.margin if augmentation.crop in ("square", "centre") else 1.0


def decoding_factor(shape: tuple[int, int], target: tuple[int, int]) -> int:
    """Return the largest factor by which a JPEG of a shape may be decoded smaller and still cover the target shape."""
    return next(
        factor
        for factor in (8, 4, 2, 1)
        if factor == 1 or all(a >= factor * b for a, b in zip(shape, target, strict=True))
    )


def shrunk(image: Pixels, size: tuple[int, int]) -> Pixels:
    """Return an image averaged down to another height and width."""
    return image if image.shape[:2] == size else cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
