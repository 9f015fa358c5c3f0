"""A photo seen through windows: classes averaged as EoMT averages them, and every object found once."""

import math
from collections.abc import Sequence

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.cases import every_case
from tests.regions import finding, scene
from vitral.classifier.find_regions import find_in
from vitral.errors import ModelError
from vitral.images.decode import Pixels
from vitral.images.geometry import Geometry
from vitral.images.moved_masks import joined
from vitral.images.photo import Photo
from vitral.images.preprocessing import Preprocessing
from vitral.images.run_lengths import decode_mask, encode_mask
from vitral.images.to_photo import bands_in_photo, parts_in_photo
from vitral.inference import windows as module
from vitral.inference.windows import find_classes_by_windows, find_regions_by_windows, merge_regions, spread_windows
from vitral.tasks.dense import DenseTask
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.semantic import find_classes

SIZE = (64, 64)
HOW = Preprocessing(image_size=SIZE, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), antialias=True, resampler="torch")


def published(image: Tensor, size: tuple[int, int]) -> Tensor:
    """EoMT's `window_imgs_semantic` and `revert_window_logits_semantic`, of a photo that is resized already."""
    side, longest = min(SIZE), max(image.shape[-2:])
    count = math.ceil(longest / side)
    overlap = count * side - longest
    each = overlap / (count - 1) if overlap > 0 else 0
    sums, counts = torch.zeros(3, *image.shape[-2:]), torch.zeros(3, *image.shape[-2:])
    for number in range(count):
        start = int(number * (side - each))
        tall = image.shape[-2] > image.shape[-1]
        part = (slice(None), slice(start, start + side)) if tall else (..., slice(start, start + side))
        logits = functional.interpolate(pooled(image[part][None]), SIZE, mode="bilinear")[0]
        sums[part] += logits
        counts[part] += 1
    return functional.interpolate((sums / counts)[None], size, mode="bilinear")[0]


def pooled(images: Tensor) -> Tensor:
    """Stand for a network whose answer depends on the window: logits at every fourth pixel, less the window's mean."""
    return functional.avg_pool2d(images, 4) - images.mean(dim=(2, 3), keepdim=True)


def photo_of(shape: tuple[int, int]) -> Pixels:
    noise = np.random.default_rng(0).integers(0, 255, (7, 9, 3), dtype=np.uint8)
    return cv2.resize(noise, shape[::-1], interpolation=cv2.INTER_CUBIC)


@every_case("shape", [(200, 90), (75, 300), (64, 64), (40, 61), (500, 64)])
def test_classes_are_averaged_as_published(shape: tuple[int, int]) -> None:
    photo = photo_of(shape)
    given: list[Tensor] = []

    def find(scores: Tensor, views: Sequence[Geometry]) -> list[FoundRegions]:
        given.extend(bands_in_photo(scores[0], views[0]))
        return [FoundRegions(Regions.of_masks(shape, [], []), np.zeros(0))]

    windows = spread_windows(shape, SIZE)
    find_classes_by_windows(photo, windows, HOW, pooled, find)
    canvas = HOW.with_size(windows.canvas)(photo)
    torch.testing.assert_close(given[0], published(canvas, shape), atol=1e-5, rtol=1e-5)
    assert windows.canvas == tuple(round(side * max(SIZE[0] / shape[0], SIZE[1] / shape[1])) for side in shape)


