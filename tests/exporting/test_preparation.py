"""The preprocessing in a graph gives the pixels of the one in Python: bit for bit in 8 bits, to rounding in float32."""

import itertools

import numpy as np
import pytest
import torch

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.exporting.preparation import PreparationGraph
from vitral.images.decode import Pixels
from vitral.images.preprocessing import Interpolation, Preprocessing, Resampler, Resize

# Height and width: grown, shrunk a little and a lot, odd and even, tall, wide, and so thin that the pipelines would fail.
SIZES = [
    (40, 50),
    (300, 451),
    (451, 300),
    (20, 31),
    (32, 32),
    (5, 7),
    (65, 129),
    (32, 64),
    (257, 33),
    (90, 1300),
    (9, 1200),
]
TARGETS = [(32, 32), (24, 40)]
LEVEL = 1 / 127.5  # one of 255 levels, on the scale -1 to 1


def noise(height: int, width: int, seed: int = 0) -> Pixels:
    """Noise, in which every pixel counts, or blocks of it, in which sums meet halves."""
    rng = np.random.default_rng((seed, height, width))
    if height % 2:
        return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    small = rng.integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    return np.ascontiguousarray(np.kron(small, np.ones((8, 8, 1), np.uint8))[:height, :width])


def furthest(preprocessing: Preprocessing, height: int, width: int) -> float:
    """Return the largest difference of a pixel, in levels."""
    image = noise(height, width)
    own = preprocessing(image)
    found = PreparationGraph(preprocessing)(torch.from_numpy(image)[None])[0]
    return float((found - own).abs().max()) / LEVEL


@every_case("interpolation", ["bilinear", "bicubic"])
@every_case("resize", ["squash", "crop", "pad"])
@every_case("resampler", ["torch", "pillow"])
def test_in_8_bits_it_is_the_same_in_every_bit(
    resampler: Resampler, resize: Resize, interpolation: Interpolation
) -> None:
    for target, fraction, size in itertools.product(TARGETS, (1.0, 0.875, 0.9), SIZES):
        preprocessing = Preprocessing(
            image_size=target, resize=resize, crop_fraction=fraction, interpolation=interpolation, resampler=resampler
        )
        # What is too thin for the pipelines is resized in float32, here and there.
        assert furthest(preprocessing, *size) < 1e-3, (target, fraction, size)


@every_case("antialias", [False, True])
@every_case("interpolation", ["bilinear", "bicubic", "nearest"])
@every_case("resize", ["squash", "crop", "pad"])
def test_in_float32_it_is_the_same_to_its_rounding(
    resize: Resize, interpolation: Interpolation, antialias: bool
) -> None:
    for target, fraction, size in itertools.product(TARGETS, (1.0, 0.9), SIZES):
        preprocessing = Preprocessing(
            image_size=target, resize=resize, crop_fraction=fraction, interpolation=interpolation, antialias=antialias
        )
        # Without antialiasing torch computes where an output lies in float32: a hundredth of a level in noise.
        assert furthest(preprocessing, *size) < (1e-3 if antialias else 0.03), (target, fraction, size)


def test_torchs_nearest_pixel_is_the_same_one() -> None:
    for size in SIZES:
        assert furthest(Preprocessing(image_size=(24, 40), interpolation="nearest", resampler="torch"), *size) < 1e-3


def test_shrinking_by_forty_times_may_move_a_value_by_one_level() -> None:
    preprocessing = Preprocessing(image_size=(24, 40), interpolation="bicubic", resampler="torch")
    image = noise(1001, 70)
    own, found = preprocessing(image), PreparationGraph(preprocessing)(torch.from_numpy(image)[None])[0]
    apart = (found - own).abs() / LEVEL
    assert float(apart.max()) < 1.01
    assert float((apart > 0.5).float().mean()) < 0.01


def test_images_of_a_batch_do_not_meet() -> None:
    preprocessing = Preprocessing(image_size=(32, 32), resampler="torch")
    images = np.stack([noise(51, 37, seed) for seed in range(3)])
    found = PreparationGraph(preprocessing)(torch.from_numpy(images))
    torch.testing.assert_close(found, torch.stack([preprocessing(image) for image in images]), rtol=0, atol=0)


def test_a_crop_of_a_sixteenth_is_the_same() -> None:
    assert furthest(Preprocessing(image_size=(24, 24), crop_fraction=0.05, resampler="torch"), 300, 451) < 1e-3


def test_pillows_nearest_pixels_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match="nearest pixels cannot be written as a graph"):
        PreparationGraph(Preprocessing(interpolation="nearest", resampler="pillow"))
