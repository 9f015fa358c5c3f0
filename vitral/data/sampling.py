"""Which examples make the batch at a step: a pure function of (seed, step)."""

import functools

import numpy as np
from jaxtyping import Int64

from vitral.seeds import generator

Indices = Int64[np.ndarray, " batch"]


def batch_indices(num_examples: int, batch_size: int, *, seed: int, step: int, endless: bool = False) -> Indices:
    """Return the indices of the batch at `step`, counted from 0.

    Every epoch is a fresh permutation, and epochs follow one another without a gap: a batch may hold the last examples of
    one and the first of the next, so every example is seen equally often. An endless source is drawn from at random.
    """
    if endless:
        return generator(seed, "order", step).integers(0, num_examples, batch_size)
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs, places = positions // num_examples, positions % num_examples
    chosen = [_permutation(num_examples, seed, int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)]
    return np.concatenate(chosen)


@functools.lru_cache(maxsize=4)
def _permutation(num_examples: int, seed: int, epoch: int) -> Indices:
    return generator(seed, "order", epoch).permutation(num_examples)
