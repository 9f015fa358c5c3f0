"""Polygons and run lengths against pycocotools' own, which `write_polygons` kept."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cases import every_case
from vitral.data.annotations.polygons import polygons_mask
from vitral.images.run_lengths import counts_text, decode_mask, encode_mask, runs_box, runs_of_text, tight_box

ROWS = json.loads(Path(__file__).with_name("polygons.json").read_text())


def test_polygons_cover_the_pixels_that_pycocotools_says() -> None:
    for polygons, height, width, text, (x, y, across, down) in ROWS:
        runs = polygons_mask(polygons, (height, width))
        assert counts_text(runs) == text
        if runs[1::2].sum():
            assert runs_box(runs, height) == (x, y, x + across, y + down)


def test_run_lengths_and_their_text_are_each_others_inverse() -> None:
    for _, height, width, text, _ in ROWS:
        runs = runs_of_text(text)
        mask = decode_mask(runs, (height, width))
        assert np.array_equal(encode_mask(mask), runs)
        assert runs_box(runs, height) == tight_box(mask)
        assert counts_text(runs) == text


@every_case("text", ["0a", "~", "P", "d", "o" * 12, "é", "\x00"])
def test_what_is_no_text_of_run_lengths_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="run length|ascii"):
        runs_of_text(text)


def test_fewer_than_three_points_cover_nothing_and_far_ones_end_soon() -> None:
    assert polygons_mask([[1.0, 1.0, 5.0, 5.0]], (9, 9))[1::2].sum() == 0
    whole = polygons_mask([[-1e9, -1e9, 1e9, -1e9, 1e9, 1e9, -1e9, 1e9]], (9, 7))
    assert decode_mask(whole, (9, 7)).all()
