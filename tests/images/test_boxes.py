"""Random boxes and maps against the sources' own code: TensorFlow's sampler written anew, torchvision's by itself."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torchvision.transforms import RandomResizedCrop

from tests.cases import every_case
from tests.images.sources import augment
from vitral.images.augment import Augmentation, inception_box, resized_box, training_view
from vitral.images.decode import Pixels, Shrink

Box = tuple[int, int, int, int]
DRAWS = 1500
SAME_DRAWS = 300  # where each is to be the very same


def kolmogorov(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the largest difference of two samples' distribution functions."""
    values = np.sort(np.concatenate([ours, theirs]))
    one, other = (np.searchsorted(np.sort(sample), values, side="right") / len(sample) for sample in (ours, theirs))
    return float(np.abs(one - other).max())


def tensorflows_box(shape: tuple[int, int], min_area: float, rng: np.random.Generator) -> Box:
    """TensorFlow's GenerateRandomCrop (core/kernels/image/sample_distorted_bounding_box_op.cc), up to 100 times."""
    original_height, original_width = shape
    smallest, largest = min_area * original_width * original_height, original_width * original_height
    for _ in range(100):
        ratio = rng.uniform(0.75, 1.33)
        height, max_height = round(math.sqrt(smallest / ratio)), round(math.sqrt(largest / ratio))
        if round(max_height * ratio) > original_width:
            max_height = int((original_width + 0.5 - 0.0000001) / ratio)
            if round(max_height * ratio) > original_width:
                max_height -= 1
        max_height = min(max_height, original_height)
        if height >= max_height:
            height = max_height
        if height < max_height:
            height += int(rng.integers(max_height - height + 1))
        width = round(height * ratio)
        area = width * height
        if area < smallest:
            height += 1
            width = round(height * ratio)
            area = width * height
        if area > largest:
            height -= 1
            width = round(height * ratio)
            area = width * height
        if area < smallest or area > largest or width > original_width or height > original_height:
            continue
        if width <= 0 or height <= 0:
            continue
        y = int(rng.integers(original_height - height)) if height < original_height else 0
        x = int(rng.integers(original_width - width)) if width < original_width else 0
        return y, x, height, width
    return 0, 0, original_height, original_width


def torchvisions_box(shape: tuple[int, int], min_area: float) -> Box:
    return RandomResizedCrop.get_params(torch.empty(1, *shape), [min_area, 1.0], [3 / 4, 4 / 3])


MEASURES: tuple[Callable[[Box], float], ...] = (
    lambda box: box[0],
    lambda box: box[1],
    lambda box: box[2],
    lambda box: box[3],
    lambda box: box[2] * box[3],
    lambda box: math.log(box[3] / box[2]),
    lambda box: box[0] + box[2],
    lambda box: box[1] + box[3],
)


@every_case("shape", [(375, 500), (64, 64), (32, 32), (30, 300), (300, 9), (3, 2), (1, 1)])
@every_case("min_area", [0.05, 0.6, 0.9, 1.0])
def test_inception_boxes_are_tensorflows(shape: tuple[int, int], min_area: float) -> None:
    rng, other = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(SAME_DRAWS):
        assert inception_box(shape, min_area, rng) == tensorflows_box(shape, min_area, other)


@every_case("shape", [(375, 500), (64, 64), (300, 9)])
@every_case("min_area", [0.08, 0.9])
def test_resized_boxes_are_torchvisions(shape: tuple[int, int], min_area: float) -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    ours = [resized_box(shape, min_area, rng) for _ in range(DRAWS)]
    theirs = [torchvisions_box(shape, min_area) for _ in range(DRAWS)]
    for measure in MEASURES:
        assert kolmogorov([measure(box) for box in ours], [measure(box) for box in theirs]) < 0.07


