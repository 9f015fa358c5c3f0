"""The fifteen corruptions: each does what it says, the stronger the more, and draws the same for the same seed."""

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_sample_image

from tests.cases import every_case
from vitral.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from vitral.images.decode import Pixels
from vitral.seeds import generator


@pytest.fixture(scope="module")
def photo() -> Pixels:
    return np.ascontiguousarray(load_sample_image("china.jpg")[100:228, 200:328])


def drawn(image: Pixels, name: str, severity: int, seed: int = 0) -> Pixels:
    return corrupt(image, name, severity, generator(seed, "test"))


def test_there_are_fifteen() -> None:
    assert len(CORRUPTIONS) == 15


@every_case("name", CORRUPTIONS)
def test_the_size_stays_the_input_stays_and_the_seed_decides(photo: Pixels, name: str) -> None:
    before = photo.copy()
    for image in (photo, photo[:37, :53]):
        first = drawn(image, name, 3)
        assert first.shape == image.shape
        assert first.dtype == np.uint8
        assert not np.array_equal(first, image)
        np.testing.assert_array_equal(drawn(image, name, 3), first)
    np.testing.assert_array_equal(photo, before)
    drawn(photo[:1, :1], name, 5)
    drawn(photo[:2, :9], name, 5)


STEADY = ("gaussian noise", "shot noise", "impulse noise", "defocus blur", "brightness", "contrast", "jpeg compression")


# Elastic shifts change their kind after the second severity, and frost darkens what it covers; pixels say little of either.
@every_case("name", sorted(set(CORRUPTIONS) - {"elastic transform", "frost"}))
def test_a_higher_severity_is_further_from_the_image(photo: Pixels, name: str) -> None:
    away = [float(np.abs(drawn(photo, name, severity).astype(float) - photo).mean()) for severity in SEVERITIES]
    assert away[-1] > 1.1 * away[0]
    if name in STEADY:
        assert away == sorted(away)


def test_noise_is_of_the_stated_strength() -> None:
    grey = np.full((200, 200, 3), 128, dtype=np.uint8)
    value = 128 / 255
    for severity, sigma, photons in ((1, 0.08, 60), (3, 0.18, 12)):
        assert (drawn(grey, "gaussian noise", severity) / 255).std() == pytest.approx(sigma, rel=0.03)
        assert (drawn(grey, "shot noise", severity) / 255).std() == pytest.approx((value / photons) ** 0.5, rel=0.05)
    impulses = drawn(grey, "impulse noise", 5)
    assert (impulses == 0).mean() == pytest.approx(0.27 / 2, abs=0.01)
    assert (impulses == 255).mean() == pytest.approx(0.27 / 2, abs=0.01)


def test_simple_ones_are_their_formulas(photo: Pixels) -> None:
    values = photo.astype(np.float64) / 255
    means = values.mean(axis=(0, 1))
    expected = np.rint(np.clip((values - means) * 0.3 + means, 0, 1) * 255)
    assert np.abs(drawn(photo, "contrast", 2) - expected).max() <= 1
    brighter = drawn(photo, "brightness", 2)
    assert np.abs(brighter.max(axis=2) - np.minimum(photo.max(axis=2).astype(float) + 0.2 * 255, 255)).max() <= 1
    blocks = drawn(photo, "pixelate", 5)
    np.testing.assert_array_equal(blocks[::4, ::4], blocks[3::4, 3::4])


@pytest.fixture(scope="module")
def published(photo: Pixels) -> Pixels:
    """A photo of the authors' size."""
    return np.ascontiguousarray(load_sample_image("flower.jpg")[100:324, 200:424])


@every_case(("severity", "share"), enumerate((0.6, 0.5, 0.4, 0.3, 0.25), 1))
def test_pixelate_is_pillows_box_down_and_up_again(published: Pixels, severity: int, share: float) -> None:
    side = int(224 * share)
    small = Image.fromarray(published).resize((side, side), Image.Resampling.BOX)
    right = np.asarray(small.resize((224, 224), Image.Resampling.BOX))
    np.testing.assert_array_equal(drawn(published, "pixelate", severity), right)


