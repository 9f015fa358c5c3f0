"""Our augmentation against timm's own: pixel for pixel where nothing is drawn, else by distribution."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.images.augment import Augmentation, resized_box
from vitral.images.pillow_operations import OPERATIONS, Canvas
from vitral.images.policies import TIMM, apply_policy
from vitral.training.methods.views import erase

pytest.importorskip("timm")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

MEAN = (124, 116, 104)
SUFFIX = {
    **dict.fromkeys(("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness"), "Increasing"),
    **dict.fromkeys(("TranslateX", "TranslateY"), "Rel"),
}
KERNELS = [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC]
DRAWS = 12_000


@pytest.fixture
def small(photo: Path) -> Image.Image:
    with Image.open(photo) as image:
        return image.convert("RGB").resize((40, 28))


@pytest.mark.parametrize("name", TIMM)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_operation_at_every_magnitude_is_timms_pixel_for_pixel(
    name: str, kernel: Image.Resampling, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from timm.data import auto_augment

    with Image.open(photo) as opened:
        image = opened.convert("RGB").resize((121, 96))
    options = {"img_mean": MEAN, "interpolation": kernel}
    operation: Any = auto_augment.AugmentOp
    for magnitude in np.arange(0, 10.01, 0.5):
        for sign in (1, -1):
            monkeypatch.setattr(auto_augment, "_randomly_negate", lambda value, sign=sign: sign * value)
            value = TIMM[name](magnitude / 10, sign)
            if name == "Posterize" and value == 0:
                continue  # of which Pillow 13 makes an error, in timm too
            theirs = operation(name + SUFFIX.get(name, ""), 1.0, magnitude, options)(image)
            value *= {"TranslateX": image.width, "TranslateY": image.height}.get(name, 1)
            ours = OPERATIONS[name](image, value, Canvas(MEAN, kernel))
            assert np.array_equal(np.asarray(ours), np.asarray(theirs)), (magnitude, sign)


def test_the_operations_are_timms_increasing_ones() -> None:
    from timm.data import auto_augment

    assert {name + SUFFIX.get(name, "") for name in TIMM} == set(auto_augment._RAND_INCREASING_TRANSFORMS)


def images_of(draw: Callable[[], Any]) -> list[np.ndarray]:
    return [np.asarray(draw()) for _ in range(DRAWS)]


def both(small: Image.Image, config: str, settings: Augmentation) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return as many images of ours and of timm's."""
    from timm.data.auto_augment import rand_augment_transform

    random.seed(0)
    np.random.seed(0)
    options: dict[str, Any] = {"img_mean": MEAN}
    if settings.interpolation != "random":
        options["interpolation"] = KERNELS[1]
    theirs = rand_augment_transform(config, options)
    rng = np.random.default_rng(0)
    pixels = np.asarray(small)
    return images_of(lambda: apply_policy(pixels, settings, rng, MEAN)[0]), images_of(lambda: theirs(small))


@pytest.mark.parametrize("interpolation", ["bicubic", "random"])
def test_the_same_images_come_as_often_as_from_timm_where_the_magnitude_is_fixed(
    interpolation: Any,
    small: Image.Image,
) -> None:
    settings = Augmentation(policy="timm-randaugment", operations=1, magnitude=7.0, interpolation=interpolation)
    counts = [Counter(view.tobytes() for view in views) for views in both(small, "rand-m7-n1-inc1", settings)]
    assert set(counts[0]) == set(counts[1])
    for content in counts[0]:
        ours, theirs = (count[content] for count in counts)
        assert abs(ours - theirs) < 5 * (ours + theirs) ** 0.5


def test_the_whole_policy_gives_timms_distribution(small: Image.Image) -> None:
    settings = Augmentation(
        policy="timm-randaugment", operations=2, magnitude=7.0, magnitude_std=0.5, interpolation="bicubic"
    )
    ours, theirs = both(small, "rand-m7-mstd0.5-inc1", settings)
    measures: list[Callable[[np.ndarray], float]] = [
        lambda view: float(view.mean()),
        lambda view: float(view.std()),
        lambda view: float(np.ptp(view, axis=-1).mean()),
        lambda view: float(np.abs(np.diff(view.astype(int), axis=0)).mean()),
        lambda view: float(np.abs(np.diff(view.astype(int), axis=1)).mean()),
        lambda view: float((view == MEAN).all(-1).mean()),
        lambda view: float(view[3, 4, 0]),
        lambda view: float(view[-4, -3, 2]),
    ]
    for measure in measures:
        assert kolmogorov([measure(view) for view in ours], [measure(view) for view in theirs]) < 0.022
    untouched = [
        float(np.mean([np.array_equal(view, np.asarray(small)) for view in views])) for views in (ours, theirs)
    ]
    assert abs(untouched[0] - untouched[1]) < 0.02
    assert 0.25 < untouched[0] < 0.3


@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_erased_boxes_are_timms(size: tuple[int, int]) -> None:
    from timm.data.random_erasing import RandomErasing

    images = torch.zeros(4000, 3, *size)
    ours = erase(images.clone(), 0.4, seed=0, step=0, first=0, batch_size=4000)
    random.seed(0)
    torch.manual_seed(0)
    erasing: Any = RandomErasing
    theirs = erasing(0.4, mode="pixel", device="cpu")(images.clone())
    boxes = [[box for image in erased if (box := box_of(image)) is not None] for erased in (ours, theirs)]
    assert abs(len(boxes[0]) - len(boxes[1])) < 5 * (2 * 4000 * 0.24) ** 0.5
    for measure in (
        lambda box: box[2] * box[3],
        lambda box: np.log(box[2] / box[3]),
        lambda box: box[0],
        lambda box: box[1],
        lambda box: box[0] + box[2],
        lambda box: box[1] + box[3],
    ):
        assert kolmogorov(*(list(map(measure, part)) for part in boxes)) < 0.065
    noise = [erased[erased != 0] for erased in (ours, theirs)]
    assert kolmogorov(*(part[::50].tolist() for part in noise)) < 0.02


@pytest.mark.parametrize("shape", [(375, 500), (500, 333), (64, 64), (20, 300), (300, 9), (5, 6)])
@pytest.mark.parametrize("min_area", [0.08, 0.9])
def test_random_boxes_are_timms(shape: tuple[int, int], min_area: float) -> None:
    from timm.data.transforms import RandomResizedCropAndInterpolation

    random.seed(0)
    image = Image.new("RGB", shape[::-1])
    crop: Any = RandomResizedCropAndInterpolation
    theirs = [crop.get_params(image, (min_area, 1.0), (3 / 4, 4 / 3)) for _ in range(4000)]
    rng = np.random.default_rng(0)
    ours = [resized_box(shape, min_area, rng) for _ in range(4000)]
    for part in range(4):
        assert kolmogorov([box[part] for box in ours], [box[part] for box in theirs]) < 0.04


def box_of(image: torch.Tensor) -> tuple[int, int, int, int] | None:
    """Return top, left, height and width of what is not black."""
    rows, columns = torch.nonzero(image.abs().sum(0), as_tuple=True)
    if not len(rows):
        return None
    top, left = int(rows.min()), int(columns.min())
    return top, left, int(rows.max()) - top + 1, int(columns.max()) - left + 1


def kolmogorov(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the largest difference of two samples' distribution functions."""
    places = np.sort(np.concatenate([ours, theirs]))
    one, other = (np.searchsorted(np.sort(sample), places, side="right") / len(sample) for sample in (ours, theirs))
    return float(np.abs(one - other).max())
