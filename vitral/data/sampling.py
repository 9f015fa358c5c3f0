"""Which examples make the batch at a step: a pure function of (seed, step)."""

import functools

import numpy as np
from jaxtyping import Int64

from vitral.seeds import generator

Indices = Int64[np.ndarray, " batch"]
WINDOW = 8  # shards whose pictures are shuffled together: so many are open at once


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
        num_examples: pictures in the source.
        batch_size: pictures in the batch.
        seed: of the order.
        step: which batch.
        endless: whether to draw at random in place of going through epochs.
        repeats: how often each example stands in its epoch, one after another; the epoch keeps its length, so only a
            share of the examples is seen in it (repeated augmentation; DeiT's samplers.py).
        shards: where shards end, of a source that is best read shard by shard: the shards are shuffled, and the examples
            within every few neighbouring ones.
    """
    if endless:
        return generator(seed, "order", step).integers(0, num_examples, batch_size)
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs, places = positions // num_examples, positions % num_examples
    chosen = [
        _permutation(num_examples, shards, seed, int(epoch))[places[epochs == epoch] // repeats]
        for epoch in np.unique(epochs)
    ]
    return np.concatenate(chosen)


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
