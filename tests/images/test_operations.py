"""Every operation at values of its own unit, against the sources' formulas written out plainly, pixel by pixel."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

from tests.cases import every_case
from tests.images.sources import MEAN, big_vision_operation, photo, timm_operation
from vitral.images import pillow_operations, tensorflow_operations
from vitral.images.augment import Augmentation
from vitral.images.pillow_operations import Canvas
from vitral.images.policies import AUTOAUGMENT, BIG_VISION, IMAGENET, TIMM, check_policy

BILINEAR, BICUBIC, NEAREST = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.NEAREST
MAGNITUDES = (0.0, 1.0, 3.0, 5.5, 9.0, 10.0)


@every_case("kernel", [BILINEAR, BICUBIC])
@every_case("name", TIMM)
def test_timms_operations_at_every_strength(name: str, kernel: Image.Resampling) -> None:
    image = photo(20, 26)
    for magnitude in MAGNITUDES:
        for sign in (1, -1):
            value = TIMM[name](magnitude / 10, sign)
            value *= {"TranslateX": 26, "TranslateY": 20}.get(name, 1)
            ours = pillow_operations.OPERATIONS[name](Image.fromarray(image), value, Canvas(MEAN, kernel))
            assert ours.size == (26, 20)
            assert np.array_equal(np.asarray(ours), timm_operation(name, magnitude, sign, kernel)(image)), magnitude


@every_case("shape", [(20, 26), (31, 9)])
@every_case("name", [name for name in BIG_VISION if name != "Cutout"])
def test_big_visions_operations_at_every_strength(name: str, shape: tuple[int, int]) -> None:
    image = photo(*shape)
    for magnitude in (*MAGNITUDES, 15.0, 20.0, 30.0):
        for sign in (1, -1):
            ours = tensorflow_operations.OPERATIONS[name](image.copy(), BIG_VISION[name](magnitude / 10, sign))
            theirs = big_vision_operation(name, magnitude, sign)(image)
            assert ours.shape == image.shape
            assert ours.dtype == np.uint8
            differ = np.abs(ours.astype(int) - theirs)
            if name in ("Rotate", "ShearX", "ShearY", "Sharpness"):
                # A place half way between two pixels, or a sum just below a whole number, is rounded in single precision.
                assert (differ > 0).mean() < 0.02, magnitude
            else:
                assert differ.max() == 0, magnitude


def test_an_operation_leaves_the_image_that_it_was_given() -> None:
    image = photo()
    for name, operation in tensorflow_operations.OPERATIONS.items():
        given = image.copy()
        operation(given, 1.7)
        assert np.array_equal(given, image), name
    given = image.copy()
    tensorflow_operations.cutout(given, 4, 5, 6)
    assert np.array_equal(given, image)


@every_case("by_pillow", [False, True])
@every_case("name", ["ShearX", "ShearY"])
def test_a_shear_of_a_tenth_moves_the_tenth_row_by_one(name: str, by_pillow: bool) -> None:
    image = np.zeros((21, 21, 3), dtype=np.uint8)
    image[:, 10] = 255
    image = np.ascontiguousarray(image.transpose(1, 0, 2)) if name == "ShearY" else image
    if by_pillow:
        operation = pillow_operations.OPERATIONS[name]
        moved = np.asarray(operation(Image.fromarray(image), 0.1, Canvas((0, 0, 0), NEAREST)))
    else:
        moved = tensorflow_operations.OPERATIONS[name](image, 0.1)
    moved = moved.transpose(1, 0, 2) if name == "ShearY" else moved
    assert [int(np.flatnonzero(moved[row, :, 0] == 255)[0]) for row in (0, 11, 20)] == [10, 9, 8]


@every_case(("degrees", "turns"), [(90.0, 1), (180.0, 2), (-90.0, 3)])
def test_a_right_angle_turns_counterclockwise_about_the_middle(degrees: float, turns: int) -> None:
    image = photo(15, 15)
    assert np.array_equal(tensorflow_operations.rotate(image, degrees), np.rot90(image, turns))
    turned = pillow_operations.rotate(Image.fromarray(image), degrees, Canvas(MEAN, BILINEAR))
    assert np.array_equal(np.asarray(turned), np.rot90(image, turns))


def test_an_angle_between_takes_the_nearest_pixel_and_grey_from_beyond() -> None:
    for shape in ((9, 9), (6, 13)):
        image = photo(*shape, seed=3)
        for degrees in (7.0, -20.0, 33.0):
            turned = tensorflow_operations.rotate(image, degrees)
            middle = (shape[1] - 1) / 2, (shape[0] - 1) / 2
            for row, column in np.ndindex(*shape):
                x, y = column - middle[0], row - middle[1]
                angle = math.radians(degrees)
                at = (
                    math.cos(angle) * x - math.sin(angle) * y + middle[0],
                    math.sin(angle) * x + math.cos(angle) * y + middle[1],
                )
                if min(abs(part % 1 - 0.5) for part in at) < 1e-3:
                    continue
                source = round(at[1]), round(at[0])
                inside = 0 <= source[0] < shape[0] and 0 <= source[1] < shape[1]
                assert turned[row, column].tolist() == (image[source].tolist() if inside else [128] * 3)


@every_case(
    ("name", "value", "of"),
    [
        ("Posterize", 3, lambda value: value // 32 * 32),
        ("Posterize", 0, lambda value: value // 128 * 128),
        ("Posterize", -1, lambda value: value // 128 * 128),
        ("Posterize", 8, lambda value: value),
        ("Posterize", 7.9, lambda value: value // 2 * 2),
        ("Posterize", 9, lambda value: value // 128 * 128),
        ("Solarize", 100, lambda value: value if value < 100 else 255 - value),
        ("Solarize", 0, lambda value: 255 - value),
        ("Solarize", 256, lambda value: 255 - value),
        ("Solarize", 300, lambda value: value if value < 44 else 255 - value),
        ("Solarize", 255.9, lambda value: value if value < 255 else 0),
        ("SolarizeAdd", 30, lambda value: value + 30 if value < 128 else value),
        ("SolarizeAdd", 200.7, lambda value: min(value + 200, 255) if value < 128 else value),
        ("Invert", 0, lambda value: 255 - value),
        ("Brightness", 0.5, lambda value: value // 2),
        ("Brightness", 1.0, lambda value: value),
        ("Brightness", 2.0, lambda value: min(255, 2 * value)),
    ],
)
def test_tables_of_big_vision_for_every_value(name: str, value: float, of: Callable[[int], int]) -> None:
    image = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    expected = np.array([of(each) for each in range(256)], dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    assert np.array_equal(tensorflow_operations.OPERATIONS[name](image, value), expected)


@every_case(
    ("name", "value", "of"),
    [
        ("Posterize", 3, lambda value: value // 32 * 32),
        ("Posterize", 0, lambda value: 0),
        ("Posterize", 8, lambda value: value),
        ("Solarize", 100.5, lambda value: value if value <= 100 else 255 - value),
        ("Solarize", 256, lambda value: value),
        ("SolarizeAdd", 30.9, lambda value: value + 30 if value < 128 else value),
        ("SolarizeAdd", 200, lambda value: min(value + 200, 255) if value < 128 else value),
        ("Invert", 0, lambda value: 255 - value),
    ],
)
def test_tables_of_pillow_for_every_value(name: str, value: float, of: Callable[[int], int]) -> None:
    image = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    expected = np.array([of(each) for each in range(256)], dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    changed = pillow_operations.OPERATIONS[name](Image.fromarray(image), value, Canvas(MEAN, BILINEAR))
    assert np.array_equal(np.asarray(changed), expected)


@every_case(("shape", "grey"), [((20, 30), 2), ((16, 16), 1), ((15, 16), 0), ((300, 400), 255)])
def test_big_visions_contrast_turns_about_the_number_of_pixels(shape: tuple[int, int], grey: int) -> None:
    """pp/autoaugment.py sums a histogram whose sum is the number of pixels, and divides it by 256."""
    image = photo(*shape)
    assert np.array_equal(tensorflow_operations.contrast(image, 0.0), np.full_like(image, grey))
    half = np.trunc(grey + 0.5 * (image.astype(np.float64) - grey))
    assert np.array_equal(tensorflow_operations.contrast(image, 0.5), half.astype(np.uint8))


def test_big_visions_autocontrast_leaves_a_channel_of_one_value() -> None:
    image = photo()
    image[..., 1] = 77
    stretched = tensorflow_operations.autocontrast(image, 0.0)
    assert (stretched[..., 1] == 77).all()
    for channel in (0, 2):
        assert (stretched[..., channel].min(), stretched[..., channel].max()) == (0, 255)
    expected = (image[..., 0].astype(float) - image[..., 0].min()) * 255 / np.ptp(image[..., 0])
    assert np.abs(stretched[..., 0] - expected).max() <= 1


@every_case("shape", [(2, 9), (9, 2), (1, 1), (3, 3), (3, 8)])
def test_big_visions_sharpness_leaves_the_border(shape: tuple[int, int]) -> None:
    image = photo(*shape)
    smooth = image.astype(int)
    for row in range(1, shape[0] - 1):
        for column in range(1, shape[1] - 1):
            around = image[row - 1 : row + 2, column - 1 : column + 2].astype(int).sum(axis=(0, 1))
            smooth[row, column] = (around + 4 * image[row, column].astype(int)) // 13
    found = tensorflow_operations.sharpness(image, 0.0).astype(int)
    assert np.abs(found - smooth).max() <= 1  # a sum in single precision may fall short of a whole number
    assert (found != smooth).mean() < 0.1


def test_a_cut_is_a_grey_square_about_its_place_cut_off_at_the_edges() -> None:
    image = photo(12, 15)
    for half, row, column in ((3, 6, 7), (3, 1, 2), (4, 11, 14), (30, 0, 14), (0, 5, 5)):
        found = tensorflow_operations.cutout(image, half, row, column)
        for y, x in np.ndindex(12, 15):
            inside = row - half <= y < row + half and column - half <= x < column + half
            assert found[y, x].tolist() == ([128] * 3 if inside else image[y, x].tolist())


def test_grey_and_blur_are_pillows() -> None:
    image = photo()
    shares = image.astype(float) @ np.array([0.299, 0.587, 0.114])
    assert np.abs(np.asarray(pillow_operations.grey(Image.fromarray(image))) - shares[..., None]).max() <= 1
    for radius in (0.1, 1.0, 2.0):
        theirs = Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius))
        assert np.array_equal(np.asarray(pillow_operations.blur(Image.fromarray(image), radius)), np.asarray(theirs))


def test_values_at_timms_strengths() -> None:
    """data/auto_augment.py, _LEVEL_DENOM of 10 and the "increasing" functions; shear 0.3, rotation 30, translation 0.45."""
    values: dict[str, list[Any]] = {
        "ShearX": [0.0, 0.15, 0.3],
        "ShearY": [0.0, 0.15, 0.3],
        "Rotate": [0.0, 15.0, 30.0],
        "TranslateX": [0.0, 0.225, 0.45],
        "TranslateY": [0.0, 0.225, 0.45],
        "Posterize": [4, 2, 0],
        "Solarize": [256, 128, 0],
        "SolarizeAdd": [0, 55, 110],
        "Color": [1.0, 1.45, 1.9],
    }
    for name, expected in values.items():
        assert [TIMM[name](share, 1) for share in (0.0, 0.5, 1.0)] == pytest.approx(expected), name
    assert [TIMM[name](1.0, -1) for name in ("ShearX", "Rotate", "TranslateY", "Color")] == pytest.approx(
        [-0.3, -30.0, -0.45, 0.1]
    )
    assert set(TIMM) == set(pillow_operations.OPERATIONS)
    assert len(TIMM) == 15


def test_values_at_big_visions_strengths() -> None:
    """pp/autoaugment.py, level_to_arg with _MAX_LEVEL 10, translate_const 100 and cutout_const 40."""
    for name, expected in {
        "ShearX": 0.6,
        "Rotate": 60.0,
        "TranslateX": 200.0,
        "TranslateY": 200.0,
        "Posterize": 8,
        "Solarize": 512,
        "SolarizeAdd": 220,
        "Color": 3.7,
        "Contrast": 3.7,
        "Brightness": 3.7,
        "Sharpness": 3.7,
        "Cutout": 80,
    }.items():
        assert BIG_VISION[name](2.0, 1) == pytest.approx(expected), name
    assert BIG_VISION["ShearY"](1.0, -1) == pytest.approx(-0.3)
    assert set(BIG_VISION) - {"Cutout"} == set(tensorflow_operations.OPERATIONS)


def test_values_at_autoaugments_strengths() -> None:
    """arXiv 1805.09501, table 6, in ten steps from 0; solarise and posterise weaken the image as the strength grows."""
    ends: dict[str, tuple[float, float]] = {
        "ShearX": (0.0, 0.3),
        "Rotate": (0.0, 30.0),
        "Posterize": (8, 4),
        "Solarize": (255.0, 0.0),
        "Color": (1.0, 1.9),
        "Contrast": (1.0, 1.9),
        "Sharpness": (1.0, 1.9),
    }
    for name, expected in ends.items():
        assert [AUTOAUGMENT[name](number, 1) for number in (0, 9)] == pytest.approx(expected, abs=1e-5), name
    assert AUTOAUGMENT["Color"](9, -1) == pytest.approx(0.1)
    assert AUTOAUGMENT["Rotate"](3, -1) == pytest.approx(-10.0)
    assert len(IMAGENET) == 25


@every_case(
    ("policy", "magnitude", "spread", "says"),
    [
        ("timm-randaugment", 10.5, 0.0, r"^timm-randaugment takes magnitudes from 0 to 10, not 10\.5$"),
        ("timm-randaugment", -1.0, 0.0, r"^timm-randaugment takes magnitudes from 0 to 10, not -1$"),
        ("big-vision-randaugment", 31.0, 0.0, r"^big-vision-randaugment takes magnitudes from 0 to 30, not 31$"),
        ("big-vision-randaugment", 9.0, 0.5, "^big-vision-randaugment has one magnitude for all images; leave magnit"),
    ],
)
def test_magnitudes_beyond_the_source_are_refused(policy: Any, magnitude: float, spread: float, says: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=says):
        check_policy(policy, magnitude, spread)


@every_case(
    ("policy", "magnitude", "spread"),
    [
        ("timm-randaugment", 0.0, 0.0),
        ("timm-randaugment", 10.0, 3.0),
        ("big-vision-randaugment", 30.0, 0.0),
        ("big-vision-randaugment", 0.0, 0.0),
        ("autoaugment", 99.0, 1.0),
        ("none", 99.0, 0.0),
    ],
)
def test_magnitudes_that_a_source_defines_are_taken(policy: Any, magnitude: float, spread: float) -> None:  # noqa: ANN401
    check_policy(policy, magnitude, spread)


def test_what_a_policy_is_told_by_default() -> None:
    told = Augmentation(policy="timm-randaugment")
    assert (told.operations, told.magnitude, told.magnitude_std, told.interpolation) == (2, 9.0, 0.0, "bilinear")
