"""Whether an exported file answers as the classifier does, on real images of all sizes."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from PIL import Image
from sklearn.datasets import load_sample_images

from vitral.classifier.classifier import Classifier
from vitral.data.image_files import LazyImage
from vitral.errors import one_line
from vitral.events import Listener, Progress
from vitral.images.decode import Pixels
from vitral.inference.exported.graph import Decoded
from vitral.inference.predictor import Predictor

IMAGES = 200
# By how much an image's shorter side is larger than that of the network's input; below 1 it has to grow.
FACTORS = (1.1, 2.0, 8.0, 0.5)
MOST_APART = 1e-4  # of a probability, in float32
# Where the last digit of a value decides between two integers, or which of two pairs of tokens becomes one.
MOST_APART_BY_STEPS = 0.02
BATCHES = {1: 2, 3: 7}  # images of one size at once, by the number of the image that is repeated; of the others one
THINNEST = 4  # times its shorter side: no image is longer
SHOWN = 10  # images with another answer that are named

Answer = Callable[[Decoded], Float32[np.ndarray, "batch classes"]]


@dataclass(frozen=True)
class Other:
    """An image that the file and the classifier answer differently.

    Attributes:
        image: its name.
        classifier: what the classifier says.
        file: what the file says.
        margin: how far apart the classifier's probabilities of both are, 0 to 1.
    """

    image: str
    classifier: str
    file: str
    margin: float


@dataclass(frozen=True)
class Parity:
    """How far a file's answers are from the classifier's.

    Attributes:
        computed_by: the runtime and the precision.
        images: that were computed by both.
        largest: the largest difference of a probability; infinite where the file gives no number, or not one for each class.
        same_top: the share of the images whose most probable class is the same.
        others: the images whose most probable class is not.
        holds: whether it has to be, and is, within `most`; None where it does not have to be.
        furthest: the number of the image whose answers differ most, counted from 0.
        error: why the runtime could not compute an image; empty if it could compute all.
        most: the difference that is allowed.
    """

    computed_by: str
    images: int
    largest: float
    same_top: float
    others: tuple[Other, ...]
    holds: bool | None
    furthest: int = 0
    error: str = ""
    most: float = MOST_APART

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; a difference that is no number is None."""
        return {**asdict(self), "largest": self.largest if math.isfinite(self.largest) else None}

    def lines(self) -> tuple[str, ...]:
        """Return it for people: a sentence, and a line for each of the first images with another answer."""
        if self.error:
            return (f"Not computed by {self.computed_by}: {self.error}",)
        limit = f", and at most {self.most:g} is allowed" if self.holds is False else ""
        first = (
            f"Checked with {self.computed_by} on {self.images:,} images of all sizes: probabilities differ by at most "
            f"{self.largest:.2g}{limit}; {self.same_top:.1%} have the same most probable class."
        )
        named = tuple(
            f"  {other.image}: {other.file}, by the classifier {other.classifier} ({other.margin:.2g} more probable)"
            for other in self.others[:SHOWN]
        )
        more = len(self.others) - SHOWN
        return first, *named, *((f"  and {more:,} more",) if more > 0 else ())


def check_images(own: Sequence[LazyImage] | None, size: tuple[int, int]) -> Iterator[tuple[str, Pixels]]:
    """Give images that shrink by each of the factors, and that grow, to become a network's input.

    Args:
        own: the user's; None for parts of the two photographs that scikit-learn has.
        size: height and width of the network's input, pixels.

    Raises:
        ImageError: an image cannot be read.
    """
    rng = np.random.default_rng(0)
    photos = load_sample_images() if own is None else None
    for number in range(IMAGES):
        factor = FACTORS[number % len(FACTORS)]
        if own is not None:
            image = own[number * len(own) // IMAGES]
            name, pixels = image.name, image.read()
        else:
            assert photos is not None
            which = number % len(photos.images)
            name, pixels = photos.filenames[which].rsplit("/", 1)[-1], _part(photos.images[which], rng)
        shorter = max(2, round(factor * min(size)))
        pixels = _not_too_thin(pixels)
        scale = shorter / min(pixels.shape[:2])
        rows, columns = (max(1, round(side * scale)) for side in pixels.shape[:2])
        resized = Image.fromarray(pixels).resize((columns, rows), Image.Resampling.BICUBIC)
        yield f"{name} at {columns}x{rows}", np.array(resized)


def _not_too_thin(pixels: Pixels) -> Pixels:
    """Return an image's beginning, at most so much longer than wide that it can be made larger."""
    most = THINNEST * min(pixels.shape[:2])
    return np.ascontiguousarray(pixels[:most, :most])


def _part(photo: Pixels, rng: np.random.Generator) -> Pixels:
    """Return a part of a photograph, of a random place, size and shape."""
    height, width = photo.shape[:2]
    rows, columns = (int(side * rng.uniform(0.3, 1)) for side in (height, width))
    top, left = int(rng.integers(0, height - rows + 1)), int(rng.integers(0, width - columns + 1))
    return np.ascontiguousarray(photo[top : top + rows, left : left + columns])


def compare(
    classifier: Classifier,
    answer: Answer,
    images: Iterable[tuple[str, Pixels]],
    *,
    computed_by: str,
    has_to_hold: bool,
    listener: Listener,
    reference: Predictor | None = None,
    most: float = MOST_APART,
) -> Parity:
    """Compare a file's probabilities with a classifier's; a runtime that fails is told, not raised.

    Args:
        classifier: computed by `reference`.
        answer: the file.
        images: with their names; some are given to the file several times over, to see that it takes batches.
        computed_by: the runtime and the precision, for people.
        has_to_hold: whether a difference above `most` is a failure.
        listener: receives progress.
        reference: what the file has to be like; None for the network in torch in float32.
        most: difference of a probability that is allowed.

    Raises:
        ImageError: an image cannot be read.
    """
    reference = reference or classifier.predictor.exact
    apart: list[float] = []
    others: list[Other] = []
    for number, (name, pixels) in enumerate(images):
        prepared = classifier.preprocessing(pixels)[None]
        own = classifier.to_probabilities(reference.logits(prepared))[0]
        count = BATCHES.get(number, 1)
        try:
            found = torch.from_numpy(answer(np.repeat(pixels[None], count, axis=0)))
        except Exception as error:  # a runtime raises anything
            failed = f"{name}, {count} at once: {one_line(error)}"
            return Parity(computed_by, number, math.nan, 0.0, (), False if has_to_hold else None, number, failed, most)
        difference = float((found - own).abs().max()) if found.shape == (count, len(own)) else math.nan
        apart.append(difference if math.isfinite(difference) else math.inf)
        mine, theirs = int(own.argmax()), int(found[0].argmax()) % len(own)
        if mine != theirs or math.isinf(apart[-1]):
            labels = classifier.class_names
            others.append(Other(name, labels[mine], labels[theirs], float(own[mine] - own[theirs])))
        listener(Progress("check the file", number + 1, IMAGES))
    largest = max(apart)
    holds = largest <= most if has_to_hold else None
    same = 1 - len(others) / len(apart)
    return Parity(computed_by, len(apart), largest, same, tuple(others), holds, apart.index(largest), most=most)
