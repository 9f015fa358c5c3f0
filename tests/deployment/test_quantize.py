"""`vitral quantize`: layers stay in fp32 until accuracy holds on real digits; the folder keeps it; no test image is seen."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import vitral
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.cli.schemas import adapter
from vitral.data.generated import open_digits
from vitral.data.source import DataSet
from vitral.deployment import quantize as module
from vitral.deployment.quantize import quantize
from vitral.errors import DataError, ModelError, WeightsError
from vitral.evaluation.opening import times_opened
from vitral.events import Event, Message, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.inference import choice
from vitral.inference.quantization import LayerRange, linear_layers
from vitral.inference.ranges import LayerFit, find_ranges
from vitral.machine import has_int8

pytestmark = pytest.mark.skipif(not has_int8(), reason="needs a CPU that multiplies 8-bit integers")


@pytest.fixture(autouse=True)
def faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of these tests' size is too small for int8 to be faster for certain; speeds are not what is tested."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    speeds = {"int8": 30.0, "bf16": 15.0, "fp32": 10.0}
    monkeypatch.setattr(choice, "measured", lambda model, way, form=None: speeds[way.precision])


def accuracy(folder: Path, precision: str) -> float:
    return vitral.evaluate(load(folder, precision=precision, listener=ignore), "digits", listener=ignore).headline()  # type: ignore[arg-type]


def test_int8_holds_the_accuracy_and_the_folder_keeps_it(run: Path) -> None:
    weights = (run / "classifier/weights.safetensors").read_bytes()
    before = json.loads((run / "classifier/classifier.json").read_text())
    found = quantize(run, "digits", listener=ignore)
    assert json.loads((run / "classifier/classifier.json").read_text()) == before  # nothing is written unasked
    found = quantize(run, "digits", write=True, listener=ignore)
    form = found.quantization
    assert form.exact > 0.9
    assert form.exact - form.score <= 0.005
    assert len(form.layers) + len(form.kept) == len(linear_layers(load(run, listener=ignore).model))
    assert "3.00 times as fast as packed in fp32" in " ".join(found.lines())
    after = json.loads((run / "classifier/classifier.json").read_text())
    assert {name: value for name, value in after.items() if name != "int8"} == before
    assert form.sentence().split(",")[0] in (run / "classifier/README.md").read_text()
    assert (run / "classifier/weights.safetensors").read_bytes() == weights
    classifier = load(run, precision="int8", listener=ignore)
    assert classifier.quantization == form
    assert classifier.predictor.computed_by == "packed in int8"
    assert abs(accuracy(run, "int8") - accuracy(run, "fp32")) <= 0.01


def test_the_score_is_that_of_the_validation_images_and_test_images_stay_unseen(run: Path) -> None:
    opened = times_opened(run / "classifier")
    form = quantize(run, "digits", write=True, listener=ignore).quantization
    assert times_opened(run / "classifier") == opened
    data = open_digits()
    assert form.images == len(data.splits["validation"])
    scored = vitral.evaluate(
        load(run, precision="int8", listener=ignore), "digits", split="validation", listener=ignore
    )
    assert form.score == pytest.approx(scored.headline(), abs=1e-9)


def test_ranges_are_of_training_images_alone(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def noted(model: torch.nn.Module, batches: Iterator[torch.Tensor]) -> dict[str, LayerFit]:
        kept = list(batches)
        seen.extend(image for batch in kept for image in batch)
        return find_ranges(model, iter(kept))  # type: ignore[arg-type]

    monkeypatch.setattr(module, "find_ranges", noted)
    classifier = load(run, listener=ignore)
    quantize(classifier, "digits", listener=ignore)
    train = open_digits().splits["train"]
    images = {classifier.preprocessing(train.image(index)).numpy().tobytes() for index in range(len(train))}
    assert len(seen) == module.RANGE_IMAGES
    assert all(image.numpy().tobytes() in images for image in seen)


def test_layers_that_cost_accuracy_stay_in_fp32(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = load(run, listener=ignore)
    names = list(linear_layers(classifier.model))
    bad = set(names[1:4])

    def spoilt(model: torch.nn.Module, batches: Iterator[torch.Tensor]) -> dict[str, LayerFit]:
        found = find_ranges(model, batches)  # type: ignore[arg-type]
        return {
            name: LayerFit(LayerRange(-1e-3, 1e-3), 1.0 + number) if name in bad else one
            for number, (name, one) in enumerate(found.items())
        }

    monkeypatch.setattr(module, "find_ranges", spoilt)
    found = quantize(run, "digits", listener=ignore)
    assert bad <= set(found.quantization.kept)
    assert len(found.quantization.kept) == 4
    assert found.quantization.exact - found.quantization.score <= 0.005
    assert [row[2] for row in found.tables()[0].rows[:3]] == ["fp32"] * 3
    monkeypatch.setattr(module, "MOST_KEPT", 2 / len(names))
    with pytest.raises(ModelError, match=r"more than 0\.50% on the \d+ validation photos.* 2 of"):
        quantize(run, "digits", listener=ignore)


def test_a_form_of_another_size_or_network_is_not_used(run: Path, tmp_path: Path) -> None:
    quantize(run, "digits", write=True, listener=ignore)
    assert load(run, image_size=48, listener=ignore).quantization is None
    with pytest.raises(ModelError, match="int8 takes the ranges"):
        load(run, image_size=48, precision="int8", listener=ignore)


@pytest.mark.parametrize("damage", [{"layers": {}}, {"score": 7}, {"further": 1}, {"weights": "0" * 64}])
def test_a_damaged_form_costs_int8_alone_and_is_made_anew(run: Path, damage: dict[str, object]) -> None:
    own = load(run, listener=ignore).predict(digit(run))[0].top
    quantize(run, "digits", write=True, listener=ignore)
    path = run / "classifier/classifier.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "int8": {**values["int8"], **damage}}))
    assert load(run, listener=ignore).predict(digit(run))[0].top == own
    with pytest.raises(ModelError, match="int8 takes the ranges"):
        load(run, precision="int8", listener=ignore)
    quantize(run, "digits", write=True, listener=ignore)
    assert load(run, precision="int8", listener=ignore).predictor.computed_by == "packed in int8"


def digit(folder: Path) -> Path:
    path = folder / "digit.png"
    Image.fromarray((load_digits().images[7] * 15.9).astype(np.uint8)).convert("RGB").save(path)
    return path


def test_a_form_goes_with_its_weights(run: Path, tmp_path: Path) -> None:
    quantize(run, "digits", write=True, listener=ignore)
    classifier = load(run, listener=ignore)
    assert load(save(classifier, tmp_path / "same"), listener=ignore).quantization == classifier.quantization
    with torch.no_grad():
        classifier.model.head.weight.mul_(1.5)
    assert load(save(classifier, tmp_path / "other"), listener=ignore).quantization is None
    again = load(run, listener=ignore)
    again.model = load("vit-mu4", listener=ignore).model
    assert again.quantization is None


def test_without_training_images_it_is_said_that_the_score_flatters(run: Path, tmp_path: Path) -> None:
    names = load(run, listener=ignore).class_names
    for number in range(40):
        folder = tmp_path / "data/val" / names[int(load_digits().target[number])]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((load_digits().images[number] * 15.9).astype(np.uint8)).convert("RGB").save(
            folder / f"{number}.png"
        )
    events: list[Event] = []
    quantize(run, tmp_path / "data", loss=0.5, listener=events.append)
    said = [event.text for event in events if isinstance(event, Message) and event.warning]
    assert any("score flatters" in text for text in said)
    events.clear()
    quantize(run, "digits", listener=events.append)
    assert not any("flatters" in event.text for event in events if isinstance(event, Message))


@pytest.mark.long
def test_what_is_trained_further_has_no_form_any_more(run: Path, tmp_path: Path) -> None:
    quantize(run, "digits", write=True, listener=ignore)
    further = ["steps=2", "workers=0", "augmentation.crop=none"]
    vitral.finetune("digits", source=run, recipe="scratch", out=tmp_path / "more", overrides=further, listener=ignore)
    assert load(tmp_path / "more", listener=ignore).quantization is None


def without_validation(data: DataSet) -> DataSet:
    return replace(data, splits={"test": data.splits["test"]})


def test_bad_input_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = load(run, listener=ignore)
    with pytest.raises(DataError, match="has no validation photos"):
        quantize(classifier, without_validation(open_digits()), listener=ignore)
    with pytest.raises(DataError, match="at least 0 and below 1"):
        quantize(classifier, "digits", loss=-0.1, listener=ignore)
    with pytest.raises(WeightsError, match="can keep an int8 form"):
        quantize("vit-mu4", "digits", write=True, listener=ignore)
    model = vitral.create_model("resnet-10", num_classes=10)
    convolutions = Classifier(model, PHOTOS.with_size(model.image_size), open_digits().class_names)
    with pytest.raises(ModelError, match=r"transformer.* resnet-10 has none"):
        quantize(convolutions, "digits", listener=ignore)
    monkeypatch.setattr(choice, "measured", lambda model, way, form=None: 1.0 if way.precision == "int8" else 2.0)
    with pytest.raises(ModelError, match="int8 would be slower here"):
        quantize(classifier, "digits", listener=ignore)


def test_the_commands_from_end_to_end(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = ["--data", "digits", "--classifier", str(run)]
    assert main(["evaluate", *named, "--precision", "int8"]) == 1
    assert "'vitral quantize' with --write keeps them" in " ".join(capsys.readouterr().err.split())
    assert main(["quantize", *named]) == 0
    assert "--write" in capsys.readouterr().out
    assert main(["quantize", *named, "--write", "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["quantization"]["images"] > 100
    adapter("quantize").validate_json(printed, strict=False)
    assert main(["evaluate", *named, "--precision", "int8"]) == 0
    caught = capsys.readouterr()
    assert "against torch in fp32, probabilities differ by at most" in " ".join(caught.out.split())
    assert "Computes by packed in int8" in " ".join(caught.err.split())
    assert (
        main(["predict", "digits", "--classifier", str(run), "--precision", "int8", "--out", str(tmp_path / "p.csv")])
        == 0
    )
    assert len((tmp_path / "p.csv").read_text().splitlines()) > 1000
