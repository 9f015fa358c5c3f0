"""Regions drawn on a photo: what is coloured, outlined, named, and what is left as it is."""

import numpy as np

from vitral.tasks.drawn_regions import LARGEST, class_colours, drawn_regions, region_numbers
from vitral.tasks.regions import Regions

GREY = np.full((80, 120, 3), 128, dtype=np.uint8)


def square(left: int, top: int, side: int, size: tuple[int, int] = (80, 120)) -> np.ndarray:
    mask = np.zeros(size, dtype=bool)
    mask[top : top + side, left : left + side] = True
    return mask


def test_colours_are_distinct() -> None:
    colours = class_colours(17).astype(int)
    apart = np.abs(colours[:, None] - colours[None]).sum(axis=2) + 999 * np.eye(17, dtype=int)
    assert apart.min() >= 60
    assert len({tuple(colour) for colour in class_colours(300).tolist()}) == 300


def test_of_overlapping_regions_the_first_lies_on_top() -> None:
    regions = Regions.of_masks((80, 120), [0, 1], [square(10, 10, 20), square(20, 10, 20)])
    expected = np.where(square(10, 10, 20), 1, np.where(square(20, 10, 20), 2, 0))
    assert (region_numbers(regions) == expected).all()


def test_a_mask_is_coloured_and_outlined_and_the_rest_is_the_photo() -> None:
    drawn = drawn_regions(GREY, Regions.of_masks((80, 120), [0], [square(20, 20, 30)]), ["cell"], legend=False)
    factor = drawn.shape[0] // 80
    red = class_colours(1)[0].astype(int)
    inside = drawn[35 * factor, 35 * factor].astype(int)
    assert np.abs(inside - (0.6 * 128 + 0.4 * red)).max() <= 1
    assert (drawn[20 * factor, 35 * factor] == red).all()
    assert (drawn[70 * factor, 100 * factor] == 128).all()


def test_background_is_left_as_it_is() -> None:
    labels = np.where(square(20, 20, 30), 1, 0)
    drawn = drawn_regions(GREY, Regions.of_map(labels), ["Background", "cell"], counted=False, legend=False)
    assert (drawn[-1, -1] == 128).all()


def test_a_large_photo_is_shrunk_and_loses_no_tiny_region() -> None:
    size = (100, 8000)
    photo = np.zeros((*size, 3), dtype=np.uint8)
    drawn = drawn_regions(photo, Regions.of_masks(size, [0], [square(4001, 51, 1, size)]), ["cell"], legend=False)
    assert drawn.shape == (20, LARGEST, 3)
    assert drawn.any(axis=2).sum() >= 1


def test_names_stand_beside_large_regions_only_and_legends_below() -> None:
    photo = np.full((700, 700, 3), 128, dtype=np.uint8)
    boxes = [[100.0, 100.0, 400.0, 400.0], [500.0, 500.0, 510.0, 510.0]]
    drawn = drawn_regions(photo, Regions.of_boxes((700, 700), [0, 1], boxes), ["cell", "dot"], scores=[0.9, 0.8])
    assert (drawn[86:96, 102] == class_colours(1)[0]).all()  # the name's ground, above the box
    assert (drawn[470:498, 505] == 128).all()  # a name here would be larger than what it names
    assert drawn.shape[0] > 700


def test_nothing_found_says_so() -> None:
    assert drawn_regions(GREY, Regions.of_masks((80, 120), [], []), []).shape[0] > 80 * 640 // 120