@every_case("draw", [inception_box, resized_box])
@every_case("shape", [(1, 1), (1, 2), (2, 1), (3, 2), (1, 700), (700, 1)])
def test_boxes_of_the_smallest_images_lie_in_them(draw: Callable[..., Box], shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    for min_area in (0.0001, 0.5, 1.0):
        for _ in range(60):
            top, left, height, width = draw(shape, min_area, rng)
            assert 0 <= top <= shape[0] - height
            assert 0 <= left <= shape[1] - width
            assert height >= 1
            assert width >= 1


def test_where_no_box_fits_the_whole_or_the_middle_is_taken() -> None:
    rng = np.random.default_rng(0)
    assert inception_box((10, 300), 0.9, rng) == (0, 0, 10, 300)
    assert resized_box((10, 300), 0.9, rng) == (0, 143, 10, 13)
    assert resized_box((300, 9), 0.9, rng) == (144, 0, 12, 9)
    assert resized_box((301, 300), 1.0, rng) == (0, 0, 301, 300)


@every_case(
    ("side", "size", "factor"),
    [(1200, 64, 8), (512, 64, 8), (511, 64, 4), (256, 64, 4), (255, 64, 2), (128, 64, 2), (127, 64, 1), (20, 64, 1)],
)
def test_an_image_is_decoded_no_smaller_than_the_view(side: int, size: int, factor: int) -> None:
    asked: list[int] = []

    def read(shrink: Shrink | None) -> Pixels:
        assert shrink is not None
        asked.append(shrink(side, side + 1))
        left = math.ceil(side / asked[0])
        return np.zeros((left, left, 3), dtype=np.uint8)

    for crop in ("resized", "inception"):
        how = Augmentation(crop=crop, min_area=1.0, decode="scaled")  # so that all of it is taken
        training_view(read, how, size=(size, size // 2), rng=np.random.default_rng(0))
    assert asked == [factor] * 2


@every_case(("crop", "decode"), [("square", "scaled"), ("none", "scaled"), ("padded", "scaled"), ("resized", "full")])
def test_other_crops_are_decoded_in_full(crop: Any, decode: Any) -> None:  # noqa: ANN401
    asked: list[object] = []

    def read(shrink: Shrink | None) -> Pixels:
        asked.append(shrink)
        return np.zeros((40, 40, 3), dtype=np.uint8)

    training_view(read, Augmentation(crop=crop, decode=decode), size=(16, 16), rng=np.random.default_rng(0))
    assert asked == [None]


def maps(how: Augmentation, count: int, size: int = 60) -> np.ndarray:
    """Return the affine maps of so many views, fitted to ramps: (views, 2, 3), from the middle of the view in pixels."""
    ramp = np.linspace(20, 230, size)
    image = np.stack([np.tile(ramp, (size, 1)), np.tile(ramp[:, None], (1, size)), np.zeros((size, size))], -1)
    step, middle = ramp[1] - ramp[0], (size - 1) / 2
    rows, columns = np.mgrid[12:48, 12:48]
    known = np.stack([columns.ravel() - middle, rows.ravel() - middle, np.ones(36 * 36)], -1)
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        view = pixels_of(augment(image.round().astype(np.uint8), how, size=(size, size), rng=rng))
        seen = (view[:2, 12:48, 12:48].reshape(2, -1).astype(float) - ramp.mean()) / step
        found.append(np.linalg.lstsq(known, seen.T, rcond=None)[0].T)
    return np.array(found)


def pixels_of(view: Any) -> np.ndarray:  # noqa: ANN401
    return np.asarray(getattr(view, "pixels", view))


PLAIN: dict[str, Any] = {"crop": "none", "flip": False}


def test_an_affine_map_turns_about_the_middle_evenly_to_either_side() -> None:
    found = maps(Augmentation(**PLAIN, rotate=30.0), 200)
    angles = np.degrees(np.arctan2(found[:, 0, 1], found[:, 0, 0]))
    assert kolmogorov(angles.tolist(), np.linspace(-30, 30, 1000).tolist()) < 0.12
    assert np.abs(np.hypot(found[:, 0, 0], found[:, 0, 1]) - 1).max() < 0.01
    assert np.abs(found[:, :, 2]).max() < 0.15  # the middle stays
    assert np.abs(found[:, 0, 1] + found[:, 1, 0]).max() < 0.02


def test_an_affine_map_zooms_evenly_in_and_out() -> None:
    found = maps(Augmentation(**PLAIN, scale=0.3), 200)
    zooms = 1 / found[:, 0, 0]
    assert kolmogorov(zooms.tolist(), np.linspace(0.7, 1.3, 1000).tolist()) < 0.12
    assert np.abs(found[:, 0, 0] - found[:, 1, 1]).max() < 0.02
    assert np.abs(found[:, [0, 1], [1, 0]]).max() < 0.02
    assert np.abs(found[:, :, 2]).max() < 0.15


def test_an_affine_map_shifts_evenly_in_each_direction() -> None:
    found = maps(Augmentation(**PLAIN, shift=0.15), 200)
    for axis in (0, 1):
        assert kolmogorov(found[:, axis, 2].tolist(), np.linspace(-9, 9, 1000).tolist()) < 0.12
    assert abs(np.corrcoef(found[:, 0, 2], found[:, 1, 2])[0, 1]) < 0.2
    assert np.abs(found[:, :, :2] - np.eye(2)).max() < 0.01


def test_a_shift_is_a_share_of_each_side_and_the_edge_goes_on_beyond() -> None:
    image = np.full((20, 60, 3), 90, dtype=np.uint8)
    image[:, :2] = 10
    for seed in range(20):
        view = pixels_of(
            augment(image, Augmentation(**PLAIN, shift=1.0), size=(20, 60), rng=np.random.default_rng(seed))
        )
        assert set(np.unique(view)) <= set(range(10, 91))  # nothing black comes in
    reach = [
        pixels_of(augment(image, Augmentation(**PLAIN, shift=0.5), size=(20, 60), rng=np.random.default_rng(seed)))
        for seed in range(60)
    ]
    dark = [int((view[0, 10] < 50).sum()) for view in reach]
    assert max(dark) > 25  # nearly half of the width
    assert max(dark) <= 32


def test_what_is_not_asked_for_does_not_happen() -> None:
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    how = Augmentation(**PLAIN)
    for seed in range(5):
        view = pixels_of(augment(image, how, size=(16, 16), rng=np.random.default_rng(seed)))
        assert np.array_equal(view.transpose(1, 2, 0), image)


def test_a_whole_factor_is_averaged_away_before_a_bilinear_resize() -> None:
    image = np.random.default_rng(0).integers(0, 256, (33, 47, 3), dtype=np.uint8)
    view = pixels_of(augment(image, Augmentation(**PLAIN), size=(8, 11), rng=np.random.default_rng(0)))
    means = image[:32, :44].astype(float).reshape(8, 4, 11, 4, 3).mean(axis=(1, 3))
    assert np.abs(view.transpose(1, 2, 0) - means).max() <= 1


def test_what_varies_by_default() -> None:
    how = Augmentation()
    assert (how.crop, how.min_area, how.flip, how.policy, how.interpolation, how.decode) == (
        "inception",
        0.05,
        True,
        "none",
        "bilinear",
        "full",
    )
    assert (how.shift, how.rotate, how.scale, how.jitter, how.erasing, how.repeats) == (0.0, 0.0, 0.0, 0.0, 0.0, 1)
    assert (how.margin, how.padding, how.border) == (8 / 7, 0.125, "reflect")
