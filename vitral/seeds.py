"""Randomness as a pure function of (seed, purpose, counters): nothing to save, nothing to replay.

The batch at step t, its crops and its dropout come from `generator(seed, "crops", t)` and the like, so a run
resumed at any step draws what an uninterrupted run draws, whatever the number of workers.
"""

import hashlib

import numpy as np


def derive(seed: int, purpose: str, *counters: int) -> int:
    """Return a 63-bit seed that depends only on the arguments, on any machine."""
    text = "/".join([str(seed), purpose, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """Return a NumPy generator that depends only on the arguments, on any machine."""
    return np.random.Generator(np.random.Philox(derive(seed, purpose, *counters)))
