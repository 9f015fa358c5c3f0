"""Images that are the same, or nearly: equal pixels, and perceptual hashes that differ in a few bits."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import UInt64

from vitral.checks.findings import Duplicates
from vitral.checks.inspection import FLAT, InspectedImage

NEAR = 4  # bits of 64 in which the perceptual hashes of two near duplicates may differ


def duplicates(inspected: Sequence[InspectedImage]) -> list[Duplicates]:
    """Return the groups of duplicates: those across splits first, then those with contradictory classes."""
    groups = [*_exact(inspected), *_near(inspected)]
    return sorted(groups, key=lambda group: (not group.leaks, not group.contradicts))


def _exact(inspected: Sequence[InspectedImage]) -> Iterator[Duplicates]:
    groups: dict[tuple[str, int, int], list[InspectedImage]] = defaultdict(list)
    for image in inspected:
        groups[image.digest, image.height, image.width].append(image)
    yield from (_group("exact", group) for group in groups.values() if len(group) > 1)


def _near(inspected: Sequence[InspectedImage]) -> Iterator[Duplicates]:
    """Give groups that are linked by pairs whose hashes differ in few bits; equal pixels are left to `_exact`."""
    varied = [image for image in inspected if image.deviation >= FLAT]
    distinct = list({image.digest: image for image in reversed(varied)}.values())[::-1]  # the first of equal ones
    hashes = np.array([image.perceptual for image in distinct], dtype=np.uint64)
    groups: dict[int, list[InspectedImage]] = defaultdict(list)
    for image, root in zip(distinct, _linked(len(distinct), near_pairs(hashes, NEAR)), strict=True):
        groups[root].append(image)
    yield from (_group("near", group) for group in groups.values() if len(group) > 1)


def _linked(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return for each of some items a number that those have in common which pairs link, however indirectly."""
    parent = list(range(count))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for first, second in pairs:
        parent[root(first)] = root(second)
    return [root(item) for item in range(count)]


def _group(kind: str, inspected: Sequence[InspectedImage]) -> Duplicates:
    return Duplicates(
        kind,
        tuple(image.name for image in inspected),
        tuple(image.split for image in inspected),
        tuple(", ".join(image.classes) for image in inspected),
    )


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
            for position, first in enumerate(bucket[:-1].tolist()):
                rest = bucket[position + 1 :]
                close = np.bitwise_count(hashes[rest] ^ hashes[first]) <= distance
                yield from ((first, int(second)) for second in rest[close])
