"""Images prepared by threads while the network computes, in order, and its answers to them.

An image that cannot be read is reported, not raised.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.classifier.prediction import Prediction
from vitral.data.image_files import LazyImage
from vitral.errors import ImageError
from vitral.images.preprocessing import Preprocessing

BATCH_SIZE = 16  # images that are computed at once, unless the caller says otherwise
AHEAD = 4  # batches that are prepared or being prepared at most


@dataclass(frozen=True)
class Ready:
    """An image that was read and prepared, or why it could not be.

    Attributes:
        pixels: the network's input; None where it cannot be read.
        error: why it cannot; empty otherwise.
        reading: seconds in which its bytes were read.
        decoding: seconds in which it was decoded, resized and normalised.
    """

    index: int
    name: str
    pixels: Float[Tensor, "3 height width"] | None
    error: str
    reading: float
    decoding: float


@dataclass(frozen=True)
class BatchAnswer:
    """What a classifier says of an image, and what its network's last layer reads, where that is wanted."""

    prediction: Prediction
    features: Float[Tensor, " features"] | None


def batches(ready: Iterable[Ready], size: int) -> Iterator[list[Ready]]:
    """Give images in batches of a size, the last of which may be smaller."""
    waiting = iter(ready)
    while batch := list(islice(waiting, size)):
        yield batch


def answer(
    classifier: Classifier, batch: Sequence[Ready], *, top: int, features: bool = False
) -> dict[int, BatchAnswer]:
    """Return what a classifier says of those images of a batch that can be read, by their positions.

    Raises:
        ModelError: The network gives no number, as damaged weights do.
    """
    readable = [(image, image.pixels) for image in batch if image.pixels is not None]
    if not readable:
        return {}
    images, kept = torch.stack([pixels for _, pixels in readable]), None
    if features:
        probabilities, novelties, kept = classifier.answers_with_features(images)
    else:
        probabilities, novelties = classifier.answers(images)
    found = classifier.predictions([image.name for image, _ in readable], probabilities, novelties, top=top)
    rows = [None] * len(found) if kept is None else list(kept)
    return {
        image.index: BatchAnswer(prediction, row)
        for (image, _), prediction, row in zip(readable, found, rows, strict=True)
    }


def prepare_ahead(
    images: Iterable[tuple[int, LazyImage]], preprocessing: Preprocessing, *, workers: int, batch_size: int
) -> Iterator[Ready]:
    """Give images prepared, in their order, a few batches ahead.

    The images come with their positions, and are taken as they are needed. The workers are threads; decoders leave Python to
    itself while they work.
    """
    ahead = AHEAD * batch_size
    # Of torch's own threads they have one each: the others are the network's. Setting it in a thread also sets what threads of
    # the process that begin later have, which is put back.
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, 1)) as pool:
        pending: deque[Future[Ready]] = deque()
        try:
            for index, image in images:
                pending.append(pool.submit(_prepare, index, image, preprocessing))
                if len(pending) >= ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
            pool.shutdown()
            torch.set_num_threads(threads)


def _prepare(index: int, image: LazyImage, preprocessing: Preprocessing) -> Ready:
    started = fetched = time.perf_counter()
    pixels, error = None, ""
    try:
        decode = image.read if image.fetch is None else image.fetch()
        fetched = time.perf_counter()
        pixels = preprocessing(decode())
    except ImageError as reason:
        error = str(reason)
    return Ready(index, image.name, pixels, error, fetched - started, time.perf_counter() - fetched)
