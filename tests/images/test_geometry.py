"""A mask, points and boxes go where the pixels went, whatever an augmentation did to an image."""

import io
from collections.abc import Callable

import cv2
import numpy as np
from PIL import Image

from tests.cases import every_case
from tests.images.sources import augment
from vitral.images import pillow_operations, tensorflow_operations
from vitral.images.augment import Augmentation, training_view
from vitral.images.decode import Pixels, Shrink, read_image
from vitral.images.geometry import Affine, Crop, Flip, Geometry, Mask, Pad, Resize
from vitral.images.pillow_operations import Canvas
from vitral.images.policies import BIG_VISION, RESAMPLING, apply_policy

BLACK = (0, 0, 0)
SIZE = (48, 40)
WAYS = {
    "whole": Augmentation(crop="none", flip=False, min_area=0.4),
    "inception": Augmentation(crop="inception", flip=False, min_area=0.4),
    "resized": Augmentation(crop="resized", flip=False, min_area=0.4),
    "square": Augmentation(crop="square", margin=1.3, flip=False, min_area=0.4),
    "padded": Augmentation(crop="padded", padding=0.25, flip=False, min_area=0.4),
    "padded-black": Augmentation(crop="padded", padding=0.25, border="black", flip=False, min_area=0.4),
    "flip": Augmentation(crop="none", flip=True),
    "turned": Augmentation(crop="none", flip=False, rotate=25.0),
    "moved": Augmentation(crop="none", flip=False, shift=0.2),
    "zoomed": Augmentation(crop="none", flip=False, scale=0.4),
    "all": Augmentation(crop="resized", min_area=0.4, flip=True, rotate=20.0, shift=0.1, scale=0.2),
}


