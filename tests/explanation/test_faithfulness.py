"""Deletion and insertion against the authors' procedure, written out pixel by pixel."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.signal import convolve2d
from torch import Tensor

from tests.cases import every_case
from vitral.events import Event, Progress
from vitral.explanation.faithfulness import area, blurred, faithfulness, steps_of


def network(images: Tensor) -> Tensor:
    """Return probabilities that hang on every pixel, in another way on each."""
    weights = torch.linspace(-1, 2, images[0].numel(), dtype=images.dtype).view(images.shape[1:])
    logits = torch.stack([(images * weights).mean(dim=(1, 2, 3)), (images**2).mean(dim=(1, 2, 3))], dim=1)
    return (3 * logits).softmax(dim=1)


def reference(image: np.ndarray, saliency: np.ndarray, index: int, steps: int) -> tuple[float, float]:
    """The authors' loop: the same number of pixels in each step, the most salient first, the curve's normalised area."""
    peak = np.zeros((11, 11))
    peak[5, 5] = 1
    kernel = gaussian_filter(peak, 5)
    smooth = np.stack([convolve2d(channel, kernel, mode="same") for channel in image])
    pixels = saliency.size
    order = sorted(range(pixels), key=lambda pixel: -saliency.reshape(-1)[pixel])
    areas = []
    for start, finish in ((image, np.zeros_like(image)), (smooth, image)):
        now, curve = start.copy(), []
        for step in range(steps + 1):
            curve.append(float(network(torch.from_numpy(now)[None])[0, index]))
            for pixel in order[-(-pixels * step // steps) : -(-pixels * (step + 1) // steps)]:
                now[:, pixel // image.shape[2], pixel % image.shape[2]] = finish[
                    :, pixel // image.shape[2], pixel % image.shape[2]
                ]
        values = np.array(curve)
        areas.append((values.sum() - values[0] / 2 - values[-1] / 2) / (len(values) - 1))
    return areas[0], areas[1]


@every_case(("steps", "index"), [(8, 0), (5, 1), (24, 0)])
def test_both_scores_are_the_authors(steps: int, index: int) -> None:
    random = np.random.default_rng(0)
    image, saliency = random.standard_normal((3, 16, 24)), random.random((16, 24))
    found = faithfulness(network, torch.from_numpy(image), saliency, index, steps=steps)
    assert found is not None
    assert (found.deletion, found.insertion) == pytest.approx(reference(image, saliency, index, steps), abs=1e-6)
    assert (len(found.deletion_curve), len(found.insertion_curve)) == (steps + 1, steps + 1)
    assert found.deletion_curve[0] == pytest.approx(found.insertion_curve[-1])


def test_a_map_that_knows_scores_better_than_its_opposite() -> None:
    def bright_corner(images: Tensor) -> Tensor:
        share = images[:, :, :8, :8].mean(dim=(1, 2, 3)).clamp(0, 1)
        return torch.stack([share, 1 - share], dim=1)

    image, right = torch.ones(3, 16, 16), np.zeros((4, 4))
    right[:2, :2] = 1.0
    good, bad = (faithfulness(bright_corner, image, one, 0) for one in (right, 1 - right))
    assert good is not None
    assert bad is not None
    assert good.deletion < 0.25 < 0.7 < bad.deletion
    assert good.insertion > bad.insertion + 0.1


@every_case("even", [np.zeros((4, 4)), np.full((3, 5), 0.2), np.ones((1, 1)), 1 + 1e-7 * np.eye(4)])
def test_a_map_of_one_value_ranks_nothing_and_has_no_score(even: np.ndarray) -> None:
    assert faithfulness(network, torch.zeros(3, 16, 24), even, 0) is None
    assert faithfulness(network, torch.zeros(3, 16, 24), np.array([[0.0, 1e-9]]), 0) is not None  # small, but a ranking


def test_its_progress_is_told_to_the_end() -> None:
    heard: list[Event] = []
    faithfulness(network, torch.zeros(3, 16, 24), np.eye(2), 0, steps=5, listener=heard.append)
    assert heard == [Progress("score the map", 8, 11), Progress("score the map", 11, 11)]


def test_pixels_change_in_equal_parts_the_most_relevant_first() -> None:
    grid = np.arange(6.0).reshape(2, 3)
    steps = steps_of(grid, (4, 6), 4)
    assert torch.bincount(steps.flatten()).tolist() == [0, 6, 6, 6, 6]
    assert steps[3, 5] == 1
    assert steps[0, 0] == 4
    alike = steps_of(np.ones((2, 3)), (4, 6), 4)
    assert alike.flatten().tolist() == sorted(alike.flatten().tolist())  # raster order


def test_the_blur_grows_with_images_above_224_pixels() -> None:
    image = torch.zeros(3, 448, 448)
    image[:, 224, 224] = 1.0
    spread = blurred(image)[0] > 0
    assert int(spread[224].sum()) == 21
    small = torch.zeros(3, 32, 32)
    small[:, 16, 16] = 1.0
    assert int((blurred(small)[0] > 0)[16].sum()) == 11


def test_the_area_is_the_trapezoids() -> None:
    curve = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    assert area(curve) == pytest.approx(0.5)
    assert area(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)) == pytest.approx(0.25)
