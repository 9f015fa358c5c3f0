"""Batches for training, by step, and for evaluation, in order; independent of the number of worker processes."""

import contextlib
import functools
import os
import re
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import repeat
from types import FrameType
from typing import Any

import cv2
import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitral.advice import argument
from vitral.data.batch import Batch, ClassDraw, Indices, batch_indices, batch_passes
from vitral.data.image_cache import CachedImages
from vitral.data.source import Source, class_images
from vitral.errors import DataError, ImageError, PluginError
from vitral.images.augment import Augmentation, TrainingView, training_view
from vitral.images.pillow_operations import Colour
from vitral.images.policies import GREY
from vitral.images.preprocessing import Preprocessing
from vitral.machine import in_threads
from vitral.plugins import Needed
from vitral.seeds import derive, generator
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Label, Targets, Task

LOST_WORKER = re.compile(r"DataLoader worker .*(killed by signal|exited unexpectedly)")
FETCHING = "multiprocessing"  # in the path of torch's file that fetches from workers
PREFETCH = 2  # batches that each worker prepares ahead
GRACE_SECONDS = 60  # that a worker outlives a SIGTERM at most, because the main process may be in a long update


Encode = Callable[[Sequence[Label]], Targets]
CLASS_NUMBERS: Encode = functools.partial(SINGLE_LABEL.encode, num_classes=0)


@dataclass(frozen=True)
class Prepared:
    """Images prepared for a model, with their labels as the task encodes them, and their positions in the source."""

    images: Float32[Tensor, "batch 3 height width"]
    labels: Targets
    indices: Int64[Tensor, " batch"]


