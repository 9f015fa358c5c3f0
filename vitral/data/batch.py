"""A batch of training images: which examples are in it at a step, a pure function of (seed, step), and its parts.

A batch may be cut into parts that go through a model one after another.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from vitral.seeds import generator
from vitral.tasks.task import Targets

Item = TypeVar("Item")
Indices = Int64[np.ndarray, " batch"]
WINDOW = 8  # shards whose images are shuffled together, and which are open at once


@dataclass(frozen=True)
class Batch:
    """Training images with their labels.

    Attributes:
        images: The pixels, values 0 to 255.
        labels: The labels as the task encodes them; -1 where they are not read.
        indices: The indices of the images in their source.
        first: The index of the first image in the whole batch, of which this may be one process's part.
        whole: The number of images in the whole batch; None where this is all of it.
        partner: Whether there is an image before the first, which only mixing uses.
        more: Further views of the same images.
        erasing: The fraction of the images of each view in which a random box is still to be erased.
        extra: The images of further sources, by the source's name.
    """

    images: UInt8[Tensor, "batch 3 height width"]
    labels: Targets
    indices: Int64[Tensor, " batch"]
    first: int = 0
    whole: int | None = None
    partner: bool = False
    more: tuple[UInt8[Tensor, "batch 3 other_height other_width"], ...] = ()
    erasing: tuple[float, ...] = (0.0,)
    extra: Mapping[str, "Batch"] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images) - self.partner

    @property
    def total(self) -> int:
        """How many images the whole batch has."""
        return len(self) if self.whole is None else self.whole

    def pin_memory(self) -> "Batch":
        """Return the batch in pinned memory, from which a GPU copies without waiting."""
        return replace(
            self,
            images=self.images.pin_memory(),
            labels=self.labels.pin_memory(),
            more=tuple(view.pin_memory() for view in self.more),
            extra={name: batch.pin_memory() for name, batch in self.extra.items()},
        )

    def cut(self, size: int) -> Iterator["Batch"]:
        """Cut the batch into parts of `size` images, the last of which has the rest; further sources are cut evenly."""
        starts = range(0, len(self), size)
        for number, start in enumerate(starts):
            yield self._part(start, min(start + size, len(self)), number, len(starts))

    def _part(self, start: int, end: int, number: int, parts: int) -> "Batch":
        held = slice(start, end + self.partner)
        extra = {
            name: other._part(number * len(other) // parts, (number + 1) * len(other) // parts, number, parts)
            for name, other in self.extra.items()
        }
        return Batch(
            self.images[held],
            self.labels[held],
            self.indices[held],
            self.first + start,
            self.total,
            self.partner,
            tuple(view[held] for view in self.more),
            self.erasing,
            extra,
        )


def evenly(items: Sequence[Item], most: int | None) -> list[Item]:
    """Return at most so many items, evenly spaced; all for None."""
    if most is None or len(items) <= most:
        return list(items)
    return [items[index] for index in np.linspace(0, len(items) - 1, most).astype(int).tolist()]


def batch_indices(
    num_examples: int,
    batch_size: int,
    *,
    seed: int,
    step: int,
    endless: bool = False,
    repeats: int = 1,
    shards: tuple[int, ...] = (),
) -> Indices:
    """Return the indices of the batch at `step`, counted from 0.

    Every epoch is a fresh permutation, and epochs follow one another without a gap: a batch may hold the last examples of
    one and the first of the next, so every example is seen equally often. An endless source is drawn from at random.

    Args:
        num_examples: The number of images in the source.
        batch_size: The number of images in the batch.
        seed: The seed of the shuffling.
        step: The number of the batch.
        endless: Whether to draw at random instead of going through epochs.
        repeats: The number of times that each example occurs in its epoch, mostly in one batch; the epoch keeps its length,
            so only a fraction of the examples is seen in it (repeated augmentation; DeiT's samplers.py). The copies in a
            batch are kept apart, as they are on DeiT's many devices, so that MixUp and CutMix do not mix an example with
            itself.
        shards: The ends of the shards, in a source that is best read shard by shard: the shards are shuffled, and then the
            examples within each window of shards.
    """
    if endless:
        drawn = generator(seed, "order", step).integers(0, num_examples, -(-batch_size // repeats))
        return _apart(np.repeat(drawn, repeats)[:batch_size], repeats)
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs, offsets = positions // num_examples, positions % num_examples
    indices = [
        _permutation(num_examples, shards, seed, int(epoch))[offsets[epochs == epoch] // repeats]
        for epoch in np.unique(epochs)
    ]
    return _apart(np.concatenate(indices), repeats)


class ClassDraw:
    """Draws images at random: first the class by the classes' shares, then any of its images (arXiv 1910.09217, section 3.1).

    The shares sum to 1, and are 0 for a class without images; images without a class (-1) are not drawn.
    """

    def __init__(self, labels: Int64[np.ndarray, " examples"], shares: Float32[np.ndarray, " classes"]) -> None:
        self.by_class = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]
        self.counts = np.bincount(labels[labels >= 0], minlength=len(shares))
        self.first = np.cumsum(self.counts) - self.counts
        self.ends = np.cumsum(shares, dtype=np.float64)

    def indices(self, batch_size: int, *, seed: int, step: int, repeats: int = 1) -> Indices:
        """Return the indices of the batch at `step`, as `batch_indices` does."""
        rng = generator(seed, "order", step)
        drawn = rng.random((2, -(-batch_size // repeats)))
        classes = np.searchsorted(self.ends, drawn[0] * self.ends[-1], side="right")
        chosen = self.by_class[self.first[classes] + (drawn[1] * self.counts[classes]).astype(np.int64)]
        return _apart(np.repeat(chosen, repeats)[:batch_size], repeats)


def batch_passes(num_examples: int, batch_size: int, *, step: int, endless: bool = False, repeats: int = 1) -> Indices:
    """Return of each row of `batch_indices` the pass over the data, counted from 0, that it belongs to; 0 without end."""
    if endless:
        return np.zeros(batch_size, dtype=np.int64)
    return _apart(np.arange(step * batch_size, (step + 1) * batch_size) // num_examples, repeats)


def _apart(indices: Indices, repeats: int) -> Indices:
    """Take every `repeats`-th index first, then those after them, and so on: neighbours differ, also the last and the first."""
    return indices[np.argsort(np.arange(len(indices)) % repeats, kind="stable")]


@functools.lru_cache(maxsize=4)
def _permutation(num_examples: int, shards: tuple[int, ...], seed: int, epoch: int) -> Indices:
    rng = generator(seed, "order", epoch)
    if not shards:
        return rng.permutation(num_examples)
    assert shards[-1] == num_examples
    order = rng.permutation(len(shards))
    begins = (0, *shards[:-1])
    windows = (order[first : first + WINDOW] for first in range(0, len(order), WINDOW))
    parts = [np.concatenate([np.arange(begins[shard], shards[shard]) for shard in window]) for window in windows]
    return np.concatenate([rng.permutation(part) for part in parts])
