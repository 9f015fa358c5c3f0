"""Regions follow every augmentation: masks with their holes, boxes around them, as torchvision's own transforms move them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision import tv_tensors
from torchvision.transforms.v2 import InterpolationMode, functional

from tests.images.sources import augment
from vitral.data.assemble import DENSE_AUGMENTATION
from vitral.images.augment import Augmentation, training_view
from vitral.images.geometry import Crop, Flip, Geometry, Pad, Resize, Steps
from vitral.images.policies import POLICIES
from vitral.images.run_lengths import Bitmap
from vitral.tasks.regions import Regions

SIZE = (48, 40)
SHAPE = (70, 90)
FILL = (9, 9, 9)
PLAIN = [
    DENSE_AUGMENTATION,
    Augmentation(crop="scale-jitter", scales=(0.1, 2.0), vertical_flip=True),
    Augmentation(crop="scale-jitter", scales=(2.0, 2.0), flip="alternating"),
    Augmentation(crop="squash-jitter", scales=(0.75, 1.5), decode="scaled"),
    *(
        Augmentation(crop=crop, min_area=0.3, decode="scaled")
        for crop in ("inception", "resized", "square", "centre", "none")
    ),
    Augmentation(crop="padded", padding=0.25, border="black", vertical_flip=True),
]
TURNED = [
    Augmentation(crop="none", rotate=30.0, shift=0.1, scale=0.3),
    Augmentation(crop="scale-jitter", rotate=20.0, policy="timm-randaugment", magnitude_std=0.5),
    *(Augmentation(crop="none", policy=policy) for policy in POLICIES),
]
MIRRORED = Augmentation(crop="padded", padding=0.25, border="reflect")


def ring(x: float, y: float, radius: float, squeeze: float) -> tuple[Bitmap, Bitmap]:
    """Return an ellipse without its middle, and its middle; both end some pixels before the image's edges."""
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]] + 0.5
    distance = np.hypot(columns - x, (rows - y) * squeeze)
    inner = (rows > 4) & (rows < SHAPE[0] - 4) & (columns > 4) & (columns < SHAPE[1] - 4)
    return (distance < radius) & (distance > radius / 2) & inner, (distance <= radius / 2) & inner


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*PLAIN, *TURNED, MIRRORED]),
    st.integers(0, 10_000),
    st.tuples(st.floats(10, 80), st.floats(10, 60), st.floats(4, 30), st.floats(0.5, 2)),
)
def test_regions_are_where_the_view_shows_them(
    how: Augmentation, seed: int, drawn: tuple[float, float, float, float]
) -> None:
    masks = [*ring(*drawn)]
    masks.append(~(masks[0] | masks[1]))  # every pixel is in one of three
    photo = Regions.of_masks(SHAPE, [4, 2, 0], masks, crowd=[False, True, False])
    view = augment(np.zeros((*SHAPE, 3), np.uint8), how, size=SIZE, rng=np.random.default_rng(seed), fill=FILL)
    seen = photo.follow(view.geometry)
    labels = np.where(masks[2], 0, np.where(masks[1], 2, 4)).astype(np.int64)
    assert (seen.class_map() == view.geometry.mask(labels, fill=255)).all()
    assert seen.bitmaps().sum(axis=0).max(initial=0) <= 1  # a hole stays a hole
    assert seen.crowd.tolist() == [number == 2 for number in seen.classes]
    assert seen.areas.tolist() == seen.bitmaps().sum(axis=(1, 2)).tolist()
    repeats = how is MIRRORED or (how.rotate and how.crop != "none")  # what the crop's edge cuts, the border repeats
    if not repeats:
        boxes = dict(zip([4, 2, 0], view.geometry.boxes(photo.boxes), strict=True))
        for number, box in zip(seen.classes.tolist(), seen.boxes, strict=True):
            assert number == 0 or (box[:2] >= boxes[number][:2] - 0.501).all()
            assert number == 0 or (box[2:] <= boxes[number][2:] + 0.501).all()