def test_windows_cover_the_photo_and_overlap_evenly() -> None:
    for length in range(512, 3000, 37):
        windows = spread_windows((512, length), (512, 512), overlap=1 / 3)
        steps = np.diff(windows.lefts)
        assert (windows.lefts[0], windows.lefts[-1] + 512) == (0, length)
        assert len(steps) == -(-(length - 512) // 341)  # as many as DINOv3's, whose stride is 341
        assert (steps <= 341 + 1).all()
        assert np.ptp(steps) <= 1 if len(steps) else True
    large = spread_windows((10_000, 10_001), (640, 640), scale=15.625, overlap=0.2)
    assert (large.step, large.canvas) == (4, (10_000, 10_004))
    assert all(number % 4 == 0 for number in (*large.tops, *large.lefts))
    assert (large.tops[-1], large.lefts[-1]) == (10_000 - 640, 10_004 - 640)


def test_windows_cover_every_length() -> None:
    for step in (1, 4, 14):
        for count in range(1, 13):
            for length in range(step, 3001, step):
                side = -(-length // (count * step)) * step
                starts = np.array(module._starts(length, side, 0.0, step))
                assert (starts[0], starts[-1] + side) == (0, length)
                assert not (starts % step).any()
                assert (np.diff(starts) <= side).all()
    for length in range(64, 3001):  # of windows that overlap
        starts = np.array(module._starts(length, 64, 0.2, 1))
        assert (starts[0], starts[-1] + 64) == (0, length)
        assert (np.diff(starts) <= math.ceil(64 * 0.8)).all()


def test_many_classes_are_averaged_at_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    photo = (1000, 1500)
    steps = [spread_windows(photo, SIZE, scale=15, classes=classes).step for classes in (1, 19, 60, 150)]
    assert steps == [1, 1, 4, 4]
    classifier = finding("digit-scenes-semantic")
    shape, given = (64, 96), []

    def find(task: DenseTask, scores: Tensor, views: Sequence[Geometry]) -> list[FoundRegions]:
        given.append(tuple(scores.shape))
        return find_classes(scores, views)

    monkeypatch.setattr(type(classifier.task), "find", find)
    for bound in (11 * math.prod(shape), 11 * math.prod(shape) - 1):
        monkeypatch.setattr(module, "FINE", bound)
        find_in(classifier, Photo(scene(0, *shape), shape), windows=2.0)
    assert given == [(1, 11, 64, 96), (1, 11, 16, 24)]


@every_case("windows", [0.0, 0.5, -1.0, math.nan, math.inf, 100.0])
def test_more_windows_than_a_photo_can_show_are_refused(windows: float) -> None:
    classifier = finding("digit-scenes-semantic")
    with pytest.raises(ModelError, match="of a photo of 96x64 pixels it may be 1 to"):
        find_in(classifier, Photo(scene(0, 64, 96), (64, 96)), windows=windows)


def test_a_large_canvas_is_averaged_at_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, maps = (180, 240), []

    def find(scores: Tensor, views: Sequence[Geometry]) -> list[FoundRegions]:
        maps.append((scores, next(bands_in_photo(scores[0], views[0]))))
        return [FoundRegions(Regions.of_masks(shape, [], []), np.zeros(0))]

    for fine in (module.FINE, 1000):
        monkeypatch.setattr(module, "FINE", fine)
        windows = spread_windows(shape, SIZE, scale=2.8, overlap=0.25)
        find_classes_by_windows(photo_of(shape), windows, HOW, pooled, find)
    assert maps[0][0][0, 0].numel() > 15 * maps[1][0][0, 0].numel()
    assert (maps[0][1].argmax(dim=0) == maps[1][1].argmax(dim=0)).float().mean() > 0.97


def shapes(shape: tuple[int, int], seed: int) -> tuple[Pixels, list[np.ndarray]]:
    """Draw discs with a hole, and a bar that is longer than two windows, none of which touch."""
    rng = np.random.default_rng(seed)
    image, taken, masks = np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.uint8), []
    for number in range(60):
        mask = np.zeros(shape, np.uint8)
        x, y = int(rng.integers(shape[1])), int(rng.integers(shape[0]))
        if number == 0:
            cv2.rectangle(mask, (20, shape[0] // 2), (shape[1] - 20, shape[0] // 2 + 6), 1, -1)
        else:
            cv2.circle(mask, (x, y), int(rng.integers(5, 14)), 1, -1)
            cv2.circle(mask, (x, y), 2, 0, -1)
        if mask.sum() > 40 and not taken[cv2.dilate(mask, np.ones((9, 9), np.uint8)) > 0].any():
            taken |= mask
            masks.append(mask > 0)
            image[mask > 0, number % 2] = 255
    return image, masks


def components(images: Tensor, views: Sequence[Geometry], *, boxes: bool) -> list[FoundRegions]:
    """Stand for a network that finds every connected component of red and of green."""
    found = []
    for image, view in zip(images, views, strict=True):
        logits, classes, scores = [], [], []
        for channel in (0, 1):
            bright = (image[channel] > 0.5).numpy().astype(np.uint8)
            count, labels = cv2.connectedComponents(bright)
            for number in range(1, count):
                inside = labels == number
                logits.append(torch.where(torch.from_numpy(inside), image[channel] - 0.5, -0.5))
                classes.append(channel)
                scores.append(min(1.0, 0.2 + float(inside.sum()) / 1000))
        masks = [runs for _, runs in parts_in_photo(torch.stack(logits), view)] if logits else []
        regions = Regions.of_masks(view.original, classes, [decode_mask(runs, view.original) for runs in masks])
        kept = regions.chosen(regions.areas > 0)
        regions = Regions.of_boxes(kept.size, kept.classes.tolist(), kept.boxes) if boxes else kept
        found.append(FoundRegions(regions, np.array(scores)[: len(regions)]))
    return found


@every_case("boxes", [False, True])
@every_case(("shape", "scale"), [((150, 210), 150 / 64), ((190, 420), 1.5)])
def test_every_object_is_found_once(boxes: bool, shape: tuple[int, int], scale: float) -> None:
    for seed in range(2):
        photo, masks = shapes(shape, seed)
        windows = spread_windows(shape, SIZE, scale=scale, overlap=0.5)
        found = find_regions_by_windows(
            photo, windows, HOW, lambda images: images, lambda a, v: components(a, v, boxes=boxes)
        )
        assert len(found.scores) == len(masks), seed
        assert (np.diff(found.scores) <= 0).all()
        truth = Regions.of_masks(shape, [0] * len(masks), masks)
        for box, mask in zip(truth.boxes, masks, strict=True):
            nearest = int(np.abs(found.regions.boxes - box).max(axis=1).argmin())
            assert np.abs(found.regions.boxes[nearest] - box).max() <= 2
            if not boxes:
                assert found.regions.masks is not None
                other = decode_mask(found.regions.masks[nearest], shape)
                assert (mask & other).sum() / (mask | other).sum() > (0.99 if shape[0] == 150 else 0.5)
                assert found.regions.areas[nearest] == other.sum()


def test_what_windows_do_not_agree_on_stays_apart() -> None:
    windows = spread_windows((64, 96), SIZE, overlap=0.5)
    assert windows.corners() == [(0, 0), (0, 32)]

    def found(classes: list[int], boxes: list[list[float]], scores: list[float]) -> FoundRegions:
        return FoundRegions(Regions.of_boxes((64, 96), classes, boxes), np.array(scores))

    cut: list[list[float]] = [[40, 5, 64, 25], [62, 50, 64, 60]]
    whole: list[list[float]] = [[40, 30, 60, 40], [5, 50, 20, 60]]
    left = found([0, 0, 1, 0], [*cut, *whole], [0.9, 0.8, 0.5, 0.3])  # the right window finds nothing at the second
    right = found([0, 0, 1], [[40, 5, 80, 25], [40, 30, 60, 40], [43, 31, 61, 41]], [0.8, 0.7, 0.6])
    merged = merge_regions([left, right], windows)
    assert merged.scores.tolist() == [0.9, 0.7, 0.6, 0.3]
    assert merged.regions.classes.tolist() == [0, 0, 1, 0]
    assert merged.regions.boxes.tolist() == [[40, 5, 80, 25], [40, 30, 60, 40], [43, 31, 61, 41], [5, 50, 20, 60]]
    none = found([], [], [])
    assert len(merge_regions([none, none], windows).scores) == 0
    assert merge_regions([none, none], windows).regions.masks is None
    masks = FoundRegions(Regions.of_masks((64, 96), [], []), np.zeros(0))
    assert merge_regions([masks, masks], windows).regions.masks == ()


def test_masks_are_joined() -> None:
    rng = np.random.default_rng(0)
    for share in (0.0, 0.2, 0.7, 1.0):
        masks = rng.random((3, 6, 7)) < share
        assert (
            joined([encode_mask(mask) for mask in masks], (6, 7)).tolist()
            == encode_mask(np.bitwise_or.reduce(masks)).tolist()
        )
