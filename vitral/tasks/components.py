"""Objects as connected pixels: from a map of what is inside an object, on its rim and in none to one region an object."""

from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor
from torch.nn import functional

from vitral.images.geometry import Geometry
from vitral.images.run_lengths import RunLengths, encode_part
from vitral.images.to_photo import bands_in_photo
from vitral.tasks.regions import FoundRegions, Regions, RegionTargets

Flags = Bool[np.ndarray, "height width"]
UNCOUNTED = -1  # in a map of objects, or of insides and rims: the pixel counts for nothing; no class is that number
RIM = 2.0  # the weight of a place on a rim in the loss, 1 that of any other
CROSS = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
Numbers = Int64[np.ndarray, "height width"]


def find_objects(logits: Float[Tensor, "batch outputs rows columns"], views: Sequence[Geometry]) -> list[FoundRegions]:
    """Return the objects of photos, the surest first.

    An object is the pixels that are connected inside it, and what is nearest to it of the rims. It has the class that its
    pixels have most; it is as sure as they are, in the mean, to be of that class or of a rim.

    Args:
        logits: At each place of a view of the whole photo: of the inside of objects of each class, then of a rim, then of none.
        views: The steps from each photo to its view.
    """
    return [_found(row, view) for row, view in zip(logits.float().cpu(), views, strict=True)]


def _found(logits: Float[Tensor, "outputs rows columns"], view: Geometry) -> FoundRegions:
    def shares() -> Iterator[Tensor]:  # band by band: of a large photo they would fill the memory
        return (band.softmax(dim=0) for band in bands_in_photo(logits, view))

    parts, last, classes = [], logits, len(logits) - 2
    for last in shares():
        parts.append(last.max(dim=0).indices)  # the same as argmax, several times faster
    surest = torch.cat(parts).numpy()
    objects = grow(surest < classes, surest <= classes)
    count = int(objects.max(initial=0))
    by_object = torch.zeros(classes + 1, count + 1, dtype=torch.float64)
    rest = torch.from_numpy(objects)
    for band in [last] if len(parts) == 1 else shares():
        own, rest = rest[: band.shape[1]].reshape(-1), rest[band.shape[1] :]
        there = own.nonzero()[:, 0]
        by_object.index_add_(1, own[there], band[:-1].flatten(1).index_select(1, there).double())
    inside, rims = by_object[:-1, 1:].numpy(), by_object[-1, 1:].numpy()
    areas = np.bincount(objects.reshape(-1), minlength=count + 1)[1:]
    scores = (inside.max(axis=0) + rims) / areas
    return found_objects(objects, inside.argmax(axis=0), scores)


def loss_of_rims(logits: Float[Tensor, "batch outputs rows columns"], targets: RegionTargets) -> Float[Tensor, ""]:
    """Return the mean cross-entropy at the places that count, of insides, rims and what is in no object; see `find_objects`.

    A rim weighs `RIM` times as much, because it is thin and one that is missed makes one object of two.
    """
    grid, classes = (logits.shape[3], logits.shape[2]), logits.shape[1] - 2
    maps = [
        insides_and_rims(
            cv2.resize(object_map(regions).astype(np.int32), grid, interpolation=cv2.INTER_NEAREST).astype(np.int64),
            regions.classes,
            classes,
        )
        for regions in targets
    ]
    wanted = torch.from_numpy(np.stack(maps)).to(logits.device)
    weights = logits.new_ones(classes + 2, dtype=torch.float32)
    weights[classes] = RIM
    losses = functional.cross_entropy(logits.float(), wanted, weights, ignore_index=UNCOUNTED, reduction="sum")
    counted = (wanted != UNCOUNTED).sum() + (RIM - 1) * (wanted == classes).sum()
    return losses / counted.clamp_min(1)


def object_map(regions: Regions) -> Numbers:
    """Return for each pixel the number of the object there, from 1; 0 for none; or `UNCOUNTED`."""
    numbers = np.where(regions.crowd, UNCOUNTED, np.arange(1, len(regions) + 1))
    return regions.painted(object_masks(regions), numbers, ground=0, ignored=UNCOUNTED)


def insides_and_rims(objects: Numbers, labels: Int64[np.ndarray, " objects"], classes: int) -> Numbers:
    """Return the class of each place: that of the object that it is inside of, then `classes` for rims and one more for none.

    Where nothing counts it is `UNCOUNTED`.
    """
    numbers, places = np.concatenate([[classes + 1], labels]), objects.astype(np.float32)
    rim = (objects > 0) & (cv2.erode(places, CROSS) != cv2.dilate(places, CROSS))
    return np.where(objects == UNCOUNTED, UNCOUNTED, np.where(rim, classes, numbers[objects.clip(0)]))