def moved(what: torch.Tensor, steps: Steps) -> torch.Tensor:
    """Move a mask or boxes by torchvision, with the numbers of the steps."""
    for step in steps:
        match step:
            case Crop():
                what = functional.crop(what, step.top, step.left, step.height, step.width)
            case Resize():
                what = functional.resize(what, [step.height, step.width], InterpolationMode.NEAREST_EXACT)
            case Pad():
                what = functional.pad(what, [step.horizontal, step.vertical])
            case Flip():
                what = functional.vertical_flip(what) if step.vertical else functional.horizontal_flip(what)
    return what


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PLAIN),
    st.integers(0, 10_000),
    st.tuples(st.floats(10, 80), st.floats(10, 60), st.floats(4, 30), st.floats(0.5, 2)),
)
def test_masks_and_boxes_move_as_torchvisions(
    how: Augmentation, seed: int, drawn: tuple[float, float, float, float]
) -> None:
    mask = ring(*drawn)[0]
    view = augment(np.zeros((*SHAPE, 3), np.uint8), how, size=SIZE, rng=np.random.default_rng(seed), fill=FILL)
    photo = Regions.of_masks(SHAPE, [0], [mask])
    corners = torch.from_numpy(photo.boxes).double()
    boxes = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=SHAPE)
    theirs = functional.clamp_bounding_boxes(moved(boxes, view.geometry.steps))
    assert np.abs(view.geometry.boxes(photo.boxes) - theirs.numpy()).max() < 1e-4
    only = Regions.of_boxes(SHAPE, [0], photo.boxes).follow(view.geometry)
    assert len(only) == bool((theirs[0, 2:] > theirs[0, :2]).all())
    expected = moved(torch.from_numpy(mask.astype(np.uint8))[None], view.geometry.steps)[0].numpy()
    assert (expected != view.geometry.mask(mask.astype(np.uint8))).mean() < 0.02  # on the border of two pixels


def test_a_view_without_any_region_is_a_view() -> None:
    photo = Regions.of_masks((400, 400), [1], [np.pad(np.ones((2, 2), bool), 199)])
    how = Augmentation(crop="scale-jitter", scales=(8.0, 8.0))
    views = [augment(np.zeros((400, 400, 3), np.uint8), how, size=SIZE, rng=np.random.default_rng(n)) for n in range(9)]
    counts = [len(photo.follow(view.geometry)) for view in views]
    assert counts.count(0) > 5
    empty = Regions.of_masks((400, 400), [], []).follow(views[0].geometry)
    assert (len(empty), empty.bitmaps().shape, empty.boxes.shape) == (0, (0, *SIZE), (0, 4))


def test_the_scale_is_evenly_spread_and_the_rest_of_the_view_filled() -> None:
    how = Augmentation(crop="scale-jitter", scales=(0.5, 2.0), decode="scaled", vertical_flip=True)
    factors, flips = [], [0, 0]
    for seed in range(300):
        asked: list[int] = []

        def read(shrink: object, asked: list[int] = asked) -> np.ndarray:
            asked.append(shrink(400, 800))  # type: ignore[operator]
            return np.full((400 // asked[0], 800 // asked[0], 3), 200, dtype=np.uint8)

        view = training_view(read, how, size=(50, 100), rng=np.random.default_rng(seed), fill=FILL)
        resize = [step for step in view.geometry.steps if isinstance(step, Resize)][-1]
        factors.append(resize.height / 50)
        assert asked[0] == max(
            factor for factor in (1, 2, 4, 8) if factor * max(2 * resize.height, resize.width) <= 800
        )
        shown = view.geometry.mask(np.ones((400, 800), np.uint8)) > 0
        assert shown[0, 0]  # it is filled up on the right and at the bottom
        assert (view.pixels[:, shown] == 200).all()
        assert (view.pixels.numpy()[:, ~shown].T == FILL).all()
        for kind in (0, 1):
            flips[kind] += Flip(vertical=bool(kind)) in view.geometry.steps
    assert np.abs(np.quantile(factors, [0, 0.25, 0.5, 0.75, 1]) - [0.5, 0.875, 1.25, 1.625, 2]).max() < 0.12
    assert all(100 < count < 200 for count in flips)


def test_a_squashed_view_is_all_photo_and_its_shape_gives_way() -> None:
    how = Augmentation(crop="squash-jitter", scales=(1.0, 1.5), flip=False)
    photo = np.full((40, 90, 3), 200, np.uint8)
    for seed in range(50):
        view = augment(photo, how, size=SIZE, rng=np.random.default_rng(seed), fill=FILL)
        resize = next(step for step in view.geometry.steps if isinstance(step, Resize))
        assert abs(resize.height / SIZE[0] - resize.width / SIZE[1]) < 0.05
        assert 47 <= resize.height <= 72
        assert (view.pixels == 200).all()
    unchanged = Augmentation(crop="squash-jitter", scales=(1.0, 1.0), flip=False)
    view = augment(photo, unchanged, size=SIZE, rng=np.random.default_rng(0), fill=FILL)
    assert view.geometry.steps == (Resize(*SIZE), Crop(0, 0, *SIZE))


def test_scales_are_a_range() -> None:
    with pytest.raises(ValueError, match="from the least to the largest"):
        Augmentation(scales=(2.0, 0.5))
    assert Geometry(SHAPE, (Flip(vertical=True),)).back().steps == (Flip(vertical=True),)
