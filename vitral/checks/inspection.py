"""One look at every image of a dataset: sizes, format, hashes and statistics, and what is odd about it."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import imagehash
import numpy as np
from PIL import Image

from vitral.checks.findings import Finding
from vitral.data.source import BadImage, DataSet
from vitral.data.threads import in_threads
from vitral.errors import ImageError
from vitral.images.decode import FORMATS, Pixels
from vitral.tasks.task import classes_of

TINY = 32  # pixels of the shorter side
LONG = 4.0  # ratio of the sides
FLAT = 2.0  # standard deviation of the values
SAMPLED = 4096  # pixels of an image that its mean and standard deviation are taken of, about


@dataclass(frozen=True)
class InspectedImage:
    """What one image is like."""

    split: str
    index: int
    name: str
    classes: tuple[str, ...]
    height: int
    width: int
    size: int
    format: str
    digest: str
    perceptual: int
    mean: tuple[float, float, float]
    square: tuple[float, float, float]
    deviation: float


def inspect(data: DataSet, split: str) -> Iterator[InspectedImage | BadImage]:
    """Look at every image of a split, in order; of one that cannot be read, say so."""
    yield from in_threads(partial(_inspect, data, split), range(len(data.splits[split])))


def label_names(data: DataSet, split: str, index: int) -> tuple[str, ...]:
    """Return the names of an image's class or classes."""
    return tuple(data.class_names[number] for number in classes_of(data.splits[split].label(index)))


def _inspect(data: DataSet, split: str, index: int) -> InspectedImage | BadImage:
    source = data.splits[split]
    name = source.describe(index)
    try:
        encoded = source.encoded(index)
        pixels = source.image(index)
    except ImageError as error:
        return BadImage(name, str(error).rstrip("."))
    content = encoded.read_bytes() if isinstance(encoded, Path) else encoded
    mean, square = _moments(pixels)
    return InspectedImage(
        split=split,
        index=index,
        name=name,
        classes=label_names(data, split, index),
        height=pixels.shape[0],
        width=pixels.shape[1],
        size=pixels.nbytes if content is None else len(content),
        format="pixels" if content is None else _format(content),
        digest=hashlib.sha256(pixels.tobytes()).hexdigest(),
        perceptual=int(str(imagehash.phash(Image.fromarray(pixels))), 16),
        mean=mean,
        square=square,
        deviation=float(pixels.std()),
    )


def _moments(pixels: Pixels) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return the means of the channels and of their squares, values 0 to 1."""
    values = pixels.reshape(-1, 3)[:: max(1, pixels.size // 3 // SAMPLED)].astype(np.float64) / 255
    mean, square = values.mean(axis=0), (values**2).mean(axis=0)
    return (float(mean[0]), float(mean[1]), float(mean[2])), (float(square[0]), float(square[1]), float(square[2]))


def _format(content: bytes) -> str:
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.format == "MPO":  # a camera's JPEG with a preview or a depth map behind it, which is no animation
            return f"JPEG {image.mode}"
        # Not the number of frames, for which every one of them would be read.
        animated = " animated" if getattr(image, "is_animated", False) else ""
        return f"{image.format} {image.mode}{animated}"


def oddities(image: InspectedImage, median_side: float) -> Iterator[Finding]:
    """Give what is odd about an image.

    Args:
        image: The image.
        median_side: The median of the shorter sides of all images, pixels.
    """
    if image.deviation < FLAT:
        yield Finding(image.name, "one colour only")
    if min(image.height, image.width) < TINY and median_side >= 2 * TINY:
        yield Finding(image.name, f"only {image.width}x{image.height} pixels, where most are larger")
    if max(image.height, image.width) > LONG * min(image.height, image.width):
        yield Finding(image.name, f"{image.width}x{image.height} pixels: very long for its width")
    if "animated" in image.format:
        yield Finding(image.name, "animated: only the first frame is used")
    suffix = Path(image.name).suffix.lower().lstrip(".")
    known = {"jpg": "JPEG", "jpeg": "JPEG", "jpe": "JPEG", "jfif": "JPEG"}.get(suffix, suffix.upper())
    if known in FORMATS and not image.format.startswith((known, "pixels")):
        yield Finding(image.name, f"named .{suffix}, but it is {image.format.split()[0]}")
