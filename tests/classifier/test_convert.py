"""Converting a classifier: whatever the format, nothing that belongs to it is lost."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.classifier.convert import FORMATS
from vitral.classifier.folder import save
from vitral.classifier.metadata import Calibration
from vitral.cli.main import main
from vitral.errors import StorageError, WeightsError
from vitral.events import Event, Message
from vitral.images.preprocessing import PHOTOS, Preprocessing
from vitral.models.families import create_model

TARGETS = [
    ("vitral", "folder"),
    ("transformers", "theirs"),
    ("original", "one.npz"),
    ("big_vision", "one.npz"),
    ("timm", "one.safetensors"),
    ("timm", "one.pth"),
]
# What no other library's file of the kind says, and what two of them do not do to an image.
ODD = dataclasses.replace(
    PHOTOS, resize="crop", crop_fraction=0.8, interpolation="bicubic", resampler="pillow", mean=(0.1, 0.2, 0.3)
)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 70, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def classifier(model: str, preprocessing: Preprocessing, *, multi_label: bool = False) -> Classifier:
    network = create_model(model, num_classes=3, image_size=32)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(0))
    return Classifier(network, preprocessing.with_size(32), ["ox", "fox", "hen"], multi_label=multi_label)


def test_every_format_is_tried() -> None:
    assert {name for name, _ in TARGETS} == set(FORMATS)


@every_case(("format_name", "target"), TARGETS)
@every_case("multi_label", [False, True])
def test_the_answer_is_the_same_before_and_after(
    format_name: str, target: str, multi_label: bool, image: Path, tmp_path: Path
) -> None:
    before = classifier("vit-mu16-gap" if format_name == "big_vision" else "vit-mu16", ODD, multi_label=multi_label)
    written = vitral.convert(before, tmp_path / target, format=format_name)
    after = vitral.load(written.path)
    assert after.class_names == ("ox", "fox", "hen")
    assert after.preprocessing == before.preprocessing
    assert after.multi_label == multi_label
    (ours,), (theirs,) = before.predict(image), after.predict(image)
    assert [label for label, _ in theirs.top] == [label for label, _ in ours.top]
    assert [value for _, value in theirs.top] == pytest.approx([value for _, value in ours.top], abs=1e-6)


def test_a_classifier_is_converted_as_it_is_at_any_size(tmp_path: Path) -> None:
    mine = classifier("vit-mu16", ODD)
    written = vitral.convert(mine, tmp_path / "larger.npz", format="original", image_size=64)
    assert vitral.load(written.path).model.image_size == (64, 64)
    assert (mine.model.image_size, mine.preprocessing.image_size) == ((32, 32), (32, 32))
    with pytest.raises(WeightsError, match="its own architecture"):
        vitral.convert(mine, tmp_path / "other.npz", format="original", architecture={"num_heads": 2})
    saved = vitral.load(save(mine, tmp_path / "mine"))
    with pytest.raises(StorageError, match="is an input"):
        vitral.convert(saved, tmp_path / "mine", format="vitral", overwrite=True)


def test_what_a_file_cannot_hold_goes_next_to_it_and_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(classifier("vit-mu16", ODD), tmp_path / "mine")
    target = tmp_path / "one.npz"
    assert main(["convert", str(tmp_path / "mine"), str(target), "--format", "original"]) == 0
    neighbour = tmp_path / "one.npz.vitral.json"
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Note: ")]
    assert len(notes) == 1
    assert str(neighbour) in notes[0]
    assert json.loads(neighbour.read_text())["class_names"] == ["ox", "fox", "hen"]
    assert main(["convert", str(tmp_path / "mine"), str(tmp_path / "one.safetensors"), "--format", "timm"]) == 0
    assert not (tmp_path / "one.safetensors.vitral.json").exists()


@pytest.mark.parametrize(("format_name", "target"), TARGETS)
def test_temperature_and_threshold_are_kept_or_their_loss_is_noted(
    format_name: str, target: str, image: Path, tmp_path: Path
) -> None:
    before = classifier("vit-mu16-gap" if format_name == "big_vision" else "vit-mu16", ODD)
    before.calibration = Calibration(2.5, 0.625, 0.9, "photos", 40)
    save(before, tmp_path / "mine")
    written = vitral.convert(tmp_path / "mine", tmp_path / target, format=format_name)
    after = vitral.load(written.path)
    noted = [note for note in written.notes if before.calibration.sentence() in note]
    if format_name == "transformers":
        assert after.calibration is None
        assert "cannot hold the calibration" in noted[0]
        return
    assert bool(noted) == (format_name != "vitral")
    assert after.calibration == before.calibration
    (ours,), (theirs,) = before.predict(image), after.predict(image)
    assert theirs.probability == pytest.approx(ours.probability, abs=1e-6)
    assert theirs.sure is ours.sure
    beside = written.path.with_name(f"{written.path.name}.vitral.json")
    assert beside.exists() == any("class names, preprocessing and calibration" in note for note in written.notes)


def test_a_damaged_calibration_next_to_a_file_is_refused(tmp_path: Path) -> None:
    before = classifier("vit-mu16", ODD)
    before.calibration = Calibration(2.5, 0.625, 0.9, "photos", 40)
    path = vitral.convert(save(before, tmp_path / "mine"), tmp_path / "one.npz", format="original").path
    neighbour = path.with_name("one.npz.vitral.json")
    neighbour.write_text(json.dumps({**json.loads(neighbour.read_text()), "calibration": {"temperature": -1}}))
    with pytest.raises(vitral.VitralError, match="one.npz"):
        vitral.load(path)


def test_a_calibration_of_another_size_is_left_out_and_said(tmp_path: Path) -> None:
    before = classifier("vit-mu16", ODD)
    before.calibration = Calibration(2.5, 0.625, 0.9, "photos", 40)
    said: list[Event] = []
    target = tmp_path / "one.npz"
    source = save(before, tmp_path / "mine")
    vitral.convert(source, target, format="original", image_size=64, listener=said.append)
    assert vitral.load(target).calibration is None
    assert [event.text for event in said if isinstance(event, Message)] == [
        f"Fitted at another image size, and left out: {before.calibration.sentence()}"
    ]


def test_a_description_of_another_file_is_passed_over_and_said(tmp_path: Path) -> None:
    save(classifier("vit-mu16", ODD), tmp_path / "mine")
    path = vitral.convert(tmp_path / "mine", tmp_path / "one.npz", format="original").path
    neighbour = path.with_name("one.npz.vitral.json")
    description = json.loads(neighbour.read_text())
    neighbour.write_text(json.dumps({**description, "weights_sha256": "0" * 64}))
    other = vitral.load(path)
    assert other.class_names == ("class 0", "class 1", "class 2")
    assert "is about another file" in " ".join(other.provenance.notes)
    neighbour.write_text("{")
    with pytest.raises(vitral.VitralError, match="one.npz"):
        vitral.load(path)


def test_a_changed_preprocessor_config_holds(tmp_path: Path) -> None:
    save(classifier("vit-mu16", ODD), tmp_path / "mine")
    vitral.convert(tmp_path / "mine", tmp_path / "theirs", format="transformers")
    path = tmp_path / "theirs" / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "image_mean": [0.5, 0.5, 0.5]}))
    assert vitral.load(tmp_path / "theirs").preprocessing.mean == (0.5, 0.5, 0.5)


@every_case(("format_name", "target"), TARGETS)
def test_files_have_the_mode_that_the_umask_says(format_name: str, target: str, tmp_path: Path) -> None:
    name = "vit-mu16-gap" if format_name == "big_vision" else "vit-mu16"
    before = os.umask(0o027)
    try:
        written = vitral.convert(name, tmp_path / target, format=format_name, image_size=32)
    finally:
        os.umask(before)
    files = [written.path] if written.path.is_file() else list(written.path.iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
