"""Images that look alike: a look at each, and the pairs that show the same scene.

Two images are near duplicates if the signs of their low frequencies (the perceptual hash of Krawetz's "Looks Like It", 2011)
differ in few bits, and a second look finds the same details in the same places and colours. The hash alone takes coins, letters
or radiographs for one another, which share an outline. The second look tells them apart by correlations:

- of the brightness, once one image is laid over the other, which may be displaced by a thirty-second or be a part of it;
- of the detail: the brightness less its surroundings, over its own contrast, so that a strong outline does not decide;
- of the detail in each of sixteen blocks, of which one may differ;
- and by the difference of the colours, where neither's saturation counts.

None of it changes with the exposure. The thresholds were measured by `benchmarks/look_alikes.py`.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt8, UInt64
from PIL import Image

from vitral.images.decode import Pixels

SIDE = 32  # pixels of the brightness that is compared
COLOURS = 8  # pixels of the colours
HASH = 8  # frequencies a side
LEAST = 3 * SIDE  # pixels that an image's shorter side keeps in decoding
FLAT = 12  # difference between the darkest and the brightest value of an image that shows nothing
NEAR = 8  # bits of 64 in which the hashes of two near duplicates may differ
ZOOM = 1.06  # of an image that may be a part of the other
SHIFT = 1  # pixels by which two images may be displaced
AROUND = 3  # pixels to each side that are a pixel's surroundings
CONTRAST = 50.0  # standard deviation of the brightness that is compared
NOISE = 2.0  # standard deviation of the detail that counts as none
BLOCKS = 4  # a side
# What two near duplicates have at least: correlations of the brightness, of the detail, of the second worst block's detail; and
# at most: the root mean square difference of the colours, of 255.
BRIGHTNESS = 0.88
DETAIL = 0.78
BLOCK = 0.5
COLOUR = 8.0
AT_ONCE = 4096  # pairs
ROWS = 256  # hashes that are compared with others at once

_CYCLES = np.cos(np.pi * (2 * np.arange(SIDE) + 1) * np.arange(HASH)[:, None] / (2 * SIDE)).astype(np.float32)
_GREY = np.full(3, 1 / 3, dtype=np.float32)
Values = Float32[np.ndarray, "pairs side side"]


class Look(NamedTuple):
    """What is kept of an image to compare it with others.

    Attributes:
        code: The signs of its 64 lowest frequencies.
        brightness: Its brightness from 0, the darkest, to 255, the brightest.
        cells: Its colours, coarsely.
    """

    code: int
    brightness: UInt8[np.ndarray, "32 32"]
    cells: UInt8[np.ndarray, "8 8 3"]


def small(height: int, width: int) -> int:
    """Return the factor by which a JPEG may be decoded smaller for a look at it; see `vitral.images.decode.Shrink`."""
    return next((factor for factor in (8, 4, 2) if min(height, width) >= factor * LEAST), 1)


def look_at_image(pixels: Pixels) -> Look | None:
    """Return a look at an image, decoded with `small`; None if it shows nothing, being of one colour."""
    image = Image.fromarray(pixels)
    if min(image.size) >= 2 * LEAST:  # of a format that is not decoded smaller
        image = image.reduce(min(image.size) // LEAST)
    image = image.resize((SIDE, SIDE), Image.Resampling.BOX if min(image.size) > SIDE else Image.Resampling.BICUBIC)
    seen = np.asarray(image)
    if int(seen.max()) - int(seen.min()) < FLAT:
        return None
    brightness = seen @ _GREY
    frequencies = (_CYCLES @ brightness @ _CYCLES.T).ravel()
    ordered = np.sort(frequencies)
    code = np.packbits(frequencies > (ordered[31] + ordered[32]) / 2)
    least, most = float(brightness.min()), float(brightness.max())
    stretched = ((brightness - least) * (255 / max(1.0, most - least)) + 0.5).astype(np.uint8)
    cells = np.asarray(image.resize((COLOURS, COLOURS), Image.Resampling.BOX))
    return Look(int.from_bytes(code.tobytes(), "big"), stretched, cells)


def look_alikes(looks: Sequence[Look | None]) -> list[int]:
    """Return for each image a number that near duplicates have in common, however indirectly; one without a look is alone."""
    seen = [index for index, look in enumerate(looks) if look is not None]
    some = [look for look in looks if look is not None]
    links = Links(len(some))
    codes = np.array([look.code for look in some], dtype=np.uint64)
    for pairs in near_pairs(codes, NEAR):
        while len(pairs := pairs[_apart(links, pairs)]):
            batch, pairs = pairs[:AT_ONCE], pairs[AT_ONCE:]
            for first, second in batch[_same_scene(some, *batch.T)].tolist():
                links.join(first, second)
    roots = links.roots()
    numbers = list(range(len(looks)))
    for index, root in zip(seen, roots, strict=True):
        numbers[index] = seen[root]
    return numbers


def _apart(links: "Links", pairs: Int64[np.ndarray, "pairs 2"]) -> Bool[np.ndarray, " pairs"]:
    """Tell which pairs are not linked yet, as most of the frames of one video soon are."""
    items, places = np.unique(pairs, return_inverse=True)  # not all items: there are many small batches of pairs
    roots = np.array([links.root(item) for item in items.tolist()], dtype=np.int64)[places.reshape(pairs.shape)]
    apart: Bool[np.ndarray, " pairs"] = roots[:, 0] != roots[:, 1]
    return apart


class Links:
    """Items of which some are linked, however indirectly."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def root(self, item: int) -> int:
        """Return the first of the items that an item is linked with."""
        parents = self._parents
        while parents[item] != item:
            parents[item] = parents[parents[item]]
            item = parents[item]
        return item

    def join(self, first: int, second: int) -> None:
        """Link two items."""
        first, second = self.root(first), self.root(second)
        self._parents[max(first, second)] = min(first, second)

    def join_equal(self, keys: Iterable[tuple[int, object]]) -> None:
        """Link the items, each given with a key, that have equal keys."""
        firsts: dict[object, int] = {}
        for item, key in keys:
            self.join(firsts.setdefault(key, item), item)

    def roots(self) -> list[int]:
        """Return each item's first."""
        return [self.root(item) for item in range(len(self._parents))]


