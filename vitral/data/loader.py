"""Batches for training, by step, and for evaluation, in order; the same whatever the number of worker processes."""

import signal
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import cv2
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitral.data.sampling import batch_indices
from vitral.data.source import Source
from vitral.errors import ImageError
from vitral.images.augment import Augmentation, augment
from vitral.images.preprocessing import Preprocessing
from vitral.seeds import generator

PREFETCH = 2  # batches each worker is ahead
GRACE_SECONDS = 10  # that a worker lives on after a termination


@dataclass(frozen=True)
class Prepared:
    """Pictures prepared for a network, with their labels.

    Attributes:
        images: as the network takes them.
        labels: classes.
        indices: places in the source.
    """

    images: Float32[Tensor, "batch 3 height width"]
    labels: Int64[Tensor, " batch"]
    indices: Int64[Tensor, " batch"]


@dataclass(frozen=True)
class Batch:
    """Training pictures with their labels.

    Attributes:
        images: values 0 to 255.
        labels: classes.
        indices: places in the source.
    """

    images: UInt8[Tensor, "batch 3 height width"]
    labels: Int64[Tensor, " batch"]
    indices: Int64[Tensor, " batch"]


class TrainingBatches:
    """The training pictures as batches by step: batch `t` is a pure function of (seed, t).

    Args:
        source: pictures and labels.
        batch_size: pictures a step.
        image_size: height and width, pixels.
        augmentation: how the pictures vary.
        seed: of order and augmentation.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int,
        image_size: tuple[int, int],
        augmentation: Augmentation,
        seed: int,
    ) -> None:
        self.source = source
        self.batch_size = batch_size
        self.image_size = image_size
        self.augmentation = augmentation
        self.seed = seed

    def batch(self, step: int) -> Batch:
        """Return the batch at `step`, counted from 0.

        Raises:
            ImageError: a picture cannot be read.
        """
        indices = batch_indices(
            len(self.source), self.batch_size, seed=self.seed, step=step, endless=self.source.endless
        )
        rng = generator(self.seed, "augmentation", step)
        views = [
            augment(self.source.image(int(index)), self.augmentation, size=self.image_size, rng=rng)
            for index in indices
        ]
        labels = torch.tensor([self.source.label(int(index)) for index in indices])
        return Batch(torch.stack(views), labels, torch.from_numpy(indices))


class _Guarded(Dataset[Any]):
    """Items by number, with an image error as a value: out of a worker an exception would come wrapped in a traceback."""

    def __init__(self, fetch: Callable[[int], Any]) -> None:
        self.fetch = fetch

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401  # whatever is fetched
        try:
            return self.fetch(number)
        except ImageError as error:
            return error


def load_training(
    batches: TrainingBatches, *, first_step: int, last_step: int, workers: int
) -> Generator[Batch, None, None]:
    """Give the batches from `first_step` up to and without `last_step`, in order.

    Raises:
        ImageError: a picture cannot be read.
    """
    yield from _load(batches.batch, range(first_step, last_step), workers=workers)


def load_evaluation(
    source: Source, preprocessing: Preprocessing, *, batch_size: int, workers: int, limit: int | None = None
) -> Iterator[Prepared]:
    """Give every picture once, in order, prepared for the network, in batches.

    Args:
        source: pictures and labels.
        preprocessing: the network's.
        batch_size: pictures at once; the last batch holds the rest.
        workers: processes that decode; 0 decodes here.
        limit: only the first so many pictures.

    Raises:
        ImageError: a picture cannot be read.
    """
    count = len(source) if limit is None else min(limit, len(source))

    def fetch(start: int) -> Prepared:
        indices = range(start, min(start + batch_size, count))
        images = torch.stack([preprocessing(source.image(index)) for index in indices])
        labels = torch.tensor([source.label(index) for index in indices])
        return Prepared(images, labels, torch.tensor(indices))

    yield from _load(fetch, range(0, count, batch_size), workers=workers)


def _load(fetch: Callable[[int], Any], numbers: range, *, workers: int) -> Generator[Any, None, None]:
    loader = DataLoader(
        _Guarded(fetch),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        worker_init_fn=_start_worker,
        prefetch_factor=PREFETCH if workers else None,
    )
    for item in loader:
        if isinstance(item, ImageError):
            raise item
        yield item


def _outlive_termination(number: int, frame: FrameType | None) -> None:
    # A scheduler terminates every process at once; the main one needs its workers until it has saved and closed them.
    signal.alarm(GRACE_SECONDS)


def _start_worker(worker: int) -> None:
    # Ctrl-C goes to every process of the terminal; the main one stops its workers when it has saved.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _outlive_termination)
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
