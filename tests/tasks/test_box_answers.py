"""From what networks answer to boxes in the photo's own pixels."""

import numpy as np
import torch

from vitral.images.geometry import Geometry
from vitral.models.dense.answers import PointAnswers, QueryAnswers
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.points import PointsHeadConfig
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.tasks.box_answers import box_loss, find_boxes
from vitral.tasks.regions import Regions, RegionTargets

SIZE = (120, 200)
SURE = 4.0


def points(*middles: tuple[int, int, int, float, tuple[float, float, float, float]]) -> PointAnswers:
    """Answers with a class, row, column, logit and box in shares for each middle, and nothing elsewhere."""
    answers = PointAnswers(torch.full((1, 2, 6, 10), -9.0), torch.zeros(1, 4, 6, 10))
    for label, row, column, logit, box in middles:
        answers.classes[0, label, row, column] = logit
        answers.boxes[0, :, row, column] = torch.tensor(box)
    return answers


def test_boxes_of_points_are_in_the_photos_pixels_the_likeliest_first() -> None:
    answers = points((1, 2, 3, 1.0, (0.1, 0.2, 0.5, 0.6)), (0, 5, 9, SURE, (0.5, 0.5, 1.2, 1.2)))
    found = find_boxes(answers, [Geometry(SIZE)])[0]
    assert found.regions.classes[:2].tolist() == [0, 1]
    assert np.allclose(found.regions.boxes[:2], [[100, 60, 200, 120], [20, 24, 100, 72]])
    assert np.allclose(found.scores[:2], torch.tensor([SURE, 1.0]).sigmoid().numpy())
    assert found.regions.size == SIZE


def test_one_region_is_found_once() -> None:
    box, moved, other = (0.1, 0.2, 0.5, 0.6), (0.12, 0.2, 0.5, 0.6), (0.4, 0.2, 0.8, 0.6)
    neighbours = points((0, 2, 2, SURE, box), (0, 2, 3, 3.0, box))  # the less likely is no peak
    apart = points((0, 2, 2, SURE, box), (0, 2, 5, 3.0, moved))  # two peaks, one region
    assert [(find_boxes(answers, [Geometry(SIZE)])[0].scores > 0.5).sum() for answers in (neighbours, apart)] == [1, 1]
    two = points((0, 2, 2, SURE, box), (0, 2, 6, 3.0, other))
    classes = points((0, 2, 2, SURE, box), (1, 2, 2, 3.0, box))
    assert [(find_boxes(answers, [Geometry(SIZE)])[0].scores > 0.5).sum() for answers in (two, classes)] == [2, 2]


def test_boxes_of_queries_are_the_likeliest_pairs_of_query_and_class() -> None:
    classes = torch.tensor([[[1.0, 3.0], [-2.0, 0.5]]])
    boxes = torch.tensor([[[0.5, 0.5, 0.2, 0.4], [0.1, 0.1, 0.4, 0.4]]])
    found = find_boxes(QueryAnswers(classes, boxes=boxes), [Geometry(SIZE)])[0]
    assert found.regions.classes.tolist() == [1, 0]  # both of the first query
    assert np.allclose(found.regions.boxes, [[80, 36, 120, 84]] * 2)
    assert np.allclose(found.scores, torch.tensor([3.0, 1.0]).sigmoid().numpy())


def test_a_detector_learns_what_it_is_shown() -> None:
    generator = torch.Generator().manual_seed(0)
    backbone = ViTConfig(image_size=(64, 64), patch_size=(16, 16), dim=32, depth=1, mlp_dim=64, num_heads=2)
    head = PointsHeadConfig(stride=8, width=32)
    network = build(DenseConfig(backbone=backbone, head=head, num_classes=2, image_size=(64, 64)), seed=0).train()
    shown = Regions.of_boxes(
        (64, 64), [0, 1, 1], [[4, 6, 24, 30], [40, 8, 60, 20], [20, 38, 58, 60]], crowd=[False] * 3
    )
    images, targets = torch.randn(1, 3, 64, 64, generator=generator), RegionTargets((shown,))
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        box_loss(network(images), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    found = find_boxes(network.eval()(images), [Geometry((128, 192))])[0]
    sure = found.scores > 0.5
    rows = {int(label): box for label, box in zip(found.regions.classes[sure], found.regions.boxes[sure], strict=True)}
    assert sorted(found.regions.classes[sure].tolist()) == [0, 1, 1]
    assert np.allclose(rows[0], [12, 12, 72, 60], atol=6)
