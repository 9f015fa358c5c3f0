"""The drawing: where the light falls, and its range."""

import numpy as np
import pytest

from vitral.explanation.overlay import LARGEST, SMALLEST, overlay, relevance_mask


def test_mask_spans_zero_to_one_and_peaks_where_the_grid_does() -> None:
    grid = np.zeros((4, 6), dtype=np.float32)
    grid[1, 4] = 0.02
    mask = relevance_mask(grid, (600, 200), blur=1.0)
    assert mask.shape == (200, 600)
    assert (mask.min(), mask.max()) == (0.0, 1.0)
    row, column = np.unravel_index(int(mask.argmax()), mask.shape)
    assert abs(row - 75) <= 15
    assert abs(column - 450) <= 30


def test_equal_relevance_darkens_nothing() -> None:
    image = np.full((224, 300, 3), 90, dtype=np.uint8)
    np.testing.assert_array_equal(overlay(image, np.full((3, 3), 0.1)), image)
    np.testing.assert_array_equal(overlay(image, np.zeros((3, 3))), image)


def test_paper_style_multiplies_over_black() -> None:
    image = np.full((240, 240, 3), 200, dtype=np.uint8)
    grid = np.zeros((6, 6))
    grid[:, :2] = 1.0
    drawn = overlay(image, grid)
    assert drawn[120, 0].tolist() == [200, 200, 200]
    assert drawn[120, 239].tolist() == [0, 0, 0]
    assert 20 < drawn[120, 90, 0] < 180


def test_heat_style_is_lighter_where_it_matters() -> None:
    image = np.full((240, 240, 3), 128, dtype=np.uint8)
    grid = np.zeros((6, 6))
    grid[:, :2] = 1.0
    drawn = overlay(image, grid, style="heat").astype(int)
    assert drawn[120, 10].sum() > drawn[120, 230].sum() + 150


@pytest.mark.parametrize(("shape", "drawn"), [((8, 8), (224, 224)), ((100, 300), (100, 300)), ((20, 10), (224, 112))])
def test_small_pictures_are_enlarged(shape: tuple[int, int], drawn: tuple[int, int]) -> None:
    assert overlay(np.zeros((*shape, 3), dtype=np.uint8), np.ones((2, 2))).shape == (*drawn, 3)
    assert max(drawn) >= SMALLEST


def test_large_pictures_are_made_smaller() -> None:
    assert overlay(np.zeros((1000, 2048, 3), dtype=np.uint8), np.ones((2, 2))).shape == (500, LARGEST, 3)
