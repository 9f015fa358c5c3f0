"""Which found regions are which true ones: IoU of boxes and masks as COCO has it, and COCO's greedy matching.

The rules are those of pycocotools (`bbIou` and `rleIou` of common/maskApi.c, `evaluateImg` of cocoeval.py): areas of masks are
whole pixels; of a crowd the IoU is the share of the found region that lies in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from jaxtyping import Bool, Float64, Int64

from vitral.images.run_lengths import Bitmap, RunLengths, mask_area
from vitral.tasks.regions import Regions

THRESHOLDS = np.linspace(0.5, 0.95, 10)  # of IoU
SMALL = 32.0**2  # pixels, up to which a region is small
MEDIUM = 96.0**2
SIZES = ("all", "small", "medium", "large")
SIZE_RANGES = ((0.0, 1e10), (0.0, SMALL), (SMALL, MEDIUM), (MEDIUM, 1e10))  # both ends belong to a size
NONE = -1  # instead of a true region
RIM = 0.02  # of a photo's diagonal: how wide the boundary of a mask is

Overlaps = Float64[np.ndarray, "found true"]
OfSizes = Bool[np.ndarray, "sizes regions"]


@dataclass(frozen=True, eq=False)
class Matches:
    """What became of one photo's found regions of one class, the surest first; one row a size and a threshold of IoU.

    Attributes:
        scores: How sure each found region is.
        right: Whether each is matched to a true region that counts.
        ignored: Whether each counts neither as right nor as wrong.
        positives: The number of true regions that count, of each size.
    """

    scores: Float64[np.ndarray, " found"]
    right: Bool[np.ndarray, "sizes thresholds found"]
    ignored: Bool[np.ndarray, "sizes thresholds found"]
    positives: Int64[np.ndarray, " sizes"]


@dataclass(frozen=True, eq=False)
class _Cropped:
    """A mask within its tight box: left, top, right, bottom, pixels."""

    box: tuple[int, int, int, int]
    inside: Bitmap
    area: int


def overlaps(
    found: Regions, truth: Regions, *, masks: bool, boundaries: bool = False
) -> tuple[Overlaps, Overlaps | None]:
    """Return the IoU of each found region with each true one; of a crowd the share of the found region in it, 0 to 1.

    By boundaries it is the smaller of the IoU of masks and that of their boundaries, by which coarse edges of large objects
    count. The boundary of a mask is its pixels within 2% of the photo's diagonal from pixels outside it, or from the photo's
    edge (Cheng et al., CVPR 2021, arXiv 2103.16562; boundary_utils.py of boundary-iou-api). Of a crowd the masks alone count.

    Args:
        found: The found regions.
        truth: The true ones.
        masks: Whether their masks are compared, which both must have; otherwise their boxes are.
        boundaries: Whether the boundaries of the masks are compared, too, which takes longer.

    Returns:
        The overlaps, and those by boundaries; None where these are not compared.
    """
    if not masks or not len(found) or not len(truth):
        shares = _box_overlaps(found.boxes, truth.boxes, truth.crowd)
        return shares, shares if boundaries else None
    assert found.size == truth.size, f"masks of {found.size} for a photo of {truth.size}"
    ours, theirs = _all_cropped(found), _all_cropped(truth)
    shares = _mask_overlaps(ours, theirs, truth.crowd)
    if not boundaries or not shares.any():
        return shares, shares if boundaries else None
    width = max(1, round(RIM * float(np.hypot(*truth.size))))
    rims, edges = ([_rim(mask, width) for mask in cropped] for cropped in (ours, theirs))
    return shares, np.where(truth.crowd, shares, np.minimum(shares, _mask_overlaps(rims, edges, truth.crowd)))


def areas_of(found: Regions, *, masks: bool) -> Float64[np.ndarray, " regions"]:
    """Return the areas of found regions, pixels: of their masks, or of their boxes."""
    if masks and found.masks is not None:
        return np.array([mask_area(runs) for runs in found.masks], dtype=np.float64)
    return (found.boxes[:, 2:] - found.boxes[:, :2]).prod(axis=1)


def partners(shares: Overlaps, alike: Bool[np.ndarray, "found true"]) -> Int64[np.ndarray, " found"]:
    """Return the true region that each found one, the surest first, stands for; -1 for none.

    They overlap by an IoU of 0.5 or more, and each stands for one of the other. Those of the same class find each other first.
    """
    chosen, free = np.full(len(shares), NONE), np.ones(shares.shape[1], dtype=bool)
    for allowed in (alike, ~alike):
        close = allowed & (shares >= THRESHOLDS[0])
        for row in np.flatnonzero(close.any(axis=1) & (chosen == NONE)).tolist():
            values = np.where(close[row] & free, shares[row], 0.0)
            if values.any():
                chosen[row] = values.argmax()
                free[chosen[row]] = False
    return chosen


def match(
    shares: Overlaps,
    scores: Float64[np.ndarray, " found"],
    found_areas: Float64[np.ndarray, " found"],
    true_areas: Float64[np.ndarray, " true"],
    crowd: Bool[np.ndarray, " true"],
) -> Matches:
    """Match found regions of one class, the surest first, each to the true region that it overlaps most; areas are pixels.

    A true region that counts comes before one that does not (a crowd, or one of another size); a crowd takes any number.
    """
    ignored = crowd | _outside(true_areas)
    matched = np.full((len(SIZES), len(THRESHOLDS), len(scores)), NONE)
    free = np.ones((len(SIZES), len(THRESHOLDS), len(crowd)), dtype=bool)
    for row in np.flatnonzero((shares >= THRESHOLDS[0]).any(axis=1)).tolist():
        columns = np.flatnonzero(shares[row] >= THRESHOLDS[0])
        possible = free[:, :, columns] & (shares[row, columns] >= THRESHOLDS[:, None])
        regular = possible & ~ignored[:, None, columns]
        chosen = np.where(regular.any(axis=2, keepdims=True), regular, possible)
        best = _last_largest(np.where(chosen, shares[row, columns], -1.0))
        matched[:, :, row] = np.where(chosen.any(axis=2), columns[best], NONE)
        sizes, thresholds = np.nonzero(chosen.any(axis=2) & ~crowd[columns[best]])
        free[sizes, thresholds, matched[sizes, thresholds, row]] = False
    hit = matched != NONE
    uncounted = np.take_along_axis(np.pad(ignored, ((0, 0), (0, 1)))[:, None], matched, axis=2)  # of no region: not
    right = hit & ~uncounted
    return Matches(scores, right, uncounted | (~hit & _outside(found_areas)[:, None]), (~ignored).sum(axis=1))


def _outside(areas: Float64[np.ndarray, " regions"]) -> OfSizes:
    """Return which regions are of another size, for each size."""
    return np.array([(areas < low) | (areas > high) for low, high in SIZE_RANGES])


def _last_largest(values: Float64[np.ndarray, "sizes thresholds true"]) -> Int64[np.ndarray, "sizes thresholds"]:
    """Return where the largest value stands; of equal ones the last, which pycocotools takes."""
    return values.shape[2] - 1 - values[:, :, ::-1].argmax(axis=2)


def _shared(ours: Float64[np.ndarray, "found 4"], theirs: Float64[np.ndarray, "true 4"]) -> Overlaps:
    """Return the area that boxes have in common."""
    low = np.maximum(ours[:, None, :2], theirs[None, :, :2])
    high = np.minimum(ours[:, None, 2:], theirs[None, :, 2:])
    return (high - low).clip(0).prod(axis=2)


def _box_overlaps(
    ours: Float64[np.ndarray, "found 4"], theirs: Float64[np.ndarray, "true 4"], crowd: Bool[np.ndarray, " true"]
) -> Overlaps:
    common = _shared(ours, theirs)
    mine, other = ((boxes[:, 2:] - boxes[:, :2]).prod(axis=1) for boxes in (ours, theirs))
    whole = np.where(crowd, mine[:, None], mine[:, None] + other - common)
    return np.divide(common, whole, out=np.zeros_like(common), where=common > 0)


def _mask_overlaps(ours: Sequence[_Cropped], theirs: Sequence[_Cropped], crowd: Bool[np.ndarray, " true"]) -> Overlaps:
    boxes = [np.array([mask.box for mask in masks], dtype=np.float64) for masks in (ours, theirs)]
    shares = np.zeros((len(ours), len(theirs)))
    for row, column in np.argwhere(_shared(*boxes) > 0).tolist():
        common, mine = _common(ours[row], theirs[column]), ours[row].area
        shares[row, column] = common / (mine if crowd[column] else mine + theirs[column].area - common)
    return shares


def _rim(mask: _Cropped, width: int) -> _Cropped:
    """Return a mask's boundary."""
    if not mask.area:
        return mask
    padded = np.pad(mask.inside, 1).astype(np.uint8)  # what is outside the photo is outside the mask
    inside = mask.inside & ~cv2.erode(padded, np.ones((3, 3), dtype=np.uint8), iterations=width)[1:-1, 1:-1].astype(
        bool
    )
    return replace(mask, inside=inside, area=int(np.count_nonzero(inside)))


