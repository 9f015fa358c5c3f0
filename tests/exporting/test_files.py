"""ONNX files give the network's answers in both runtimes, of every family, for batches and images of any size."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from tests.models.test_contract import CONFIGS, make
from vitral.classifier.classifier import Classifier
from vitral.classifier.exported import described
from vitral.classifier.metadata import Calibration
from vitral.errors import ModelError
from vitral.exporting.preparation import ClassifierPrograms
from vitral.images.preprocessing import PHOTOS
from vitral.inference.engines import openvino_core, openvino_hints
from vitral.inference.exported.onnx_format import OnnxGraph, write_onnx
from vitral.tasks.multi_label import MULTI_LABEL

pytestmark = pytest.mark.long

BATCHES = [(1, 90, 99), (2, 270, 189), (7, 45, 40)]  # images, rows, columns: of sizes that shrink, and that grow
WITH_EXPERTS = ("experts", "every-experts")
QUICK = (
    "deit",
    "hybrid",
    "rotary",
    "neighbours",
    "bit",
    "resnet-basic",
    "t2t",
    "cvt",
    "coatnet",
    "efficientnet",
    "pixels",
)
FAMILIES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CONFIGS if name not in WITH_EXPERTS
]


def classifier_of(name: str) -> Classifier:
    model = make(name)
    return Classifier(model, PHOTOS.with_size(model.image_size))


def batches() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for count, rows, columns in BATCHES:
        small = rng.integers(0, 256, (count, rows // 9, columns // 9, 3), dtype=np.uint8)
        yield np.ascontiguousarray(np.kron(small, np.ones((1, 9, 9, 1), np.uint8)))


@pytest.mark.parametrize("name", FAMILIES)
def test_both_runtimes_give_the_networks_answers(name: str, tmp_path: Path) -> None:
    classifier, file = classifier_of(name), tmp_path / "model.onnx"
    write_onnx(ClassifierPrograms(classifier), described(classifier), file)
    graph = OnnxGraph(file, "fp32")
    hints = openvino_hints("fp32", 1)
    openvino = openvino_core().compile_model(openvino_core().read_model(file), "CPU", hints)
    for images in batches():
        prepared = torch.stack([classifier.preprocessing(image) for image in images])
        own = classifier.probabilities(prepared).numpy()
        logits = classifier.predictor.logits(prepared).numpy()
        assert np.ptp(own) > 0.01
        np.testing.assert_allclose(graph.whole(images), own, rtol=0, atol=1e-5)
        np.testing.assert_allclose(openvino(images)["probabilities"], own, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(graph.prepare(images), prepared.numpy())  # the file cut in two
        np.testing.assert_allclose(graph.answer(prepared.numpy()), logits, rtol=0, atol=2e-5 * max(1, np.ptp(logits)))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Classifier, Path]:
    classifier = classifier_of("deit")
    classifier.calibration = Calibration(2.5, 0.7, 0.95, "photos", 100)
    file = tmp_path_factory.mktemp("written") / "model.onnx"
    write_onnx(ClassifierPrograms(classifier), described(classifier), file)
    return classifier, file


def test_a_file_is_of_plain_nodes_and_says_nothing_of_the_machine(written: tuple[Classifier, Path]) -> None:
    model = onnx.load(written[1])
    onnx.checker.check_model(model, full_check=True)
    assert all(entry.domain == "" and entry.version >= 18 for entry in model.opset_import)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("Gelu") == 2
    assert kinds.count("LayerNormalization") == 5
    assert "Resize" not in kinds
    assert "Erf" not in kinds
    taken = model.graph.input[0].type.tensor_type
    assert taken.elem_type == onnx.TensorProto.UINT8
    assert [axis.dim_param or axis.dim_value for axis in taken.shape.dim] == ["batch", "height", "width", 3]
    told = written[1].read_bytes()
    for machine in (str(Path(__file__).parents[2]), "site-packages", "torch/"):
        assert machine.encode() not in told


def test_the_temperature_is_in_the_file(written: tuple[Classifier, Path]) -> None:
    classifier, file = written
    images = next(batches())
    prepared = torch.stack([classifier.preprocessing(image) for image in images])
    logits = classifier.predictor.logits(prepared)
    expected = (logits / 2.5).softmax(dim=1).numpy()
    assert np.abs(expected - logits.softmax(dim=1).numpy()).max() > 0.01
    np.testing.assert_allclose(OnnxGraph(file, "fp32").whole(images), expected, rtol=0, atol=1e-6)


def test_several_labels_are_probabilities_of_their_own(tmp_path: Path) -> None:
    model = make("deit")
    classifier = Classifier(model, PHOTOS.with_size(model.image_size), task=MULTI_LABEL)
    write_onnx(ClassifierPrograms(classifier), described(classifier), tmp_path / "model.onnx")
    images = next(batches())
    logits = model.eval()(torch.stack([classifier.preprocessing(image) for image in images])).detach()
    found = OnnxGraph(tmp_path / "model.onnx", "fp32").whole(images)
    np.testing.assert_allclose(found, torch.sigmoid(logits).numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_experts_are_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"sends each token to experts of its own"):
        write_onnx(ClassifierPrograms(classifier_of(name)), {}, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
