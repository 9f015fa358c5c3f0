"""Classifiers of regions as ONNX: the same regions, from decoded photos of any size, in the photos' own pixels."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError
from vitral.exporting.export import export
from vitral.exporting.export_regions import PhotoGraph, likeness
from vitral.exporting.readings import AnswerReading, FoundBoxes, FoundMasks, MapReading, enlarged
from vitral.images.geometry import Geometry, Resize
from vitral.images.preprocessing import Preprocessing
from vitral.images.run_lengths import tight_box
from vitral.models.dense.answers import PointAnswers, QueryAnswers
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.linear import LinearHeadConfig
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.tasks.box_answers import find_boxes
from vitral.tasks.query_answers import find_classes_of_queries, find_objects_of_queries
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.semantic import SEMANTIC

SIDE = 32
SIDE_OF_PHOTO = 1000
NAMES = ("ground", "cell", "dust")


def classifier(**preprocessing: object) -> Classifier:
    backbone = ViTConfig(image_size=(SIDE, SIDE), patch_size=(8, 8), dim=16, depth=1, mlp_dim=32, num_heads=2)
    config = DenseConfig(backbone=backbone, head=LinearHeadConfig(), num_classes=3, image_size=(SIDE, SIDE))
    model = build(config, seed=0)
    nn.init.normal_(model.head.classifier.weight, generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type, union-attr]
    return Classifier(model, Preprocessing(image_size=(SIDE, SIDE), **preprocessing), NAMES, task=SEMANTIC)  # type: ignore[arg-type]


def photo(rows: int = 50, columns: int = 71) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, columns, 3), dtype=np.uint8)


@every_case("size", [(4, 4), (9, 5), (3, 17), (128, 200), (1, 1)])
def test_maps_are_enlarged_as_torch_does(size: tuple[int, int]) -> None:
    maps = torch.randn(2, 3, 4, 6)
    expected = functional.interpolate(maps, size=size, mode="bilinear", align_corners=False)
    assert torch.allclose(enlarged(maps, *size), expected, atol=1e-5)


def test_the_graph_gives_the_class_of_each_pixel() -> None:
    own = classifier()
    with torch.no_grad():
        labels, confidence, *_ = PhotoGraph(own)(torch.from_numpy(photo())[None])
        logits = own.model.eval()(own.preprocessing(photo())[None])
    view = functional.interpolate(logits, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    shares = functional.interpolate(view, size=(50, 71), mode="bilinear", align_corners=False).softmax(dim=1)
    assert (labels == shares.argmax(dim=1)).float().mean() > 0.999
    assert torch.allclose(confidence, shares.amax(dim=1), atol=1e-4)


def test_boxes_of_queries_are_in_pixels_the_likeliest_first() -> None:
    answers = QueryAnswers(
        classes=torch.tensor([[[-2.0, -1.0], [3.0, -9.0]]]),
        boxes=torch.tensor([[[0.5, 0.5, 2.0, 0.5], [0.25, 0.5, 0.5, 0.2]]]),
    )
    boxes, scores, classes = FoundBoxes()(answers, 100, 200)
    assert torch.allclose(boxes, torch.tensor([[[0.0, 40.0, 100.0, 60.0], [0.0, 25.0, 200.0, 75.0]]]))
    assert torch.allclose(scores, torch.tensor([[3.0, -1.0]]).sigmoid())
    assert classes.tolist() == [[0, 1]]


def outputs_of(reading: AnswerReading, answers: object, size: tuple[int, int]) -> FoundRegions:
    outputs = dict(zip(reading.names, (value.numpy() for value in reading(answers, *size)), strict=True))
    return reading.found(outputs, size)


def view_of(size: tuple[int, int]) -> Geometry:
    return Geometry(size, (Resize(SIDE, SIDE),))


def test_masks_of_queries_are_those_of_the_task() -> None:
    draw = torch.Generator().manual_seed(0)
    coarse = torch.randn(1, 12, 3, 3, generator=draw)
    masks = functional.interpolate(coarse, size=(8, 8), mode="bilinear") * 6
    answers = QueryAnswers(classes=torch.randn(1, 12, 4, generator=draw) * 3, masks=masks)
    for size in ((50, 71), (16, 20)):
        [own] = find_objects_of_queries(answers, [view_of(size)])
        found = outputs_of(FoundMasks((SIDE, SIDE)), answers, size)
        assert likeness(own, found, counted=True) > 0.999
        assert np.allclose(own.scores, found.scores, atol=1e-4)
        [own] = find_classes_of_queries(answers, [view_of(size)])
        assert likeness(own, outputs_of(MapReading((SIDE, SIDE)), answers, size), counted=False) > 0.998
    boxes = FoundMasks((SIDE, SIDE))(answers, 50, 71)[1][0].numpy()
    tight = [tight_box(mask.numpy().astype(bool)) for mask in FoundMasks((SIDE, SIDE))(answers, 50, 71)[0][0]]
    areas = [(right - left) * (bottom - top) for left, top, right, bottom in tight]
    assert all(np.allclose(box, own) for box, own, area in zip(boxes, tight, areas, strict=True) if area)


def test_boxes_of_places_are_those_of_the_task() -> None:
    draw = torch.Generator().manual_seed(0)
    middle, sides = torch.rand(1, 2, 9, 9, generator=draw), torch.rand(1, 2, 9, 9, generator=draw) / 2
    boxes = torch.cat([middle - sides, middle + sides], dim=1).clamp(0.01, 0.99)
    answers = PointAnswers(torch.randn(1, 3, 9, 9, generator=draw) * 2, boxes)
    [own] = find_boxes(answers, [view_of((50, 71))])
    found = outputs_of(FoundBoxes(), answers, (50, 71))
    assert likeness(own, found, counted=True) > 0.9999
    assert np.allclose(own.scores, found.scores, atol=1e-6)
    assert (own.regions.classes == found.regions.classes).all()


def test_likeness_is_the_intersection_over_union_of_one_class() -> None:
    one = FoundRegions(Regions.of_boxes((9, 9), [0], [[0, 0, 2, 2]]), np.ones(1))
    half = FoundRegions(Regions.of_boxes((9, 9), [0], [[0, 0, 1, 2]]), np.ones(1))
    other = FoundRegions(Regions.of_boxes((9, 9), [1], [[0, 0, 2, 2]]), np.ones(1))
    none = FoundRegions(Regions.of_boxes((9, 9), [], []), np.ones(0))
    assert [likeness(one, each, counted=True) for each in (one, half, other, none)] == [1, 0.5, 0, 0]
    assert likeness(none, none, counted=True) == 1


def test_likeness_of_hundreds_of_small_masks_takes_no_memory_of_whole_photos() -> None:
    """400 squares of 10 pixels on a photo of a megapixel, in the other answer each three columns farther right."""

    def squares(offset: int) -> FoundRegions:
        starts = [(50 * column + offset) * SIDE_OF_PHOTO + 50 * row for column in range(20) for row in range(20)]
        whole = SIDE_OF_PHOTO**2
        runs = [
            np.array([start, *[10, SIDE_OF_PHOTO - 10] * 9, 10, whole - start - 9 * SIDE_OF_PHOTO - 10])
            for start in starts
        ]
        return FoundRegions(Regions.of_runs((SIDE_OF_PHOTO, SIDE_OF_PHOTO), [0] * 400, runs), np.ones(400))

    own, moved = squares(0), squares(3)
    tracemalloc.start()
    assert likeness(own, moved, counted=True) == pytest.approx(7 / 13)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 << 20


def test_what_cannot_be_answered_for_the_whole_photo_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="squash"):
        PhotoGraph(classifier(resize="crop"))
    with pytest.raises(ModelError, match="ONNX"):
        export(classifier(), tmp_path / "out", format="openvino")
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_onnx_runtime_finds_what_the_classifier_finds(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    written = export(classifier(), tmp_path / "out")
    assert written.holds, written.lines()
    assert written.checks[0].images == 200
    session = runtime.InferenceSession(written.file)
    assert json.loads(session.get_modelmeta().custom_metadata_map["class_names"]) == [*NAMES]
    labels, _ = session.run(None, {"images": np.stack([photo(33, 90)] * 2)})
    assert labels.shape == (2, 33, 90)
    nodes = {node.op_type for node in onnx.load(written.file).graph.node}
    assert not nodes & {"Resize", "GridSample"}
    assert "class_map" in (tmp_path / "out" / "README.md").read_text()