@dataclass(eq=False, repr=False)
class TrainingBatches:
    """The training images as batches by step: batch `t` is a pure function of (seed, t).

    Each image's view is a function of (seed, t, its position in the batch) alone, so it does not depend on how many
    processes share a batch, nor on how many workers prepare it.

    Attributes:
        source: Images and labels.
        batch_size: The number of images per step, over all processes.
        image_size: Height and width, pixels.
        augmentation: The changes by which the images vary.
        seed: The seed of order and augmentation.
        task: The task, which says what a label is.
        num_classes: The number of classes; a single-label task does not need it.
        rank: The index of this process among those that share a batch.
        world: The number of processes; each has a contiguous part of the batch.
        partner: Whether the image before the first is also returned, with which mixing mixes it.
        labelled: Whether the source's labels are read; if not, each is -1.
        more: The augmentations of further views of the same images.
        extra: Batches of further sources by name, which come with these.
        fill: The colour that timm's RandAugment fills in beyond the edge: red, green, blue, 0 to 255.
        shares: Each class's share of the images that are drawn at random; None to see every image equally often.

    Raises:
        DataError: the batch is not divisible by the number of processes.
    """

    source: Source
    _: KW_ONLY
    batch_size: int
    image_size: tuple[int, int]
    augmentation: Augmentation
    seed: int
    task: Task = SINGLE_LABEL
    num_classes: int = 0
    rank: int = 0
    world: int = 1
    partner: bool = False
    labelled: bool = True
    more: Sequence[Augmentation] = ()
    extra: Mapping[str, "TrainingBatches"] = field(default_factory=dict)
    fill: Colour = GREY
    shares: Float32[Tensor, " classes"] | None = None

    def __post_init__(self) -> None:
        self._by_class = None if self.shares is None else ClassDraw(self.source.labels(), self.shares.numpy())
        if self.batch_size % self.world:
            raise DataError(f"A batch of {self.batch_size} images cannot be shared by {self.world} processes evenly.")
        self._images: list[Source | CachedImages] = [
            CachedImages(self.source, how, self.image_size) if how.decode == "kept" else self.source
            for how in (self.augmentation, *self.more)
        ]

    def at(self, image_size: tuple[int, int], views: Sequence[Augmentation] = ()) -> "TrainingBatches":
        """Return the same batches with their images, and those of further sources, at another size in pixels.

        Args:
            image_size: The height and width, pixels.
            views: The changes by which the images vary in each view, those of further sources left out; empty for as
                before.

        Returns:
            These batches themselves where nothing differs, with the images that they have decoded.
        """
        augmentation, *more = views or (self.augmentation, *self.more)
        if (image_size, augmentation, more) == (self.image_size, self.augmentation, list(self.more)):
            return self
        extra = {name: batches.at(image_size) for name, batches in self.extra.items()}
        return replace(self, image_size=image_size, augmentation=augmentation, more=tuple(more), extra=extra)

    def open(self) -> list[str]:
        """Take the memory of images that are kept decoded; return a line for each view for which it is too little."""
        lines = [line for images in self._images if isinstance(images, CachedImages) for line in images.open()]
        return lines + [line for batches in self.extra.values() for line in batches.open()]

    def class_images(self) -> tuple[int, ...]:
        """Return the number of images of each class; empty where an image has not exactly one, or there is no end."""
        return class_images(self.source, self.task, self.num_classes)

    def indices(self, step: int) -> Indices:
        """Return the positions in the source of the whole batch at `step`, counted from 0."""
        if self._by_class is not None:
            return self._by_class.indices(self.batch_size, seed=self.seed, step=step, repeats=self.augmentation.repeats)
        return batch_indices(
            len(self.source),
            self.batch_size,
            seed=self.seed,
            step=step,
            endless=self.source.endless,
            repeats=self.augmentation.repeats,
            shards=self.source.shards,
        )

    def batch(self, step: int) -> Batch:
        """Return this process's part of the batch at `step`, counted from 0, or raise ImageError if an image cannot be read."""
        indices = self.indices(step)
        size = self.batch_size // self.world
        first = self.rank * size
        rows = np.arange(first - self.partner, first + size) % self.batch_size
        part = indices[rows]
        views = [self._views(step, rows, part, number) for number in range(1 + len(self.more))]
        pixels = [torch.stack([view.pixels for view in each]) for each in views]
        return Batch(
            pixels[0],
            self._labels(part, views[0]),
            torch.from_numpy(part),
            first,
            self.batch_size,
            self.partner,
            tuple(pixels[1:]),
            tuple(augmentation.erasing for augmentation in (self.augmentation, *self.more)),
            {name: batches.batch(step) for name, batches in self.extra.items()},
        )

    def _labels(self, indices: Indices, views: Sequence[TrainingView]) -> Targets:
        """Return the labels of images as they are of their first views."""
        if not self.labelled:
            return torch.full((len(indices),), -1)
        pairs = zip(indices.tolist(), views, strict=True)
        labels = [self.task.follow(self.source.label(index), view.geometry) for index, view in pairs]
        return self.task.encode(labels, self.num_classes)

    def _views(self, step: int, rows: Indices, indices: Indices, number: int) -> list[TrainingView]:
        """Return one view of each of the images that stand in some rows of the whole batch."""
        augmentation = (self.augmentation, *self.more)[number]
        counters = (number,) if number else ()
        mirrored = self._mirrored(step, rows, indices, counters) if augmentation.flip == "alternating" else repeat(None)
        views = []
        for row, index, flip in zip(rows.tolist(), indices.tolist(), mirrored, strict=False):
            rng = generator(self.seed, "augmentation", step, row, *counters)
            read = functools.partial(self._images[number].image, index)
            view = training_view(read, augmentation, size=self.image_size, rng=rng, fill=self.fill, mirrored=flip)
            views.append(view)
        return views

    def _mirrored(self, step: int, rows: Indices, indices: Indices, counters: tuple[int, ...]) -> list[bool]:
        """Return which images are mirrored: in even passes by a fair draw of the image's own, in odd ones the others."""
        endless, repeats = self.source.endless or self._by_class is not None, self.augmentation.repeats
        passes = batch_passes(len(self.source), self.batch_size, step=step, endless=endless, repeats=repeats)[rows]
        first = [derive(self.seed, "mirrored", index, *counters) % 2 for index in indices.tolist()]
        return [bool((draw + number) % 2) for draw, number in zip(first, passes.tolist(), strict=True)]


class _Guarded(Dataset[Any]):
    """Items by number, with an image error as a value: from a worker an exception would come wrapped in a traceback."""

    def __init__(self, fetch: Callable[[int], Any]) -> None:
        self.needed = Needed()  # first, because a spawned worker unpickles in this order, and `fetch` may need a plugin
        self.fetch = fetch

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401  # any fetched value
        try:
            return self.fetch(number)
        except (ImageError, DataError, PluginError) as error:
            return error


def load_training(
    batches: TrainingBatches, *, first_step: int, last_step: int, workers: int
) -> Generator[Batch, None, None]:
    """Yield the batches from `first_step` up to `last_step`, which is excluded, in order.

    Raises:
        ImageError: an image cannot be read.
        DataError: a shard cannot be read.
    """
    batches.open()
    yield from _load(batches.batch, range(first_step, last_step), workers=workers)


