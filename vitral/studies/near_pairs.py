"""Which of many perceptual hashes are nearly the same, without comparing each with each."""

import itertools
from collections.abc import Iterator

import numpy as np
from jaxtyping import UInt64


def near_pairs(hashes: UInt64[np.ndarray, " images"], distance: int) -> Iterator[tuple[int, int]]:
    """Give the pairs of 64-bit hashes that differ in at most `distance` bits.

    Of one bit more bands than may differ, at least one is equal in both: only pairs that share a band are compared.
    """
    bands = distance + 1
    edges = np.linspace(0, 64, bands + 1).astype(int)
    for low, high in itertools.pairwise(edges.tolist()):
        keys = (hashes >> np.uint64(low)) & np.uint64((1 << (high - low)) - 1)
        order = np.argsort(keys, kind="stable")
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for bucket in np.split(order, cuts):
            for place, one in enumerate(bucket[:-1].tolist()):
                rest = bucket[place + 1 :]
                close = np.bitwise_count(hashes[rest] ^ hashes[one]) <= distance
                yield from ((one, int(other)) for other in rest[close])
