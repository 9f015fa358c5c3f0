"""Batches of prepared images: from an iterator, or from a whole source, each image exactly once."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from vitral import distributed
from vitral.data.loader import CLASS_NUMBERS, Encode, load_evaluation
from vitral.data.source import Source
from vitral.errors import DataError, ModelError, Stopped
from vitral.events import Listener, Progress
from vitral.images.preprocessing import Preprocessing
from vitral.models.model import Images
from vitral.tasks.task import Targets

Image = Float[Tensor, "3 height width"]


def in_batches(images: Iterable[tuple[str, Image]], batch_size: int) -> Iterator[tuple[tuple[str, ...], list[Image]]]:
    """Give so many named images at once with their names, in order; only these are in memory.

    Raises:
        ModelError: `batch_size` is below 1.
    """
    _check_batch_size(batch_size)
    images = iter(images)
    while batch := list(islice(images, batch_size)):
        names, prepared = zip(*batch, strict=True)
        yield names, list(prepared)


def collect(
    compute: Callable[[Images], Float[Tensor, "batch values"]],
    source: Source,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    workers: int = 0,
    limit: int | None = None,
    purpose: str,
    listener: Listener,
    encode: Encode = CLASS_NUMBERS,
    stop: Callable[[], bool] | None = None,
) -> tuple[Float[Tensor, "examples values"], Targets]:
    """Return one row of values and the label of every image of a source, in order, each exactly once.

    The processes of a job share the images out, and each ends with all rows.

    Args:
        compute: Computes the rows of a batch of prepared images, on the CPU.
        source: Images and labels.
        preprocessing: The preprocessing of the images.
        batch_size: Images computed at once.
        workers: Processes that decode; 0 decodes here.
        limit: Images to take of an endless source; a finite one is always taken whole.
        purpose: The name under which the listener hears of the progress.
        listener: What receives progress.
        encode: Makes a tensor of labels; class numbers if left out.
        stop: Says after every batch, in every process alike, whether to stop.

    Raises:
        Stopped: `stop` said so.
        DataError: The source is empty.
        ImageError: An image cannot be read.
        ModelError: `batch_size` is below 1.
    """
    count = min(len(source), limit) if source.endless and limit is not None else len(source)
    if count == 0:
        raise DataError("There are no images to evaluate; name a split that has some.")
    _check_batch_size(batch_size)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    done = 0
    mine = load_evaluation(
        source,
        preprocessing,
        batch_size=batch_size,
        workers=workers,
        limit=count,
        encode=encode,
        rank=distributed.rank(),
        world=distributed.world(),
    )
    for batch in mine:
        rows = compute(batch.images)
        parts.append((batch.indices, rows[: len(batch.indices)], batch.labels))
        done += len(batch.indices)
        listener(Progress(purpose, min(count, done * distributed.world()), count))
        if stop is not None and stop():
            raise Stopped
    every = [part for theirs in distributed.gather(parts) for part in theirs]
    indices, values, labels = (torch.cat([part[column] for part in every]) for column in range(3))
    order = indices.argsort()
    assert torch.equal(indices[order], torch.arange(count)), f"{len(indices)} images were counted, not {count}"
    return values[order], labels[order]


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ModelError(f"A batch has at least one image, not {batch_size}; set batch_size to 1 or more.")
