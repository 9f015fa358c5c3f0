"""Training views of a picture: one random crop or one random affine map, one resampling, all from a given generator."""

import math
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from vitral.images.decode import Pixels

ASPECT = (0.75, 1.33)  # the defaults of TensorFlow's sampler, whose upper bound is not 4/3
ATTEMPTS = 100


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How a training picture varies.

    Attributes:
        crop: "inception" cuts a random box, "none" keeps the whole picture.
        min_area: the least share of the picture that the box keeps, 0 to 1.
        flip: whether half of the pictures are mirrored left to right.
        shift: the largest move, as a share of the side.
        rotate: the largest turn, degrees.
        scale: the largest zoom in or out, as a share.
    """

    crop: Literal["inception", "none"] = "inception"
    min_area: float = 0.05
    flip: bool = True
    shift: float = 0.0
    rotate: float = 0.0
    scale: float = 0.0


Box = tuple[int, int, int, int]


def augment(
    image: Pixels, augmentation: Augmentation, *, size: tuple[int, int], rng: np.random.Generator
) -> UInt8[Tensor, "3 height width"]:
    """Return a random view of a picture at `size` (height, width), a pure function of picture and generator."""
    if augmentation.crop == "inception":
        top, left, height, width = inception_box(image.shape[:2], augmentation.min_area, rng)
        image = image[top : top + height, left : left + width]
    view = _resize(image, size)
    if augmentation.shift or augmentation.rotate or augmentation.scale:
        view = _affine(view, augmentation, rng)
    if augmentation.flip and rng.random() < 0.5:
        view = view[:, ::-1]
    return torch.from_numpy(np.ascontiguousarray(view.transpose(2, 0, 1)))


def inception_box(shape: tuple[int, int], min_area: float, rng: np.random.Generator) -> Box:
    """Draw a box (top, left, height, width) as TensorFlow's `sample_distorted_bounding_box` does.

    The aspect is uniform and the height a uniform integer within what the area allows, so that it is the height and not
    the area that is evenly spread; after 100 failures the whole picture is taken (vit_jax/input_pipeline.py).
    """
    rows, columns = shape
    for _ in range(ATTEMPTS):
        aspect = rng.uniform(*ASPECT)
        low = round(math.sqrt(min_area * rows * columns / aspect))
        high = min(round(math.sqrt(rows * columns / aspect)), rows, int(columns / aspect))
        if high < 1 or low > high:
            continue
        height = int(rng.integers(max(low, 1), high + 1))
        width = min(max(round(height * aspect), 1), columns)
        if not min_area * rows * columns <= height * width <= rows * columns:
            continue
        top = int(rng.integers(0, max(rows - height, 1)))
        left = int(rng.integers(0, max(columns - width, 1)))
        return top, left, height, width
    return 0, 0, rows, columns


def _resize(image: Pixels, size: tuple[int, int]) -> Pixels:
    if image.shape[:2] == size:
        return image
    shrinks = image.shape[0] > size[0] and image.shape[1] > size[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return cv2.resize(np.ascontiguousarray(image), (size[1], size[0]), interpolation=how)


def _affine(image: Pixels, augmentation: Augmentation, rng: np.random.Generator) -> Pixels:
    height, width = image.shape[:2]
    angle = rng.uniform(-augmentation.rotate, augmentation.rotate)
    zoom = 1 + rng.uniform(-augmentation.scale, augmentation.scale)
    matrix = np.asarray(cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, zoom), dtype=np.float64)
    matrix[:, 2] += rng.uniform(-augmentation.shift, augmentation.shift, 2) * np.array([width, height])
    return cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
