"""Which examples make the batch at a step: a pure function of (seed, step)."""

import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from vitral.seeds import generator

Item = TypeVar("Item")
Indices = Int64[np.ndarray, " batch"]
WINDOW = 8  # shards whose images are shuffled together, and which are open at once


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