def test_pixelate_is_stronger_at_each_severity(published: Pixels) -> None:
    away = [float(np.abs(drawn(published, "pixelate", each).astype(float) - published).mean()) for each in SEVERITIES]
    assert away == sorted(away)


def blurred(image: np.ndarray, sigma: float, mode: str, truncate: float) -> np.ndarray:
    sigmas = (sigma, sigma) + (0,) * (image.ndim - 2)
    return np.asarray(ndimage.gaussian_filter(image.astype(np.float64), sigmas, mode=mode, truncate=truncate))


GLASS = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))


@every_case("severity", SEVERITIES)
def test_glass_copies_neighbours_as_the_authors_program_does(published: Pixels, severity: int) -> None:
    sigma, reach, rounds = GLASS[severity - 1]
    rng = generator(0, "test")
    seen = (blurred(published / 255, sigma, "nearest", 4.0) * 255 + 1e-3).astype(np.uint8)
    for _ in range(rounds):
        down, right = (rng.integers(-reach, reach, (224, 224)) for _ in range(2))
        for row in range(224 - reach, reach, -1):
            for column in range(224 - reach, reach, -1):
                there = row + down[row, column], column + right[row, column]
                # Both sides of the published exchange are views of the image.
                seen[row, column], seen[there] = seen[there], seen[row, column]
    expected = blurred(seen / 255, sigma, "nearest", 4.0) * 255
    difference = np.abs(drawn(published, "glass blur", severity) - expected)
    assert (difference > 1).mean() < 0.001
    assert difference.max() <= 3


ELASTIC = ((2.0, 0.7, 0.1), (2.0, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))


@every_case("severity", SEVERITIES)
def test_elastic_shifts_have_the_lengths_of_the_authors_program(published: Pixels, severity: int) -> None:
    alpha, sigma, shift = (244 * share for share in ELASTIC[severity - 1])
    rng = generator(0, "test")
    third, middle = 224 // 3, 112
    corners = np.array(
        [[middle + third, middle + third], [middle + third, middle - third], [middle - third, middle - third]]
    )
    moved = corners + rng.uniform(-shift, shift, corners.shape)
    # Of three points and where they go: the affine map, and what it takes each pixel from.
    matrix = np.linalg.solve(np.column_stack([corners, np.ones(3)]), moved).T
    rows, columns = np.mgrid[:224, :224]
    back = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))
    from_columns, from_rows, _ = np.tensordot(back, np.stack([columns, rows, np.ones_like(rows)]), axes=1)
    turned = np.stack(
        [
            ndimage.map_coordinates(plane, [from_rows, from_columns], order=1, mode="mirror")
            for plane in planes(published)
        ]
    )
    across, down = (blurred(rng.uniform(-1, 1, (224, 224)), sigma, "reflect", 3.0) * alpha for _ in range(2))
    expected = np.stack(
        [ndimage.map_coordinates(plane, [rows + down, columns + across], order=1, mode="reflect") for plane in turned],
        2,
    )
    found = drawn(published, "elastic transform", severity)
    away = float(np.abs(expected - published).mean())
    assert float(np.abs(found - expected).mean()) < 0.03 * away + 0.5


def planes(image: Pixels) -> list[np.ndarray]:
    return [image[..., channel].astype(np.float64) for channel in range(3)]


@every_case("name", ["defocus blur", "glass blur", "motion blur", "zoom blur", "elastic transform"])
def test_blurs_and_shifts_leave_a_plain_image_plain(name: str) -> None:
    plain = np.full((64, 64, 3), (200, 100, 50), dtype=np.uint8)
    for severity in SEVERITIES:
        assert np.abs(drawn(plain, name, severity).astype(int) - plain).max() <= 1
