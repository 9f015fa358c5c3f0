"""Integers, merged tokens and what `tune` has set in a file: its answers are those of the folder that computes so."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sklearn.datasets import load_sample_images

import vitral
from tests.models.test_contract import VIT, make
from vitral.classifier import folder
from vitral.classifier.classifier import Classifier, Tuning
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.exporting import parity
from vitral.images.preprocessing import PHOTOS
from vitral.inference.choice import INTEGERS, predictor_in
from vitral.inference.exported import onnx_format
from vitral.inference.int8 import IntegerLinear, integer_linear
from vitral.inference.quantization import LayerRange, Quantization, linear_layers, written_factors
from vitral.inference.ranges import find_ranges
from vitral.machine import has_int8
from vitral.models.families import build
from vitral.models.model import Model

pytestmark = pytest.mark.long

needs_int8 = pytest.mark.skipif(not has_int8(), reason="needs a CPU that multiplies 8-bit integers")


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "IMAGES", 24)  # sooner; that 200 are taken is tested elsewhere


def network() -> Model:
    """A Vision Transformer whose blocks have weights as large as learned ones, so that what they do is seen."""
    model = build(dataclasses.replace(VIT, depth=4, image_size=(64, 64)), seed=3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in (*linear_layers(model).values(), model.head):
            layer.weight.normal_(std=layer.in_features**-0.5, generator=generator)
    return model


@pytest.fixture(scope="module")
def photos() -> list[np.ndarray]:
    china, flower = (np.array(one) for one in load_sample_images().images)
    return [china, flower, china[100:, 50:], flower[:200, 300:]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, photos: list[np.ndarray]) -> Path:
    """A classifier with an int8 form whose ranges are those of real images, one layer in fp32."""
    model = network()
    classifier = Classifier(model, PHOTOS.with_size(model.image_size))
    found = find_ranges(model, iter([torch.stack([classifier.preprocessing(one) for one in photos])]))
    names = list(found)
    layers = {name: one.inputs for name, one in found.items() if name != names[-1]}
    classifier.quantization = Quantization(layers, (names[-1],), model.image_size, "photos", 4, 1.0, 1.0, 1.0)
    return folder.save(classifier, tmp_path_factory.mktemp("saved") / "flowers")


def probabilities(classifier: Classifier, photos: list[np.ndarray]) -> torch.Tensor:
    return torch.cat([classifier.probabilities(classifier.preprocessing(one)[None]) for one in photos])


@needs_int8
@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_a_file_of_integers_answers_as_the_folder_in_int8(
    saved: Path, tmp_path: Path, photos: list[np.ndarray], name: str
) -> None:
    written = vitral.export(saved, tmp_path / "out", format=name, precision="int8", listener=ignore)  # type: ignore[arg-type]
    assert written.holds
    assert "in int8" in written.lines()[1]
    own = load(saved, listener=ignore)
    own.predictor = predictor_in(own.model, INTEGERS, own.quantization)
    file = load(tmp_path / "out", listener=ignore)
    assert file.predictor.computed_by.endswith("in int8")
    assert float((probabilities(file, photos) - probabilities(own, photos)).abs().max()) < 0.005
    with pytest.raises(ModelError, match="is computed in int8, not in fp32"):
        load(tmp_path / "out", precision="fp32", listener=ignore)


@needs_int8
def test_its_weights_are_integers_and_its_runtime_multiplies_them(saved: Path, tmp_path: Path) -> None:
    file = vitral.export(saved, tmp_path / "out", precision="int8", listener=ignore).file
    form = load(saved, listener=ignore).quantization
    assert form is not None
    weights = [one for one in onnx.load(file).graph.initializer if one.data_type == onnx.TensorProto.INT8]
    own = linear_layers(load(saved, listener=ignore).model)
    assert sum(len(one.raw_data) for one in weights) == sum(own[name].weight.numel() for name in form.layers)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimized.onnx"), 3
    onnxruntime.InferenceSession(file, options)
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert kinds.count("MatMulIntegerToFloat") >= len(form.layers)
    assert "DequantizeLinear" not in kinds


def test_a_layer_of_integers_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    layer = torch.nn.Linear(12, 5)
    factors = torch.from_numpy(rng.uniform(0.5, 2, 12).astype(np.float16).astype(np.float32))
    inputs = LayerRange(-1.5, 2.5, written_factors(factors))
    values = rng.normal(size=(7, 12)).astype(np.float32) * 2
    step, zero = 4.0 / 255, round(1.5 * 255 / 4.0)
    smoothed = (values / factors.numpy()).astype(np.float64)
    places = np.clip(np.rint(smoothed / step) + zero, 0, 255)
    weight = layer.weight.detach().double().numpy() * factors.double().numpy()
    scales = np.abs(weight).max(axis=1) / 127
    whole = np.rint(weight / scales[:, None])
    expected = (places - zero) * step @ (whole * scales[:, None]).T + layer.bias.detach().numpy()
    made = IntegerLinear(layer, inputs)
    found = made(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(made.part(torch.from_numpy(values), 1, 4).numpy(), expected[:, 1:4], atol=1e-4)


@needs_int8
def test_wrong_scales_are_found_by_the_check(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = onnx_format._translations

    def wrong() -> dict:  # type: ignore[type-arg]
        ((operator, right),) = made().items()
        return {operator: lambda values, weight, _, bias, *rest: right(values, weight, bias, bias, *rest)}

    monkeypatch.setattr(onnx_format, "_translations", wrong)
    written = vitral.export(saved, tmp_path / "out", precision="int8", listener=ignore)
    assert not written.holds
    assert written.cosines  # which show where


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_a_file_merges_tokens_as_the_folder_does(
    saved: Path, tmp_path: Path, photos: list[np.ndarray], name: str
) -> None:
    written = vitral.export(saved, tmp_path / "out", format=name, merge=3, listener=ignore)  # type: ignore[arg-type]
    assert written.holds
    own, plain = load(saved, merge=3, listener=ignore), load(saved, listener=ignore)
    found = probabilities(load(tmp_path / "out", listener=ignore), photos)
    torch.testing.assert_close(found, probabilities(own, photos), rtol=0, atol=1e-5)
    assert float((found - probabilities(plain, photos)).abs().max()) > 1e-4  # merging is seen at all
    one = load(tmp_path / "out", listener=ignore)
    batch = torch.stack([one.preprocessing(photo) for photo in photos])
    torch.testing.assert_close(one.predictor.logits(batch), own.predictor.logits(batch), rtol=0, atol=1e-4)


def test_what_tune_has_set_is_carried_over(saved: Path, tmp_path: Path, photos: list[np.ndarray]) -> None:
    tuned = folder.read(saved)
    side = tuned.model.image_size[0]
    smaller = side - tuned.model.config.patch_size[0]
    tuned.setting = Tuning(
        *((smaller, smaller), "packed", "bf16", 2), 1.0, 2.0, "another", 1, "photos", 4, exact=1.0, score=1.0
    )
    path = folder.save(tuned, tmp_path / "tuned")
    written = vitral.export(path, tmp_path / "out", listener=ignore)
    assert written.holds
    file = load(tmp_path / "out", listener=ignore)
    assert file.preprocessing.image_size == (smaller, smaller)
    own = load(saved, image_size=smaller, merge=2, listener=ignore)
    torch.testing.assert_close(probabilities(file, photos), probabilities(own, photos), rtol=0, atol=1e-4)
    told = json.loads(dict(onnxruntime.InferenceSession(written.file).get_modelmeta().custom_metadata_map)["merge"])
    assert told == 2
    plain = vitral.export(path, tmp_path / "plain", precision="fp32", merge=0, listener=ignore)
    assert load(plain.file, precision="fp32", listener=ignore).preprocessing.image_size == (side, side)
    with pytest.raises(ModelError, match="not in int8"):
        load(plain.file, precision="int8", listener=ignore)


def test_what_cannot_be_written_is_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = ["--out", str(tmp_path / "out")]
    assert main(["export", str(saved), "--format", "torch", "--precision", "int8", *target]) == 1
    assert "no layers of integers" in capsys.readouterr().err
    bare = folder.save(Classifier(network(), PHOTOS.with_size((64, 64))), tmp_path / "bare")
    assert main(["export", str(bare), "--precision", "int8", *target]) == 1
    assert "vitral quantize" in capsys.readouterr().err
    resnet = make("resnet-basic")
    convolutional = folder.save(Classifier(resnet, PHOTOS.with_size(resnet.image_size)), tmp_path / "resnet")
    assert main(["export", str(convolutional), "--merge", "4", *target]) == 1
    assert "cannot be merged" in capsys.readouterr().err
    with pytest.raises(ModelError, match="load it otherwise"):
        vitral.export(load(saved, listener=ignore), tmp_path / "out", merge=2, listener=ignore)
    assert not (tmp_path / "out").exists()


def test_the_operator_of_integers_has_a_shape_before_it_is_computed() -> None:
    arguments = torch.zeros(2, 3, 4), torch.zeros(4, 5, dtype=torch.int8), torch.ones(5), torch.ones(5), 0.1, 3
    torch.library.opcheck(integer_linear, arguments)
