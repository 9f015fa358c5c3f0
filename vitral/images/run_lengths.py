"""Masks as run lengths, in COCO's order: columns from left to right, each from top to bottom; the first run is background.

The mask [[0, 1], [1, 1]] is (1, 3): one pixel outside, three inside (pycocotools' maskApi.c, `rleEncode`). As text, a run is
the difference from the run two before it, in groups of five bits from the least on, each a character from "0" on; its sixth bit
says that more groups follow (`rleToString`).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int64, UInt8, UInt32

RunLengths = UInt32[np.ndarray, " runs"]
MOST_GROUPS = 7  # of five bits, in the difference of two runs
Bitmap = Bool[np.ndarray, "height width"]
Part = Bitmap | UInt8[np.ndarray, "height width"]


def encode_mask(mask: Bitmap) -> RunLengths:
    """Return the run lengths of a mask; only the box around what is inside is gone through."""
    left, top, right, bottom = map(int, tight_box(mask))
    return encode_part(mask[top:bottom, left:right], (top, left), (mask.shape[0], mask.shape[1]))


def encode_part(part: Part, corner: tuple[int, int], size: tuple[int, int]) -> RunLengths:
    """Return the run lengths of a mask of which only a part is given; outside of it nothing is in the mask.

    Args:
        part: The part of the mask.
        corner: The first row and the first column of the part.
        size: Height and width of the whole mask, pixels.
    """
    return encode_parts([part], [corner], size)[0]


def encode_parts(parts: Sequence[Part], corners: Sequence[tuple[int, int]], size: tuple[int, int]) -> list[RunLengths]:
    """Return what `encode_part` gives for each of some masks of one size; what is not 0 is in a mask."""
    pixels, shapes = size[0] * size[1], np.array([part.shape for part in parts], dtype=np.int64).reshape(-1, 2)
    steps = shapes[:, 0] + 1  # column after column, each with a gap behind it, in which every run ends
    ends = np.cumsum(steps * shapes[:, 1])
    starts = ends - steps * shapes[:, 1]
    line = np.zeros(1 + int(ends.max(initial=0)), dtype=bool)
    for part, start, end in zip(parts, starts.tolist(), ends.tolist(), strict=True):
        line[1 + start : 1 + end].reshape(part.shape[1], part.shape[0] + 1)[:, :-1] = part.T
    changes = np.flatnonzero(line[1:] != line[:-1])
    owners = np.searchsorted(ends, changes, side="right")
    columns, rows = np.divmod(changes - starts[owners], steps[owners])
    tops, lefts = np.array(corners, dtype=np.int64).reshape(-1, 2).T
    firsts = np.arange(len(parts)) * (pixels + 1)  # of each mask, on a line of all masks, each with its end
    places = firsts[owners] + (columns + lefts[owners]) * size[0] + rows + tops[owners]
    places = np.union1d(without_twins(places), firsts + pixels)
    begins = np.searchsorted(places, firsts)
    runs = np.diff(places, prepend=0)
    runs[begins] = places[begins] - firsts
    return np.split(runs.astype(np.uint32), begins[1:])[: len(parts)]  # which gives one of none


def without_twins(changes: Int64[np.ndarray, " changes"]) -> Int64[np.ndarray, " changes"]:
    """Return ascending places where a mask begins and ends by turns, without pairs that are equal: there it goes on."""
    twice = np.flatnonzero(changes[1:] == changes[:-1])
    return np.delete(changes, [twice, twice + 1])


def runs_between(changes: Int64[np.ndarray, " changes"], pixels: int) -> RunLengths:
    """Return run lengths from the pixels where a mask begins and ends by turns; where two are equal, it goes on."""
    changes = without_twins(changes)
    ends = changes if len(changes) and changes[-1] == pixels else np.append(changes, pixels)
    return np.diff(ends, prepend=0).astype(np.uint32)


def decode_mask(runs: RunLengths, size: tuple[int, int]) -> Bitmap:
    """Return the mask of run lengths; `size` is its height and width, pixels."""
    height, width = size
    inside = np.arange(len(runs)) % 2 == 1
    pixels = np.repeat(inside, runs)
    assert len(pixels) == height * width, f"runs of {len(pixels)} pixels for a mask of {height} x {width}"
    return pixels.reshape(width, height).T


def mask_area(runs: RunLengths) -> int:
    """Return the number of pixels inside."""
    return int(runs[1::2].sum())


def tight_box(mask: Bitmap) -> tuple[float, float, float, float]:
    """Return the smallest box around a mask: left, top, right, bottom, continuous; all 0 for an empty one."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return 0.0, 0.0, 0.0, 0.0
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def runs_box(runs: RunLengths, height: int) -> tuple[float, float, float, float]:
    """Return the `tight_box` of run lengths; `height` is the mask's, pixels."""
    ends = np.cumsum(runs, dtype=np.int64)
    first, last = ends[:-1:2], ends[1::2] - 1  # pixels of the runs inside
    first, last = first[last >= first], last[last >= first]
    if not len(first):
        return 0.0, 0.0, 0.0, 0.0
    within = first // height == last // height  # others go on in the next column, through both borders
    top = np.where(within, first % height, 0).min()
    bottom = np.where(within, last % height, height - 1).max() + 1
    return float(first[0] // height), float(top), float(last[-1] // height + 1), float(bottom)


def counts_text(runs: RunLengths) -> str:
    """Return run lengths as COCO's compressed text."""
    return counts_texts([runs])[0]


def counts_texts(masks: Sequence[RunLengths]) -> list[str]:
    """Return what `counts_text` gives for each of some masks."""
    lengths = np.array([len(runs) for runs in masks], dtype=np.int64)
    ends = np.cumsum(lengths)
    counts = np.concatenate([*masks, np.zeros(0, dtype=np.uint32)]).astype(np.int64)
    later = np.flatnonzero(np.arange(len(counts)) - np.repeat(ends - lengths, lengths) >= 3)
    counts[later] -= counts[later - 2]
    limits = 16 << 5 * np.arange(MOST_GROUPS - 1)
    sizes = 1 + np.searchsorted(limits, np.abs(counts + (counts < 0)), side="right")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    text = np.empty(starts[-1], dtype=np.uint8)
    for group in range(MOST_GROUPS):
        rows = np.flatnonzero(sizes > group)
        more = 32 * (sizes[rows] > group + 1)
        text[starts[rows] + group] = 48 + (counts[rows] >> 5 * group & 31) + more
    written, bounds = text.tobytes().decode("ascii"), [0, *starts[ends].tolist()]
    return [written[start:stop] for start, stop in pairwise(bounds)]


def runs_of_text(text: str) -> RunLengths:
    """Return the run lengths of COCO's compressed text, or raise ValueError if it is none."""
    groups = np.frombuffer(text.encode("ascii"), dtype=np.uint8).astype(np.int64) - 48
    if ((groups < 0) | (groups > 63)).any() or (len(groups) and groups[-1] & 32):
        raise ValueError("its run lengths are no text of COCO's")
    starts = np.flatnonzero(np.concatenate([[True], (groups[:-1] & 32) == 0])) if len(groups) else np.zeros(0, np.int64)
    places = np.arange(len(groups)) - np.repeat(starts, np.diff([*starts, len(groups)]))
    if (places > 7).any():  # a run of over 2^40 pixels
        raise ValueError("a run length is too large")
    counts = np.add.reduceat((groups & 31) << 5 * places, starts) if len(groups) else np.zeros(0, np.int64)
    last = np.append(starts[1:], len(groups)) - 1
    counts -= np.where(groups[last] & 16, 1 << 5 * (places[last] + 1), 0)
    counts[1::2], counts[2::2] = np.cumsum(counts[1::2]), np.cumsum(counts[2::2])
    if (counts < 0).any() or counts.sum() >= 1 << 32:
        raise ValueError("a run length is negative or too large")
    return counts.astype(np.uint32)