def near_pairs(hashes: UInt64[np.ndarray, " images"], distance: int) -> Iterator[Int64[np.ndarray, "pairs 2"]]:
    """Give the pairs of 64-bit hashes that differ in at most `distance` bits, by their indices, many at once, each pair once.

    Of one bit more bands than may differ, at least one is equal in both: only pairs that share a band are compared.
    """
    edges = np.linspace(0, 64, distance + 2).astype(int).tolist()
    bands = [np.uint64(((1 << (high - low)) - 1) << low) for low, high in itertools.pairwise(edges)]
    for number, band in enumerate(bands):
        keys = hashes & band
        order = np.argsort(keys, kind="stable")
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for bucket in np.split(order, cuts):
            for start in range(0, len(bucket), ROWS):
                rows, rest = bucket[start : start + ROWS], bucket[start:]
                differ = hashes[rows, None] ^ hashes[rest]
                new = np.triu(np.bitwise_count(differ) <= distance, 1)
                for earlier in bands[:number]:
                    new &= (differ & earlier) != 0
                one, other = np.nonzero(new)
                yield np.stack([rows[one], rest[other]], axis=1)


def _same_scene(
    looks: Sequence[Look], firsts: Int64[np.ndarray, " pairs"], seconds: Int64[np.ndarray, " pairs"]
) -> Bool[np.ndarray, " pairs"]:
    """Tell of pairs of images whether a second look takes them for near duplicates."""
    cells = [np.stack([looks[index].cells for index in side]).astype(np.float32) for side in (firsts, seconds)]
    same = _colour_difference(*(each - each.mean(axis=3, keepdims=True) for each in cells)) <= COLOUR
    left = np.flatnonzero(same)
    same[:] = False
    for zooms in ((False, False), (True, False), (False, True)):  # one may be a part of the other
        if len(left):
            pair = [_detailed(looks, side[left], zoom) for side, zoom in zip((firsts, seconds), zooms, strict=True)]
            found = _same_details(*pair)
            same[left[found]] = True
            left = left[~found]
    return same


class Detailed(NamedTuple):
    """Images in three forms, each in the order of the pairs that they are of.

    Attributes:
        values: The brightness, of mean 0 and of equal contrast.
        details: What is left of it without the surroundings of each pixel.
        plain: The details, everywhere equally strong.
    """

    values: Values
    details: Values
    plain: Values


def _detailed(looks: Sequence[Look], indices: Int64[np.ndarray, " images"], zoom: bool) -> Detailed:
    items, places = np.unique(indices, return_inverse=True)  # an image is in many pairs where many look alike
    values = np.array([looks[index].brightness for index in items], dtype=np.float32).reshape(-1, SIDE, SIDE)
    values = _standardized(_zoomed(values) if zoom else values)
    details = values - _around(values)
    plain = details / np.sqrt(_around(details**2) + NOISE**2)
    return Detailed(values[places], details[places], plain[places])


