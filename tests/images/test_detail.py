"""The side at which an image shows as much as at its own size: what it was enlarged from, and none where it was not."""

import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.cases import every_case
from vitral.images.decode import detail_side

SIDES = (32, 48, 64, 80, 96, 112, 128, 160)
PHOTOS = load_sample_images().images  # 427 x 640 pixels


def resized(pixels: np.ndarray, side: int, how: Image.Resampling) -> np.ndarray:
    """Return an image with that shorter side."""
    image = Image.fromarray(pixels)
    scale = side / min(image.size)
    return np.asarray(image.resize((round(image.width * scale), round(image.height * scale)), how))


@every_case("photo", range(len(PHOTOS)))
@every_case("side", [96, 200, 427])
def test_a_photograph_that_was_not_enlarged_shows_more_at_its_own_size(photo: int, side: int) -> None:
    assert detail_side(resized(PHOTOS[photo], side, Image.Resampling.BICUBIC), SIDES) is None


@every_case("how", ["BILINEAR", "BICUBIC", "LANCZOS"])
@every_case("enlarged", [1.6, 3.5, 9.0])
@every_case("side", [32, 48, 64, 96])
@every_case("photo", range(len(PHOTOS)))
def test_an_enlarged_one_shows_what_it_did_before(photo: int, side: int, enlarged: float, how: str) -> None:
    small = resized(PHOTOS[photo], side, Image.Resampling.BICUBIC)
    large = Image.fromarray(resized(small, round(enlarged * side), Image.Resampling[how]))
    file = io.BytesIO()
    large.save(file, "JPEG", quality=85)  # what a file's compression adds is no detail
    found = detail_side(np.asarray(Image.open(file)), SIDES)
    place = SIDES.index(side)
    near = SIDES[max(0, place - 1) : place + 2]
    assert found in (near if enlarged > 1.6 else (*near, None))


def test_small_noisy_and_flat_images() -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (200, 200, 3), dtype=np.uint8)
    assert detail_side(noise, SIDES) is None
    assert detail_side(noise[:32, :300], SIDES) is None
    assert detail_side(noise[:1, :1], SIDES) is None
    assert detail_side(np.full((200, 300, 3), 7, np.uint8), SIDES) == 32


@every_case("shape", [(2000, 50, 3), (50, 2000, 3), (60, 9000, 3)])
def test_long_images_are_measured_by_their_shorter_side(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    assert detail_side(rng.integers(0, 256, shape, dtype=np.uint8), SIDES) is None
    assert detail_side(np.zeros(shape, np.uint8), SIDES) == 32