def load_evaluation(
    source: Source,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    workers: int,
    limit: int | None = None,
    encode: Encode = CLASS_NUMBERS,
    rank: int = 0,
    world: int = 1,
) -> Iterator[Prepared]:
    """Yield every image once, in order, prepared for the model, in batches.

    Of n processes each has every n-th batch. All have the same number of batches, since their models may need to
    communicate: a process without one in the last round gets images without labels and indices, which do not count. With 0
    workers this process decodes, in threads; a limit takes the first images; labels are class numbers unless `encode` makes
    others.

    Raises:
        ImageError: an image cannot be read.
    """
    count = len(source) if limit is None else min(limit, len(source))

    threads = workers == 0 and not source.endless and not source.shards
    fetch = functools.partial(_prepared, source, preprocessing, encode, batch_size, count, threads)
    rounds = range(rank * batch_size, count, batch_size * world)
    yield from _load(fetch, rounds, workers=workers)
    if len(rounds) < len(range(0, count, batch_size * world)):
        idle = fetch(0)
        yield Prepared(idle.images[:1], idle.labels[:0], idle.indices[:0])


def _prepared(
    source: Source,
    preprocessing: Preprocessing,
    encode: Encode,
    batch_size: int,
    count: int,
    threads: bool,
    start: int,
) -> Prepared:
    indices = range(start, min(start + batch_size, count))

    def prepare(index: int) -> Float32[Tensor, "3 height width"]:
        return preprocessing(source.image(index))

    if threads:
        with _one_thread_each():
            images = torch.stack(list(in_threads(prepare, indices)))
    else:
        images = torch.stack([prepare(index) for index in indices])
    labels = encode([source.label(index) for index in indices])
    return Prepared(images, labels, torch.tensor(indices))


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let threads that begin in the block compute with one of torch's own each: together they have all cores already."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _load(fetch: Callable[[int], Any], numbers: range, *, workers: int) -> Generator[Any, None, None]:
    with warnings.catch_warnings():
        # It warns of more workers than cores, which is fine here.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = DataLoader(
            _Guarded(fetch),
            batch_size=None,
            sampler=numbers,
            num_workers=min(workers, os.cpu_count() or 1),  # a recipe's number is meant for another machine
            worker_init_fn=_start_worker,
            prefetch_factor=PREFETCH if workers else None,
            pin_memory=torch.cuda.is_available(),
        )
        with _keeping_child_signals():
            items = iter(loader)
    while True:
        with _losing_a_worker():
            item = next(items, None)
        if item is None:
            return
        if isinstance(item, ImageError | DataError | PluginError):
            try:
                raise item
            finally:  # the error keeps this frame: workers that wait for the garbage collector end seconds late
                del item, items
        yield item


@contextlib.contextmanager
def _keeping_child_signals() -> Iterator[None]:
    """Undo torch's signal handler, which for a lost worker raises an error even in the middle of an update.

    The loss is also noticed at the next wait for a batch, some seconds later.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):  # as on Windows
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    yield
    if before is not None:
        signal.signal(signal.SIGCHLD, before)


@contextlib.contextmanager
def _losing_a_worker() -> Iterator[None]:
    """Turn what torch raises for a lost worker into one line."""
    try:
        yield
    except (RuntimeError, OSError, EOFError) as error:
        text = " ".join(str(error).split())
        if not LOST_WORKER.search(text) and not _of_a_worker(error):
            raise
        raise DataError(
            f"A process that prepares images was killed ({text[:120] or type(error).__name__}), perhaps for lack of "
            f"memory; continue with {argument('resume', True)}, with fewer of them by "
            f"{argument('overrides', ['workers=1'])}, or with none by {argument('overrides', ['workers=0'])}."
        ) from error


def _of_a_worker(error: BaseException) -> bool:
    """Tell whether an error occurred while the main process fetched from a worker."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return not isinstance(error, RuntimeError) and any(FETCHING in file for file in files)


def _outlive_termination(number: int, frame: FrameType | None) -> None:
    # A scheduler sends SIGTERM to every process at once; the main one needs its workers until it has saved.
    # A second SIGTERM comes from the main process, when it is done.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.alarm(GRACE_SECONDS)


def _start_worker(worker: int) -> None:
    # Ctrl-C and the terminal's end go to each of its processes; the main one stops its workers after it has saved.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _outlive_termination)
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