def scene(rows: int, columns: int) -> tuple[Pixels, Mask]:
    """Make a black image with a large white blob that is the same from no two sides, and the mask that marks it."""
    mask = np.zeros((rows, columns), dtype=np.uint8)
    mask[rows // 5 : rows // 2, columns // 6 : columns * 3 // 4] = 1
    mask[rows // 2 : rows * 4 // 5, columns // 6 : columns // 3] = 1
    return np.repeat(mask[:, :, None] * np.uint8(255), 3, axis=2), mask


def agreement(view: Pixels, mask: Mask) -> float:
    """Return the share of a view's pixels, those on the blob's edge left out, that are white where the mask marks them."""
    bright = view[..., 0] > 127
    edge = cv2.morphologyEx(bright.astype(np.uint8), cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)).astype(bool)
    assert 0.02 < bright.mean() < 0.98, "there is something to see"
    return float((bright == (mask > 0))[~edge].mean())


@every_case("way", WAYS)
@every_case("shape", [(60, 60), (97, 143), (200, 90), (30, 33)])
def test_a_mask_follows_the_image(way: str, shape: tuple[int, int]) -> None:
    image, mask = scene(*shape)
    for seed in range(12):
        view = augment(image, WAYS[way], size=SIZE, rng=np.random.default_rng(seed))
        moved = view.geometry.mask(mask)
        assert view.geometry.size == moved.shape == SIZE
        assert moved.dtype == mask.dtype
        assert set(np.unique(moved)) <= {0, 1}
        assert agreement(view.pixels.permute(1, 2, 0).numpy(), moved) > 0.995, seed


@every_case("policy", ["timm-randaugment", "big-vision-randaugment", "autoaugment"])
@every_case("name", ["Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_a_mask_follows_each_operation_of_a_policy(policy: str, name: str) -> None:
    image, mask = scene(80, 100)
    big_vision = policy == "big-vision-randaugment"
    for value in (-17.0, 23.0) if name[0] in "RT" else (-0.23, 0.31):
        if big_vision:
            view = tensorflow_operations.OPERATIONS[name](image, value)
            steps = tensorflow_operations.steps_of(name, value, image.shape[:2])
        else:
            drawn = Image.fromarray(image)
            view = np.asarray(pillow_operations.OPERATIONS[name](drawn, value, Canvas(BLACK, RESAMPLING["bilinear"])))
            steps = pillow_operations.steps_of(name, value, drawn.size)
        moved = Geometry(mask.shape, steps).mask(mask)
        assert (moved != mask).mean() > 0.02
        seen = view[..., 0] > (200 if big_vision else 127)  # beyond the edge big_vision's is grey
        assert (seen == moved).mean() > (0.999 if big_vision else 0.98)


def test_nearest_neighbours_of_pillow_agree_to_the_pixel() -> None:
    image, mask = scene(71, 90)
    for name, value in (
        ("Rotate", 13.7),
        ("ShearX", 0.21),
        ("ShearY", -0.13),
        ("TranslateX", 7.0),
        ("TranslateY", -9.0),
    ):
        canvas = Canvas(BLACK, Image.Resampling.NEAREST)
        view = np.asarray(pillow_operations.OPERATIONS[name](Image.fromarray(image), value, canvas))[..., 0] // 255
        moved = Geometry(mask.shape, pillow_operations.steps_of(name, value, (90, 71))).mask(mask)
        assert (view != moved).mean() < 0.001, name


@every_case("policy", ["timm-randaugment", "autoaugment", "three-augment", "multi-view"])
def test_a_policy_tells_every_move_that_it_made(policy: str) -> None:
    """Colours change evenly all over the blob, so that where the mask is right every pixel inside it has one colour."""
    image, mask = scene(64, 64)
    settings = Augmentation(policy=policy, magnitude=9.0, operations=2)
    moves = 0
    for seed in range(150):
        view, steps = apply_policy(image, settings, np.random.default_rng(seed), BLACK)
        moves += bool(steps)
        inside = cv2.erode(Geometry(mask.shape, steps).mask(mask), np.ones((7, 7), np.uint8), borderValue=1) > 0
        assert view[inside].std(axis=0).max() < 12, (seed, steps)
    assert (moves > 10) == (policy not in ("three-augment", "multi-view"))


def test_big_visions_policy_tells_the_moves_that_it_drew() -> None:
    image, mask = scene(64, 64)
    settings = Augmentation(policy="big-vision-randaugment", magnitude=6.0)
    for seed in range(60):
        _, steps = apply_policy(image, settings, np.random.default_rng(seed))
        drawn = np.random.default_rng(seed).integers(len(BIG_VISION), size=2)
        names = [tuple(BIG_VISION)[number] for number in drawn]
        assert len(steps) == sum(name.startswith(("Rotate", "Shear", "Translate")) for name in names)


def photo(mask: Mask) -> Callable[[Shrink | None], Pixels]:
    content = io.BytesIO()
    Image.fromarray(np.repeat(mask[:, :, None] * np.uint8(255), 3, axis=2)).save(content, "JPEG", quality=95)
    return lambda shrink: read_image(content.getvalue(), shrink=shrink)


def test_a_mask_of_the_whole_image_fits_a_view_that_was_decoded_smaller() -> None:
    _, mask = scene(803, 1001)
    how = Augmentation(crop="inception", min_area=0.5, decode="scaled")
    shrunk = 0
    for seed in range(6):
        view = training_view(photo(mask), how, size=SIZE, rng=np.random.default_rng(seed))
        assert view.geometry.original == (803, 1001)
        shrunk += isinstance(view.geometry.steps[0], Resize)
        assert agreement(view.pixels.permute(1, 2, 0).numpy(), view.geometry.mask(mask)) > 0.995
    assert shrunk == 6


@every_case("way", WAYS)
def test_points_are_where_the_mask_is(way: str) -> None:
    """A box of a few pixels goes with its middle."""
    for seed in range(20):
        image = np.zeros((120, 150, 3), dtype=np.uint8)
        geometry = augment(image, WAYS[way], size=SIZE, rng=np.random.default_rng(seed)).geometry
        for row, column in ((40, 60), (70, 90), (60, 40)):
            mask = np.zeros((120, 150), dtype=np.uint8)
            mask[row - 4 : row + 4, column - 4 : column + 4] = 1
            (x, y), *_ = geometry.points(np.array([[column, row]], dtype=np.float64))
            inside = 6 < x < SIZE[1] - 6 and 6 < y < SIZE[0] - 6
            moved = geometry.mask(mask)
            if inside and way != "padded":  # a mirrored border shows a thing twice
                rows, columns = np.nonzero(moved)
                assert abs(rows.mean() + 0.5 - y) < 0.75
                assert abs(columns.mean() + 0.5 - x) < 0.75


def test_each_step_by_hand() -> None:
    mask = np.arange(12, dtype=np.int32).reshape(3, 4)
    point = np.array([[1.5, 0.5]])  # the middle of the pixel that holds 1

    def seen(*steps: Crop | Resize | Pad | Flip | Affine) -> tuple[list[list[int]], list[float]]:
        geometry = Geometry((3, 4), steps)
        return geometry.mask(mask, fill=-1).tolist(), geometry.points(point)[0].tolist()

    assert seen(Crop(0, 1, 2, 3)) == ([[1, 2, 3], [5, 6, 7]], [0.5, 0.5])
    assert seen(Flip()) == ([[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8]], [2.5, 0.5])
    assert seen(Crop(0, 0, 1, 4), Resize(2, 8)) == ([[0, 0, 1, 1, 2, 2, 3, 3]] * 2, [3.0, 1.0])
    assert seen(Crop(0, 0, 1, 4), Resize(1, 2)) == ([[1, 3]], [0.75, 0.5])
    assert seen(Crop(1, 1, 2, 2), Pad(1, 1, mirror=True))[0] == [
        [10, 9, 10, 9],
        [6, 5, 6, 5],
        [10, 9, 10, 9],
        [6, 5, 6, 5],
    ]
    assert seen(Crop(0, 0, 1, 2), Pad(1, 0, mirror=False)) == ([[-1, -1], [0, 1], [-1, -1]], [1.5, 1.5])
    left = (1.0, 0.0, 1.0, 0.0, 1.0, 0.0)
    assert seen(Affine(left)) == ([[1, 2, 3, -1], [5, 6, 7, -1], [9, 10, 11, -1]], [0.5, 0.5])
    assert seen(Affine(left, border="edge"))[0] == [[1, 2, 3, 3], [5, 6, 7, 7], [9, 10, 11, 11]]
    assert Affine.of_indices((-1, 0, 3, 0, 1, 0)).matrix == (-1, 0, 4, 0, 1, 0)  # a flip of four columns, either way


def test_boxes_hold_what_they_held_and_end_at_the_edges() -> None:
    geometry = Geometry((100, 200), (Crop(20, 40, 60, 80), Resize(30, 40), Flip()))
    boxes = np.array([[50, 30, 70, 50], [0, 0, 60, 40], [150, 0, 190, 30]], dtype=np.float64)
    assert geometry.boxes(boxes).tolist() == [[25, 5, 35, 15], [30, 0, 40, 10], [0, 0, 0, 5]]
    turned = Geometry((10, 10), (Affine((0, 1, 0, -1, 0, 10)),))  # a quarter
    assert turned.boxes(np.array([[1.0, 2.0, 4.0, 3.0]])).tolist() == [[7, 1, 8, 4]]


def test_the_way_back_undoes_every_step() -> None:
    steps = (Crop(3, 5, 30, 40), Resize(45, 60), Pad(4, 6, mirror=True), Flip(), Flip(vertical=True))
    turned = (Resize(60, 50), Affine((0.9, 0.2, 3.0, -0.1, 1.1, -2.0)), Crop(-5, 10, 70, 45))
    points = np.random.default_rng(0).uniform(8, 25, (50, 2))
    for geometry in (Geometry((40, 50), steps), Geometry((40, 50), turned)):
        back = geometry.back()
        assert (back.original, back.size) == (geometry.size, geometry.original)
        np.testing.assert_allclose(back.points(geometry.points(points)), points, atol=1e-9)
        boxes = np.sort(points[:40].reshape(20, 2, 2), axis=1).reshape(20, 4)
        if geometry.steps == steps:
            np.testing.assert_allclose(back.boxes(geometry.boxes(boxes)), boxes, atol=1e-9)
        _, mask = scene(40, 50)
        returned, shown = (back.mask(geometry.mask(each, fill=0)) for each in (mask, np.ones_like(mask)))
        assert 0.2 < shown.mean() < 1
        assert (returned == mask)[shown > 0].mean() > 0.95


def test_a_box_that_reaches_beyond_the_image_is_padding() -> None:
    geometry = Geometry((2, 2), (Crop(0, 0, 3, 4), Flip(vertical=True)))
    numbers = np.arange(1, 5, dtype=np.int32).reshape(2, 2)
    moved = geometry.mask(numbers, fill=-1)
    assert moved.tolist() == [[-1, -1, -1, -1], [3, 4, -1, -1], [1, 2, -1, -1]]
    assert geometry.back().mask(moved).tolist() == numbers.tolist()
    assert geometry.boxes(np.array([[0.0, 0.0, 2.0, 1.0]])).tolist() == [[0, 2, 2, 3]]
    assert geometry.back().boxes(np.array([[0.0, 0.0, 4.0, 3.0]])).tolist() == [[0, 0, 2, 2]]