def object_masks(regions: Regions) -> tuple[RunLengths, ...]:
    """Return the mask of each region; where only boxes are known, the ellipse in each, drawn in its box alone."""
    if regions.masks is not None:
        return regions.masks
    low, high, ends = regions.boxes[:, :2], regions.boxes[:, 2:], np.array(regions.size[::-1])
    middles = ((low + high - 1) / 2).round().astype(np.int64)
    axes = ((high - low - 1) / 2).round().clip(0).astype(np.int64)
    corners = (middles - axes).clip(0, ends - 1)
    sides = (middles + axes + 1).clip(corners + 1, ends) - corners
    masks = []
    for middle, axis, (left, top), (width, height) in zip(
        (middles - corners).tolist(), axes.tolist(), corners.tolist(), sides.tolist(), strict=True
    ):
        canvas = np.zeros((height, width), dtype=np.uint8)
        inside = cv2.ellipse(canvas, middle, axis, 0, 0, 360, 1, cv2.FILLED) > 0
        masks.append(encode_part(inside, (top, left), regions.size))
    return tuple(masks)


def grow(seeds: Flags, whole: Flags) -> Numbers:
    """Return the number of the object that each pixel is of, from 1; 0 outside of `whole`.

    Args:
        seeds: Pixels of which those that are connected are one object.
        whole: All pixels of objects, each of which is the nearest seed's; what is connected and has no seed is one object.
    """
    count, parts = cv2.connectedComponents(whole.astype(np.uint8))
    seeded = np.zeros(count, dtype=bool)
    seeded[parts[seeds & whole]] = True
    seeds = whole & (seeds | ~seeded[parts])
    if not seeds.any():
        return np.zeros(whole.shape, dtype=np.int64)
    outside = (~seeds).astype(np.uint8)
    nearest = cv2.distanceTransformWithLabels(outside, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_CCOMP)[1]
    return np.where(whole, nearest, 0).astype(np.int64)


def split_at_waists(mask: Flags, depth: float) -> Numbers:
    """Return the number of the object that each pixel of a mask is of, objects that touch told apart; 0 outside.

    Args:
        mask: The pixels of all objects.
        depth: The share of the largest distance from the edge, of those in a connected part, that is an object's inside.
    """
    count, parts = cv2.connectedComponents(mask.astype(np.uint8))
    distances = cv2.distanceTransform(mask.astype(np.uint8), cv2.DIST_L2, 5)
    largest = np.zeros(count, dtype=np.float32)
    np.maximum.at(largest, parts.astype(np.int64).reshape(-1), distances.reshape(-1))
    return grow(mask & (distances >= depth * largest[parts]), mask)


def found_objects(
    objects: Numbers, classes: Int64[np.ndarray, " objects"], scores: Float64[np.ndarray, " objects"]
) -> FoundRegions:
    """Return objects, numbered from 1 in a map, as regions, the surest first."""
    height, width = objects.shape
    pixels = objects.T.reshape(-1)
    there = np.flatnonzero(pixels)
    ends = np.cumsum(np.bincount(pixels[there], minlength=len(classes) + 1)[1:])
    places = np.split(there[np.argsort(pixels[there], kind="stable")], ends[:-1])
    surest = np.argsort(-scores, kind="stable")
    regions = Regions(
        (height, width),
        classes[surest],
        np.array([_box(places[index], height) for index in surest], dtype=np.float64).reshape(-1, 4),
        tuple(_runs(places[index], height * width) for index in surest),
        np.zeros(len(classes), dtype=bool),
        np.array([len(places[index]) for index in surest], dtype=np.float64),
    )
    return FoundRegions(regions, scores[surest])


def _box(places: Int64[np.ndarray, " pixels"], height: int) -> tuple[int, int, int, int]:
    columns, rows = places // height, places % height
    return columns[0], rows.min(), columns[-1] + 1, rows.max() + 1


def _runs(places: Int64[np.ndarray, " pixels"], total: int) -> RunLengths:
    """Return the run lengths of pixels, numbered by columns, ascending."""
    breaks = np.flatnonzero(np.diff(places) > 1)
    starts, stops = places[np.append(0, breaks + 1)], places[np.append(breaks, len(places) - 1)] + 1
    bounds = np.stack([starts, stops], axis=1).reshape(-1)
    runs = np.diff(bounds, prepend=0, append=total)
    return (runs if runs[-1] else runs[:-1]).astype(np.uint32)
