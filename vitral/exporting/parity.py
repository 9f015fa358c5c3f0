"""Whether an exported file answers as the classifier does, on real images of all sizes."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor, nn

from vitral.classifier.classifier import Classifier
from vitral.data.image_files import LazyImage
from vitral.errors import one_line
from vitral.events import Listener, Progress
from vitral.exporting.preparation import written_network
from vitral.images.decode import Pixels
from vitral.inference.exported.format import Check, Graph, Layers
from vitral.inference.predictor import Predictor

IMAGES = 200
# By how much an image's shorter side is larger than that of the network's input; below 1 it has to grow.
FACTORS = (1.1, 2.0, 8.0, 0.5)
MOST_APART = 1e-4  # of a probability, in float32
# Where the last digit of a value decides between two integers, or which of two pairs of tokens becomes one.
MOST_APART_BY_STEPS = 0.02
BATCHES = {1: 2, 3: 7}  # images of one size at once, by the number of the image that is repeated; of the others one
THINNEST = 4  # times its shorter side: no image is longer
SAME = 0.9999  # a cosine from which on two layers' values count as the same
SHOWN = 10  # images with another answer that are named


@dataclass(frozen=True)
class Other:
    """An image that the file and the classifier answer differently, with the distance of the classifier's probabilities."""

    image: str
    classifier: str
    file: str
    margin: float


@dataclass(frozen=True)
class Parity:
    """How far a file's answers are from the classifier's.

    Attributes:
        computed_by: The runtime and the precision.
        largest: The largest difference of a probability; infinite where the file gives no number, or not one for each class.
        same_top: The share of the images with the same most probable class.
        holds: Whether the difference is within `most`; None where it does not have to be.
        furthest: The number of the image that is answered most differently, counted from 0.
        error: Why the runtime could not compute an image; empty if it could compute all.
        most: The difference that is allowed.
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


def check_images(
    own: Sequence[LazyImage] | None, size: tuple[int, int], largest: float = math.inf
) -> Iterator[tuple[str, Pixels]]:
    """Give images that shrink by each of the factors, and that grow, to become a network's input.

    Args:
        own: The user's; None for parts of the two photographs that scikit-learn has.
        size: Height and width of the network's input, pixels.
        largest: The most pixels of an image; by default as many as the factors give.

    Raises:
        ImageError: An image cannot be read.
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
        longest = THINNEST * min(pixels.shape[:2])  # of what can be made larger: an image's beginning
        pixels = np.ascontiguousarray(pixels[:longest, :longest])
        scale = min(shorter / min(pixels.shape[:2]), math.sqrt(largest / math.prod(pixels.shape[:2])))
        rows, columns = (max(1, round(side * scale)) for side in pixels.shape[:2])
        resized = Image.fromarray(pixels).resize((columns, rows), Image.Resampling.BICUBIC)
        yield f"{name} at {columns}x{rows}", np.array(resized)


def _part(photo: Pixels, rng: np.random.Generator) -> Pixels:
    """Return a part of a photograph, of a random place, size and shape."""
    height, width = photo.shape[:2]
    rows, columns = (int(side * rng.uniform(0.3, 1)) for side in (height, width))
    top, left = int(rng.integers(0, height - rows + 1)), int(rng.integers(0, width - columns + 1))
    return np.ascontiguousarray(photo[top : top + rows, left : left + columns])


def compare(
    classifier: Classifier,
    check: Check,
    images: Iterable[tuple[str, Pixels]],
    *,
    listener: Listener,
    reference: Predictor,
    most: float,
) -> Parity:
    """Compare a file's probabilities with a classifier's; a runtime that fails is reported, not raised.

    Args:
        classifier: Computed by `reference`.
        check: What computes the file.
        images: Images with their names; some are given to the file several times over, to see that it takes batches.
        listener: What receives progress.
        reference: What the file has to be like.
        most: Difference of a probability that is allowed.

    Raises:
        ImageError: An image cannot be read.
    """
    apart: list[float] = []
    others: list[Other] = []
    for number, (name, pixels) in enumerate(images):
        prepared = classifier.preprocessing(pixels)[None]
        own = classifier.to_probabilities(reference.logits(prepared))[0]
        count = BATCHES.get(number, 1)
        try:
            found = torch.from_numpy(check.answer(np.repeat(pixels[None], count, axis=0)))
        except Exception as error:  # a runtime raises anything
            failed, holds = f"{name}, {count} at once: {one_line(error)}", False if check.has_to_hold else None
            return Parity(check.computed_by, number, math.nan, 0.0, (), holds, number, failed, most)
        difference = float((found - own).abs().max()) if found.shape == (count, len(own)) else math.nan
        apart.append(difference if math.isfinite(difference) else math.inf)
        mine, theirs = int(own.argmax()), int(found[0].argmax()) % len(own)
        if mine != theirs or math.isinf(apart[-1]):
            labels = classifier.class_names
            others.append(Other(name, labels[mine], labels[theirs], float(own[mine] - own[theirs])))
        listener(Progress("check the file", number + 1, IMAGES))
    largest = max(apart)
    holds = largest <= most if check.has_to_hold else None
    same = 1 - len(others) / len(apart)
    return Parity(check.computed_by, len(apart), largest, same, tuple(others), holds, apart.index(largest), most=most)


def layer_cosines(classifier: Classifier, graph: Graph, layers: Layers, pixels: Pixels) -> dict[str, float]:
    """Return the cosine between what each layer gives in the network and in the file, in the order of computation.

    It is multiplied by the ratio of both lengths, so that a layer with values that are only larger is seen, too.

    `layers` has the names of the file's values by the layers that give them.
    """
    network = written_network(classifier)
    own: dict[str, np.ndarray] = {}
    for name, module in network.named_modules():
        if name in layers:
            module.register_forward_hook(partial(_keep, own, name))
    with torch.no_grad():
        network(classifier.preprocessing(pixels)[None])
    found = graph.inner(pixels[None], tuple(dict.fromkeys(layers[name] for name in own)))
    return {
        name: _cosine(values, found[layers[name]])
        for name, values in own.items()
        if values.shape == found[layers[name]].shape  # else the graph orders its axes in another way
    }


def first_different(cosines: Mapping[str, float]) -> str:
    """Return the first layer with other values; empty if there is none."""
    return next((name for name, cosine in cosines.items() if not cosine >= SAME), "")


def _keep(values: dict[str, np.ndarray], name: str, module: nn.Module, arguments: Any, output: object) -> None:  # noqa: ANN401
    if isinstance(output, Tensor):
        values[name] = output.float().numpy()


def _cosine(own: np.ndarray, found: np.ndarray) -> float:
    """Return the cosine times the ratio of both lengths, the shorter to the longer: 1 for the same values only."""
    first, second = own.ravel().astype(np.float64), found.ravel().astype(np.float64)
    longest = max(float(first @ first), float(second @ second))
    return float(first @ second) / longest if longest > 0 else 1.0
