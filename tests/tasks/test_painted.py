"""Maps painted from run lengths are those that one drawing of each object over the whole photo gives, pixel for pixel."""

import tracemalloc
from dataclasses import replace

import cv2
import numpy as np
import pytest
from jaxtyping import Int64
from scipy import ndimage

from tests.cases import every_case
from tests.tasks.scenes import Random, blob
from vitral.data.annotations.other_task import NEIGHBOURS, _parts
from vitral.evaluation.region_baselines import _foreground
from vitral.evaluation.region_probe import _targets
from vitral.images.geometry import Geometry, Resize
from vitral.images.preprocessing import PHOTOS
from vitral.images.run_lengths import Bitmap, decode_mask, encode_mask
from vitral.models.dense.ridge import RidgeHeadConfig
from vitral.tasks.components import insides_and_rims, object_map, object_masks
from vitral.tasks.panoptic_quality import NOWHERE, _segments
from vitral.tasks.regions import VOID, Regions

SIZE = (60, 80)


def scene(seed: int) -> tuple[Regions, list[Bitmap], Bitmap]:
    """Return overlapping regions, crowds and empty masks among them, with their masks and the pixels that are ignored."""
    random = Random(seed)
    masks = [blob(random, SIZE, 25) for _ in range(int(random.randint(0, 9)))]
    masks += [np.zeros(SIZE, dtype=bool)] * (seed % 2)
    ignored = blob(random, SIZE, 12) & bool(seed % 3)
    numbers, crowd = random.randint(0, 4, len(masks)).tolist(), (random.random(len(masks)) < 0.3).tolist()
    return Regions.of_masks(SIZE, numbers, masks, crowd=crowd, ignored=ignored), masks, ignored


def one_by_one(
    masks: list[Bitmap], values: list[int], ground: int, ignored: Bitmap, value: int
) -> Int64[np.ndarray, "height width"]:
    drawn = np.full(ignored.shape, ground, dtype=np.int64)
    for mask, number in zip(masks, values, strict=True):
        drawn[mask] = number
    drawn[ignored] = value
    return drawn


def ellipses(boxes: np.ndarray, size: tuple[int, int]) -> list[Bitmap]:
    """Draw the ellipse in each box on a canvas of the whole photo."""
    drawn = []
    for left, top, right, bottom in boxes.tolist():
        canvas = np.zeros(size, dtype=np.uint8)
        middle = round((left + right - 1) / 2), round((top + bottom - 1) / 2)
        axes = max(0, round((right - left - 1) / 2)), max(0, round((bottom - top - 1) / 2))
        drawn.append(cv2.ellipse(canvas, middle, axes, 0, 0, 360, 1, cv2.FILLED) > 0)
    return drawn


def boxes(seed: int, count: int = 30) -> np.ndarray:
    """Return boxes, some of which reach beyond the photo, or lie outside of it."""
    random = np.random.default_rng(seed)
    corners = random.uniform(-15, [SIZE[1] + 5, SIZE[0] + 5], (count, 2)).round(int(seed % 2))
    return np.concatenate([corners, corners + random.uniform(0, 40, (count, 2)).round(1)], axis=1)


@every_case("seed", range(24))
def test_maps_of_random_scenes(seed: int) -> None:
    regions, masks, ignored = scene(seed)
    numbers = list(range(1, len(masks) + 1))
    of_objects = [-1 if crowd else number for crowd, number in zip(regions.crowd, numbers, strict=True)]
    labels = one_by_one(masks, regions.classes.tolist(), VOID, ignored, VOID)
    objects = one_by_one(masks, of_objects, 0, ignored, -1)
    assert (regions.class_map() == labels).all()
    assert (object_map(regions) == objects).all()
    places = one_by_one(masks, numbers, 0, ignored, NOWHERE)
    seen = [number for number in numbers if (places == number).any()]
    segments = _segments(regions)
    assert (np.array([0, *seen])[segments.places] == places).all()
    assert segments.areas.tolist() == [(places == number).sum() for number in seen]
    front, counted = _foreground(regions, pixels=False)
    assert (front == np.any([*masks, np.zeros(SIZE, dtype=bool)], axis=0)).all()
    assert (counted == ~ignored).all()


@every_case("seed", range(8))
def test_what_a_head_in_closed_form_learns(seed: int) -> None:
    regions = scene(seed)[0]
    grid, how = (21, 30), replace(PHOTOS.with_size((48, 70)), resize=("pad", "crop", "squash")[seed % 3])
    view = Geometry(SIZE, (*how.geometry(*SIZE).steps, Resize(*grid)))
    pixels = _targets(regions, how, grid, RidgeHeadConfig(), 4)
    labels = view.mask(regions.class_map(), fill=VOID)
    assert (pixels == np.where(labels == VOID, -1, labels)).all()
    for each in (regions, Regions.of_boxes(SIZE, [0] * 30, boxes(seed))):
        wanted = insides_and_rims(view.mask(object_map(each), fill=-1), each.classes, 4)
        assert (_targets(each, how, grid, RidgeHeadConfig(objects=True), 4) == wanted).all()


@every_case("seed", range(20))
def test_ellipses_drawn_in_their_boxes(seed: int) -> None:
    marked = boxes(seed)
    ours = object_masks(Regions.of_boxes(SIZE, [0] * len(marked), marked))
    for runs, mask in zip(ours, ellipses(marked, SIZE), strict=True):
        assert runs.tolist() == encode_mask(mask).tolist()


@every_case("seed", range(6))
def test_connected_parts_of_a_class(seed: int) -> None:
    regions, masks, ignored = scene(seed)
    parts, there = _parts(regions), []
    for number, mask in zip(regions.classes.tolist(), masks, strict=True):
        labels, count = ndimage.label(mask, structure=NEIGHBOURS)
        there += [(number, encode_mask(labels == part).tolist()) for part in range(1, count + 1)]
    assert parts.masks is not None
    assert list(zip(parts.classes.tolist(), map(list, parts.masks), strict=True)) == there
    assert (parts.ignored_bitmap() == ignored).all()
    assert [decode_mask(runs, SIZE).sum() for runs in parts.masks] == parts.areas.tolist()


@pytest.mark.parametrize("form", ["masks", "boxes"])
def test_a_large_photo_of_many_objects_takes_the_memory_of_few_maps(form: str) -> None:
    size, random = (1500, 2000), np.random.default_rng(0)
    corners = random.integers(0, 1400, (800, 2)).astype(np.float64)
    regions = Regions.of_boxes(size, [0] * 800, np.concatenate([corners, corners + 40], axis=1))
    if form == "masks":
        regions = Regions.of_runs(size, [0] * 800, object_masks(regions))
    tracemalloc.start()
    objects = object_map(regions)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert objects.max() == 800
    assert peak < 5 * objects.nbytes  # one bitmap an object would take 100 times as much
