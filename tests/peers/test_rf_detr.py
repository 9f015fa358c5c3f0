"""RF-DETR against transformers': answers, boxes after post-processing, the loss, and files both ways."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.peers.compare import gap, pixels, scramble
from vitral.images.geometry import Geometry
from vitral.images.preprocessing import PHOTOS
from vitral.models.rf_detr import RFDetr
from vitral.objectives.box_overlap import corners
from vitral.objectives.box_queries import query_loss
from vitral.objectives.points import MarkedRegions
from vitral.tasks.box_answers import find_boxes
from vitral.weights.load import read_weights
from vitral.weights.save import write_weights

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

TOLERANCE = 1e-5
SIDE = 64
CLASSES = 7
BACKBONE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "mlp_ratio": 2,
    "image_size": SIDE,
    "patch_size": 8,
    "num_windows": 2,
    "out_features": ["stage1", "stage3", "stage5"],
}
DETECTOR: dict[str, Any] = {
    "d_model": 32,
    "decoder_layers": 2,
    "num_queries": 5,
    "group_detr": 3,
    "decoder_n_points": 2,
    "decoder_self_attention_heads": 4,
    "decoder_cross_attention_heads": 8,
    "decoder_ffn_dim": 48,
    "c2f_num_blocks": 2,
    "num_labels": CLASSES,
    "dropout": 0.0,
}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nano": ({}, {}),
    "whole-image": ({"num_windows": 1}, {"decoder_layers": 1, "decoder_n_points": 3}),
    "four-windows": (
        {"num_windows": 4, "out_features": ["stage2", "stage4"]},
        {"decoder_layers": 4, "c2f_num_blocks": 3},
    ),
}


@pytest.fixture(scope="module", params=list(KINDS))
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A network of random weights, and the folder that it was saved to."""
    backbone, detector = KINDS[request.param]
    settings = transformers.RfDetrDinov2Config(**BACKBONE | backbone)
    model = transformers.RfDetrForObjectDetection(
        transformers.RfDetrConfig(backbone_config=settings, **DETECTOR | detector)
    )
    scramble(model)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return model.eval(), folder


def ours(folder: Path) -> RFDetr:
    model = read_weights(folder / "model.safetensors").model
    assert isinstance(model, RFDetr)
    return model


@torch.no_grad()
def test_the_same_answers(published: tuple[Any, Path]) -> None:
    model, folder = published
    answers, theirs = ours(folder)(pixels((SIDE, SIDE))), model(pixels((SIDE, SIDE)))
    assert gap(answers.classes, theirs.logits) < TOLERANCE
    assert answers.boxes is not None
    assert gap(answers.boxes, theirs.pred_boxes) < TOLERANCE


@torch.no_grad()
def test_the_same_boxes_after_post_processing(published: tuple[Any, Path]) -> None:
    model, folder = published
    sizes = [(480, 640), (300, 200)]
    theirs = transformers.RfDetrImageProcessor().post_process_object_detection(
        model(pixels((SIDE, SIDE))), threshold=0.0, target_sizes=sizes
    )
    for found, there, size in zip(
        find_boxes(ours(folder)(pixels((SIDE, SIDE))), [Geometry(size) for size in sizes]), theirs, sizes, strict=True
    ):
        limits = torch.tensor([size[1], size[0]] * 2)
        boxes = there["boxes"].clamp(min=torch.zeros(4), max=limits)  # ours end where the photo does
        kept = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
        assert found.regions.classes.tolist() == there["labels"][kept].tolist()
        assert np.allclose(found.scores, there["scores"][kept], atol=1e-5)
        assert np.allclose(found.regions.boxes, boxes[kept], atol=1e-2)


def test_the_same_loss(published: tuple[Any, Path]) -> None:
    model, folder = published
    generator = torch.Generator().manual_seed(1)
    labels = [
        {
            "class_labels": torch.randint(CLASSES, (count,), generator=generator),
            "boxes": torch.rand(count, 4, generator=generator) * 0.5 + 0.2,
        }
        for count in (3, 0)
    ]
    theirs = model.train()(pixels((SIDE, SIDE)), labels=labels)
    marked = [MarkedRegions(row["class_labels"], corners(row["boxes"]), torch.zeros(0, 4)) for row in labels]
    network = ours(folder).train()
    answers = network(pixels((SIDE, SIDE)))
    loss = query_loss(answers, marked)
    assert len(answers.earlier) == network.config.decoder_layers  # the proposals, and all layers but the last
    assert torch.allclose(loss, theirs.loss, rtol=1e-4)
    loss.backward()  # type: ignore[no-untyped-call]
    theirs.loss.backward()
    gradient = network.backbone.patch_embedding.weight.grad
    assert gradient is not None
    for name, value in model.named_parameters():
        if name.endswith("patch_embeddings.projection.weight"):
            assert gap(gradient, value.grad) < 1e-3
    model.eval()


@torch.no_grad()
def test_our_files_give_the_same_there(published: tuple[Any, Path], tmp_path: Path) -> None:
    model, folder = published
    network = ours(folder)
    names = [f"class {number}" for number in range(CLASSES)]
    task: Any = SimpleNamespace(dense=True, name="boxes")
    images = PHOTOS.from_json({**PHOTOS.to_json(), "image_size": [SIDE, SIDE]})
    written = write_weights(network, images, names, tmp_path / "written", "transformers", task=task)
    there = transformers.RfDetrForObjectDetection.from_pretrained(written.path).eval()
    assert not there.state_dict().keys() ^ model.state_dict().keys()
    assert gap(network(pixels((SIDE, SIDE))).classes, there(pixels((SIDE, SIDE))).logits) < TOLERANCE
    assert there.config.id2label[3] == "class 3"
    again = ours(written.path)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in network.state_dict().items())