def _zoomed(values: Values) -> Values:
    """Return the inner part of images, as large as the whole."""
    places = (np.arange(SIDE) - (SIDE - 1) / 2) / ZOOM + (SIDE - 1) / 2
    weights = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(SIDE))).astype(np.float32)
    zoomed: Values = weights @ values @ weights.T
    return zoomed


def _same_details(first: Detailed, second: Detailed) -> Bool[np.ndarray, " pairs"]:
    steps = range(-SHIFT, SHIFT + 1)
    shifts = [(down, right) for down in steps for right in steps]
    alike = np.stack([_correlation(*_laid_over(first.plain, second.plain, shift)) for shift in shifts])
    best, same = alike.argmax(axis=0), alike.max(axis=0) >= DETAIL
    for number, shift in enumerate(shifts):
        chosen = np.flatnonzero(same & (best == number))
        if len(chosen):
            brightness = _correlation(*_laid_over(first.values[chosen], second.values[chosen], shift), centred=True)
            blocks = _in_blocks(*_laid_over(first.details[chosen], second.details[chosen], shift))
            same[chosen] = (brightness >= BRIGHTNESS) & (np.sort(blocks, axis=1)[:, 1] >= BLOCK)
    return same


def _colour_difference(
    first: Float32[np.ndarray, "pairs 8 8 3"], second: Float32[np.ndarray, "pairs 8 8 3"]
) -> Float32[np.ndarray, " pairs"]:
    """Return the root mean square difference of the colours once both are equally saturated, within bounds."""
    strengths = [np.sqrt((colours**2).mean(axis=(1, 2, 3), keepdims=True) + 1) for colours in (first, second)]
    factor = np.sqrt(np.clip(strengths[1] / strengths[0], 0.6, 1 / 0.6))
    difference: Float32[np.ndarray, " pairs"] = np.sqrt(((first * factor - second / factor) ** 2).mean(axis=(1, 2, 3)))
    return difference


def _standardized(values: Values) -> Values:
    values = values - values.mean(axis=(1, 2), keepdims=True)
    standardized: Values = values * (CONTRAST / np.maximum(values.std(axis=(1, 2), keepdims=True), 1))
    return standardized


def _around(values: Values) -> Values:
    """Return the mean of each pixel's surroundings."""
    width = 2 * AROUND + 1
    for axis in (1, 2):
        padding = [(0, 0)] * 3
        padding[axis] = (AROUND + 1, AROUND)
        sums = np.cumsum(np.pad(values, padding, mode="edge"), axis=axis, dtype=np.float64)
        values = ((np.take(sums, range(width, width + SIDE), axis) - np.take(sums, range(SIDE), axis)) / width).astype(
            np.float32
        )
    return values


def _laid_over(first: Values, second: Values, shift: tuple[int, int]) -> tuple[Values, Values]:
    """Return what pairs of images have in common if the second ones are displaced."""
    inner = slice(SHIFT, SIDE - SHIFT)
    down, right = (slice(SHIFT + by, SIDE - SHIFT + by) for by in shift)
    return first[:, inner, inner], second[:, down, right]


def _correlation(first: Values, second: Values, *, centred: bool = False) -> Float32[np.ndarray, " pairs"]:
    if centred:
        first, second = (values - values.mean(axis=(1, 2), keepdims=True) for values in (first, second))
    products = [np.einsum("pyx,pyx->p", *pair) for pair in ((first, second), (first, first), (second, second))]
    correlation: Float32[np.ndarray, " pairs"] = products[0] / np.sqrt(products[1] * products[2] + 1e-6)
    return correlation


def _in_blocks(first: Values, second: Values) -> Float32[np.ndarray, "pairs blocks"]:
    """Return the correlation of the detail in each block; blocks without any correlate."""
    edges = np.linspace(0, SIDE - 2 * SHIFT, BLOCKS + 1).astype(int)[:-1]

    def sums(values: Values) -> Values:
        totals: Values = np.add.reduceat(np.add.reduceat(values, edges, axis=1), edges, axis=2)
        return totals

    none = NOISE**2 / 2 * sums(np.ones_like(first[:1]))
    products = [sums(one * other) + none for one, other in ((first, second), (first, first), (second, second))]
    blocks: Float32[np.ndarray, "pairs blocks"] = (products[0] / np.sqrt(products[1] * products[2])).reshape(
        len(first), -1
    )
    return blocks
