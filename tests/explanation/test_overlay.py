"""The map: where the light falls, its range, and colours whose order can be seen."""

import numpy as np
import pytest

from tests.cases import every_case
from vitral.explanation.drawing import LARGEST, colour_scale, overlay, relevance_field


def lightness(colours: np.ndarray) -> np.ndarray:
    """CIELAB's L* of sRGB values 0 to 255, from its definition; the scale itself is made in another space."""
    value = np.asarray(colours) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    return np.where(luminance > 216 / 24389, 116 * np.cbrt(luminance) - 16, luminance * 24389 / 27)


def test_the_scale_rises_in_lightness_by_equal_steps() -> None:
    steps = np.diff(lightness(colour_scale())[::15])
    assert steps.min() > 0
    assert steps.max() < 2 * steps.min()
    assert lightness(colour_scale())[[0, -1]].tolist() == pytest.approx([10, 93], abs=4)


def test_the_field_spans_zero_to_one_and_peaks_where_the_grid_does() -> None:
    grid = np.zeros((4, 6), dtype=np.float32)
    grid[1, 4] = 0.02
    field = relevance_field(grid, shape=3.0)
    assert field.values.shape == (85, 256)
    assert (field.values.min(), field.values.max()) == (0.0, 1.0)
    row, column = np.unravel_index(int(field.values.argmax()), field.values.shape)
    assert abs(row / 85 - 1.5 / 4) < 0.06
    assert abs(column / 256 - 4.5 / 6) < 0.06


def test_the_ends_of_the_scale_say_what_they_stand_for() -> None:
    grid = np.ones((8, 8))
    grid[:, :4] = 3.0
    field = relevance_field(grid, shape=1.0)
    assert field.lowest == pytest.approx(0.5, abs=0.06)
    assert field.highest == pytest.approx(1.5, abs=0.06)


def test_where_every_place_counts_alike_nothing_is_made_up() -> None:
    alike, none = relevance_field(np.full((3, 3), 0.1), shape=1.0), relevance_field(np.zeros((3, 3)), shape=1.0)
    assert (float(alike.values.min()), alike.lowest, alike.highest) == (1.0, 1.0, 1.0)
    hardly = relevance_field(np.linspace(0.99, 1.01, 16).reshape(4, 4), shape=1.0)
    assert (float(hardly.values.min()), hardly.lowest, hardly.highest) == (1.0, 1.0, 1.0)
    assert (float(none.values.max()), none.lowest, none.highest) == (0.0, 0.0, 0.0)


def test_the_drawing_is_lighter_where_it_matters() -> None:
    grid = np.zeros((6, 6))
    grid[:, :2] = 1.0
    drawn = overlay(np.full((240, 240, 3), 128, dtype=np.uint8), grid).astype(int)
    assert drawn[120, 10].sum() > drawn[120, 230].sum() + 150


@every_case("brightest", [12, 60, 255])
def test_a_dark_image_can_be_seen_under_its_map(brightest: int) -> None:
    ramp = np.linspace(0, brightest, 240).astype(np.uint8)
    image = np.repeat(np.repeat(ramp[None, :, None], 240, axis=0), 3, axis=2)
    drawn = overlay(image, np.full((4, 4), 0.3)).astype(int)
    assert np.ptp(drawn[120, :, 0]) > 80


@every_case(("shape", "drawn"), [((8, 8), (224, 224)), ((100, 300), (100, 300)), ((20, 10), (240, 120))])
def test_small_images_are_enlarged(shape: tuple[int, int], drawn: tuple[int, int]) -> None:
    assert overlay(np.zeros((*shape, 3), dtype=np.uint8), np.ones((2, 2))).shape == (*drawn, 3)


def test_large_images_are_made_smaller() -> None:
    assert overlay(np.zeros((1000, 2048, 3), dtype=np.uint8), np.ones((2, 2))).shape == (500, LARGEST, 3)
