"""Many masks moved at once are each where it is moved alone, pixel for pixel, and are written as COCO writes them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.images.geometry import Affine, Crop, Flip, Geometry, Pad, Resize, Transform
from vitral.images.moved_masks import draw_masks, move_masks, paint_masks
from vitral.images.run_lengths import decode_mask, encode_mask, tight_box

SIDES = st.integers(1, 24)
STEPS = st.one_of(
    st.builds(Crop, st.integers(-4, 6), st.integers(-4, 6), SIDES, SIDES),
    st.builds(Resize, SIDES, SIDES),
    st.just(Pad(1, 1, mirror=True)),
    st.just(Pad(2, 3, mirror=False)),
    st.builds(Flip, st.booleans()),
    st.just(Affine((0.8, 0.3, 2.0, -0.3, 0.9, 1.0), "edge")),
    st.just(Affine((1.0, 0.0, 2.5, 0.2, 1.1, -1.0))),
)


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(SIDES, SIDES),
    st.lists(STEPS, max_size=4),
    st.integers(0, 6),
    st.integers(0, 1000),
    st.sampled_from([1, 40, 1 << 20]),
)
def test_masks_move_together_as_each_moves_alone(
    size: tuple[int, int], steps: list[Transform], count: int, seed: int, at_once: int
) -> None:
    rng = np.random.default_rng(seed)
    masks = [rng.random(size) < share for share in rng.choice([0.0, 0.1, 0.6, 1.0], count)]  # some lie over others
    geometry = Geometry(size, tuple(steps))
    moved = move_masks([encode_mask(mask) for mask in masks], geometry)
    assert (draw_masks([encode_mask(mask) for mask in masks], size) == np.reshape(masks, (-1, *size))).all()
    alone = {number: geometry.mask(mask) for number, mask in enumerate(masks)}
    alone = {number: mask for number, mask in alone.items() if mask.any()}
    assert moved.numbers.tolist() == list(alone)
    painted = np.full(size, -7)
    for number, mask in enumerate(masks):
        painted[mask] = 3 * number
    values = 3 * np.arange(len(masks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitral.images.moved_masks.PAINTED_AT_ONCE", at_once)
        ours = paint_masks([encode_mask(mask) for mask in masks], values, size, ground=-7)
    assert ours.flags.c_contiguous
    assert (ours == painted).all()
    for runs, box, area, mask in zip(moved.masks, moved.boxes, moved.areas, alone.values(), strict=True):
        assert runs.dtype == np.uint32
        assert runs.tolist() == encode_mask(mask).tolist()
        assert (tuple(box), area) == (tight_box(mask), mask.sum())
        assert (decode_mask(runs, geometry.size) == mask).all()


def test_no_mask_moves_to_none() -> None:
    for masks in ([], [encode_mask(np.zeros((4, 5), dtype=bool))]):
        moved = move_masks(masks, Geometry((4, 5), (Resize(8, 8),)))
        assert (len(moved.numbers), moved.masks, moved.boxes.shape, moved.areas.tolist()) == (0, (), (0, 4), [])
