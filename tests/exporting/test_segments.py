"""Panoptic maps in ONNX Runtime: the segments of the task, by its own rule of who owns a pixel and who keeps too little."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.cases import every_case
from tests.exporting.graphs import one, run, session_of
from vitral.exporting.export_regions import likeness
from vitral.exporting.segments import FoundSegments
from vitral.images.geometry import Geometry, Resize
from vitral.models.dense.answers import QueryAnswers
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.regions import VOID

VIEW, QUERIES, CLASSES, GRID = (32, 48), 9, 4, (8, 12)
TASK = Panoptic(things=(1, 2), sure=0.7)
READING = FoundSegments(VIEW, TASK.things, TASK.sure)
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def session() -> Any:  # noqa: ANN401
    pytest.importorskip("onnxruntime")
    answers = [torch.zeros(2, QUERIES, CLASSES + 1), torch.zeros(2, QUERIES, *GRID)]
    return session_of(READING, answers, QueryAnswers)


def check(session: Any, classes: Tensor, masks: Tensor, size: tuple[int, int]) -> list[list[int]]:  # noqa: ANN401
    """Hold a batch against the task, and return the classes of each photo's segments."""
    outputs = run(session, READING.names, size, classes, masks)
    views = [Geometry(size, (Resize(*VIEW),))] * len(classes)
    labels = []
    for index, own in enumerate(TASK.find(QueryAnswers(classes, masks), views)):
        found = READING.found(one(outputs, index), size)
        assert found.regions.classes.tolist() == own.regions.classes.tolist()
        assert np.allclose(found.scores, own.scores, atol=1e-6)
        assert own.class_map is not None
        assert found.class_map is not None
        assert (found.class_map == own.class_map).mean() > 0.999
        assert likeness(own, found, counted=True) > 0.999
        assert set(np.unique(found.class_map)) == {*own.regions.classes.tolist(), *np.unique(own.class_map).tolist()}
        labels.append(own.regions.classes.tolist())
    assert outputs["scores"].shape[1] == max(map(len, labels))
    assert outputs["class_map"].dtype == np.uint8
    assert outputs["segments"].dtype == np.int32
    return labels


def sure_of(labels: list[int], logit: float = 9.0) -> Tensor:
    """Return the class logits of queries that are sure of these classes, CLASSES being none."""
    return (functional.one_hot(torch.tensor([labels]), CLASSES + 1) * logit).float()


def columns_each(count: int) -> Tensor:
    """Return masks that share out the columns of the grid, one after the other."""
    owner = torch.arange(GRID[1]) * count // GRID[1]
    masks = (torch.arange(QUERIES)[:, None] == owner).float() * 12 - 6
    return masks[None, :, None].expand(1, QUERIES, *GRID).contiguous()


def test_things_are_told_apart_and_stuff_of_a_class_is_one_segment(session: Any) -> None:  # noqa: ANN401
    labels = [0, 1, 1, 0, 3, 4, 4, 4, 4]  # stuff, two things, the same stuff, other stuff; the rest is nothing
    assert check(session, sure_of(labels), columns_each(5), (50, 71)) == [[0, 1, 1, 3]]


def test_a_query_that_keeps_too_little_of_its_mask_leaves_its_pixels_to_none(session: Any) -> None:  # noqa: ANN401
    masks, classes = columns_each(3), sure_of([1, 2, 2, 1, 4, 4, 4, 4, 4])
    masks[:, 3] = masks[:, 0] - 1  # what the first query owns for the most part
    masks[:, 3, 0] = 9
    assert check(session, classes, masks, (40, 60)) == [[1, 2, 2]]
    assert (run(session, READING.names, (40, 60), classes, masks)["class_map"][0, :3] == VOID).all()
    classes[:, 0, 1] = 2.0  # 0.65 sure
    classes[:, 1, 2] = 2.6  # 0.77
    outputs = run(session, READING.names, (40, 60), classes, columns_each(3))
    assert outputs["classes"].tolist() == [[2, 2]]
    assert (outputs["class_map"][0, :, :18] == VOID).all()
    check(session, classes, columns_each(3), (40, 60))


@every_case("size", [(1, 1), (1, 40), (33, 20), (90, 64)])
def test_photos_of_any_size_and_batches_of_which_one_shows_nothing(session: Any, size: tuple[int, int]) -> None:  # noqa: ANN401
    draw = torch.Generator().manual_seed(1)
    coarse = torch.randn(4, QUERIES, 3, 4, generator=draw)
    apart = functional.interpolate(coarse, GRID, mode="bilinear")
    masks = (apart - apart.topk(2, dim=1).values.mean(dim=1, keepdim=True)) * 30
    classes = torch.randn(4, QUERIES, CLASSES + 1, generator=draw) * 12
    classes[2, :, CLASSES] = 99
    labels = check(session, classes, masks, size)
    assert not labels[2]
    assert sum(map(len, labels)) > (2 if min(size) > 1 else 0)
