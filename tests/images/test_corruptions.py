"""The fifteen corruptions: each does what it says, the stronger the more, and draws the same for the same seed."""

import numpy as np
import pytest
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


@pytest.mark.parametrize("name", ["defocus blur", "glass blur", "motion blur", "zoom blur", "elastic transform"])
def test_blurs_and_shifts_leave_a_plain_image_plain(name: str) -> None:
    plain = np.full((64, 64, 3), (200, 100, 50), dtype=np.uint8)
    for severity in SEVERITIES:
        assert np.abs(drawn(plain, name, severity).astype(int) - plain).max() <= 1
