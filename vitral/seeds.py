"""Randomness as a pure function of (seed, purpose, counters), so that nothing is saved or replayed.

The batch at step t, its crops and its dropout come from `generator(seed, "crops", t)` and the like. A run that is resumed at
any step draws the same as an uninterrupted run, whatever the number of workers.
"""

import hashlib

import numpy as np


def derive(seed: int, purpose: str, *counters: int) -> int:
    """Return a 63-bit seed that depends only on the arguments, and is the same on any machine."""
    text = "/".join([str(seed), purpose, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """Return a NumPy generator that depends only on the arguments, and is the same on any machine."""
    return np.random.Generator(np.random.Philox(derive(seed, purpose, *counters)))
