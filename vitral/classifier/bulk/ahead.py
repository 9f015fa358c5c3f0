"""Images prepared by threads while the network computes, in order; an image that cannot be read is reported, not raised."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.data.image_files import LazyImage
from vitral.errors import ImageError
from vitral.images.preprocessing import Preprocessing


@dataclass(frozen=True)
class Ready:
    """An image that was read and prepared, or why it could not be.

    Attributes:
        index: its position among all images.
        name: The image's name in messages.
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


def prepare_ahead(
    images: Iterable[tuple[int, LazyImage]], preprocessing: Preprocessing, *, workers: int, ahead: int
) -> Iterator[Ready]:
    """Give images prepared, in their order.

    Args:
        images: The images with their positions, which are taken as they are needed.
        preprocessing: the network's.
        workers: threads; decoders leave Python to itself while they work.
        ahead: images that are prepared or being prepared at most.
    """
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
