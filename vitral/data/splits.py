"""Stratified splits as a pure function of labels and seed."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from vitral.seeds import generator

Indices = Int64[np.ndarray, " examples"]


def stratified(labels: Indices, shares: Sequence[float], *, seed: int, purpose: str) -> list[Indices]:
    """Split examples class by class.

    Args:
        labels: the class of each example.
        shares: the fraction of each part but the first, which takes the rest.
        seed: of the random choice.
        purpose: what the split is for, so that two splits under one seed differ.

    Returns:
        The indices of each part, ascending. A class with as many examples as there are parts or more has at least one in
        every part; of a smaller class the first part takes all.
    """
    parts: list[list[int]] = [[] for _ in range(len(shares) + 1)]
    for label in np.unique(labels):
        members = generator(seed, f"split/{purpose}", int(label)).permutation(np.flatnonzero(labels == label))
        counts = [max(1, round(share * len(members))) for share in shares]
        if len(members) < len(parts) or sum(counts) >= len(members):
            counts = [0] * len(shares) if len(members) < len(parts) else [1] * len(shares)
        start = 0
        for part, count in zip(parts[1:], counts, strict=True):
            part.extend(members[start : start + count].tolist())
            start += count
        parts[0].extend(members[start:].tolist())
    return [np.array(sorted(part), dtype=np.int64) for part in parts]
