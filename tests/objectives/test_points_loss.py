"""The loss of a detector by middles, against the formulas of TTFNet and CornerNet written out place by place."""

import math

import numpy as np
import torch
from torchvision.ops import generalized_box_iou

from tests.cases import every_case
from vitral.models.dense.answers import PointAnswers
from vitral.objectives.box_overlap import corners, middles, overlaps
from vitral.objectives.points import MarkedRegions, point_loss

NOTHING = torch.zeros(0, 4)


def gaussian(sides: tuple[float, float]) -> tuple[int, int, np.ndarray]:
    """TTFNet's gaussian_2d for a box of so many places: its two radii, and its values."""
    reach = [int(side / 2 * 0.54) for side in sides]
    y, x = np.ogrid[-reach[1] : reach[1] + 1, -reach[0] : reach[0] + 1]
    deviation = [(2 * radius + 1) / 6 for radius in reach]
    return reach[0], reach[1], np.exp(-(x * x / (2 * deviation[0] ** 2) + y * y / (2 * deviation[1] ** 2)))


def by_places(answers: PointAnswers, classes: list[int], boxes: list[list[float]], ignored: np.ndarray) -> float:
    """The loss of one image; `boxes` are in places, the smallest last, so that it draws over the others."""
    logits, found = answers.classes[0].double(), answers.boxes[0].double()
    heat = np.zeros(logits.shape)
    owners, weights = np.full(heat.shape[1:], -1), np.zeros(heat.shape[1:])
    for number, (label, (left, top, right, bottom)) in enumerate(zip(classes, boxes, strict=True)):
        across, down, values = gaussian((right - left, bottom - top))
        x, y = int((left + right) / 2), int((top + bottom) / 2)
        for (row, column), value in np.ndenumerate(values):
            place = y + row - down, x + column - across
            if 0 <= place[0] < heat.shape[1] and 0 <= place[1] < heat.shape[2]:
                heat[label][place] = max(heat[label][place], value)
                owners[place], weights[place] = number, value
    total = 0.0
    for (label, row, column), target in np.ndenumerate(heat):
        probability = float(logits[label, row, column].sigmoid())
        if target == 1:
            total -= (1 - probability) ** 2 * math.log(probability)
        elif not ignored[row, column]:
            total -= (1 - target) ** 4 * probability**2 * math.log(1 - probability)
    scale = torch.tensor([heat.shape[2], heat.shape[1]] * 2)
    for (row, column), owner in np.ndenumerate(owners):
        if owner >= 0:
            truth = torch.tensor([boxes[owner]]).double()
            overlap = generalized_box_iou((found[:, row, column] * scale)[None], truth)
            whole = gaussian((float(truth[0, 2] - truth[0, 0]), float(truth[0, 3] - truth[0, 1])))[2].sum()
            total += 5 * float(1 - overlap) * weights[row, column] / whole
    return total / max(len(boxes), 1)


def random_answers(seed: int, classes: int = 2, grid: tuple[int, int] = (12, 16)) -> PointAnswers:
    generator = torch.Generator().manual_seed(seed)
    low = torch.rand(1, 2, *grid, generator=generator) * 0.6
    sides = torch.rand(1, 2, *grid, generator=generator) * 0.4
    return PointAnswers(torch.randn(1, classes, *grid, generator=generator), torch.cat([low, low + sides], dim=1))


BOXES = [[1.5, 1.0, 15.0, 11.5], [8.0, 2.0, 14.5, 8.0], [2.2, 3.3, 4.0, 4.9]]  # in places, the largest first


@every_case(("seed", "classes"), [(0, [0, 1, 0]), (1, [1, 1, 1]), (2, [0, 0, 1])])
def test_loss_is_that_of_the_papers(seed: int, classes: list[int]) -> None:
    answers = random_answers(seed)
    shares = torch.tensor(BOXES) / torch.tensor([16.0, 12.0, 16.0, 12.0])
    loss = point_loss(answers, [MarkedRegions(torch.tensor(classes), shares, NOTHING)])
    assert torch.allclose(loss.double(), torch.tensor(by_places(answers, classes, BOXES, np.zeros((12, 16)))).double())


def test_an_image_of_nothing_teaches_that_nothing_is_there() -> None:
    answers = random_answers(3)
    loss = point_loss(answers, [MarkedRegions(torch.zeros(0, dtype=torch.long), NOTHING, NOTHING)])
    assert torch.allclose(loss.double(), torch.tensor(by_places(answers, [], [], np.zeros((12, 16)))).double())


def test_places_in_a_crowd_teach_nothing() -> None:
    answers = random_answers(4)
    crowd = torch.tensor([[0.5, 0.0, 1.0, 0.5]])
    shares = torch.tensor(BOXES[2:]) / torch.tensor([16.0, 12.0, 16.0, 12.0])
    ignored = np.zeros((12, 16), dtype=bool)
    ignored[:6, 8:] = True
    loss = point_loss(answers, [MarkedRegions(torch.tensor([1]), shares, crowd)])
    assert torch.allclose(loss.double(), torch.tensor(by_places(answers, [1], BOXES[2:], ignored)).double())


def test_images_of_a_batch_count_by_their_regions() -> None:
    one, two = random_answers(5), random_answers(6)
    both = PointAnswers(torch.cat([one.classes, two.classes]), torch.cat([one.boxes, two.boxes]))
    shares = torch.tensor(BOXES) / torch.tensor([16.0, 12.0, 16.0, 12.0])
    marked = [
        MarkedRegions(torch.tensor([0, 1, 1]), shares, NOTHING),
        MarkedRegions(torch.tensor([0]), shares[:1], NOTHING),
    ]
    alone = [point_loss(answers, [regions]) for answers, regions in zip((one, two), marked, strict=True)]
    assert torch.allclose(point_loss(both, marked), (3 * alone[0] + alone[1]) / 4)


def test_overlaps_are_torchvisions() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (corners(torch.rand(20, 4, generator=generator)) for _ in range(2))
    _, generalised = overlaps(first[:, None], second)
    assert torch.allclose(generalised, generalized_box_iou(first, second), atol=1e-6)
    assert torch.allclose(corners(middles(first)), first)
    none = torch.tensor([[0.5, 0.5, 0.5, 0.5]])
    assert overlaps(none, none)[1].isfinite().all()