def _all_cropped(regions: Regions) -> list[_Cropped]:
    assert regions.masks is not None, "only boxes are known"
    return [_cropped(runs, regions.size[0]) for runs in regions.masks]


def _cropped(runs: RunLengths, height: int) -> _Cropped:
    ends, inside = np.cumsum(runs, dtype=np.int64), np.arange(len(runs)) % 2 == 1
    filled = np.flatnonzero(inside & (runs > 0))
    if not len(filled):
        return _Cropped((0, 0, 0, 0), np.zeros((0, 0), dtype=bool), 0)
    left, right = int(ends[filled[0] - 1]) // height, (int(ends[filled[-1]]) - 1) // height + 1
    lengths = np.diff(ends.clip(left * height, right * height), prepend=left * height)
    columns = np.repeat(inside, lengths).reshape(right - left, height).T
    rows = np.flatnonzero(columns.any(axis=1))
    top, bottom = int(rows[0]), int(rows[-1]) + 1
    return _Cropped((left, top, right, bottom), columns[top:bottom], mask_area(runs))


def _common(mine: _Cropped, theirs: _Cropped) -> int:
    """Return how many pixels two masks have in common."""
    left, top = max(mine.box[0], theirs.box[0]), max(mine.box[1], theirs.box[1])
    right, bottom = min(mine.box[2], theirs.box[2]), min(mine.box[3], theirs.box[3])
    ours, others = (
        mask.inside[top - mask.box[1] : bottom - mask.box[1], left - mask.box[0] : right - mask.box[0]]
        for mask in (mine, theirs)
    )
    return int(np.count_nonzero(ours & others))
