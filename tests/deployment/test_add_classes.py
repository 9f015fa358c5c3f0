"""Classes that are added without training: what the new classifier answers, and what it says that this costs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import read, save
from vitral.classifier.metadata import Calibration
from vitral.classifier.novelty import KnownImages
from vitral.cli.main import main
from vitral.deployment.add_classes import add_classes
from vitral.errors import DataError, StorageError, VitralError, WeightsError
from vitral.evaluation.probes import fit_probe
from vitral.evaluation.unknown_classes import remembered
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.pixels import PixelsConfig

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "grey": (120, 120, 120)}


def photos(folder: Path, *names: str, count: int = 25) -> Path:
    random = np.random.default_rng(len(names))
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = np.array(COLOURS[name]) + random.integers(-25, 25, (16, 16, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A classifier of red and green that remembers its images."""
    model = build(PixelsConfig(image_size=(16, 16), num_classes=2, side=2), seed=0)
    made = Classifier(model, PHOTOS.with_size(16), ("green", "red"), calibration=Calibration(2.0, None, None, "x", 9))
    paths = sorted(photos(tmp_path / "old", "green", "red").rglob("*.png"))
    images = torch.stack([made.preprocessing(np.array(Image.open(path))) for path in paths])
    labels = torch.tensor([("green", "red").index(path.parent.name) for path in paths])
    features = made.predictor.features(images)
    with torch.no_grad():
        probe = fit_probe(features, labels)
        model.head.weight.copy_(probe.weight)
        model.head.bias.copy_(probe.bias)
    made.remember(remembered(features, labels, seed=0))
    return save(made, tmp_path / "run" / "classifier").parent


def test_new_classes_and_further_examples_are_answered_at_once(known: Path, tmp_path: Path) -> None:
    new = photos(tmp_path / "new", "blue", "red", "grey")
    weights = (known / "classifier" / "weights.safetensors").read_bytes()
    added = add_classes(new, known, listener=ignore)
    assert added.classes == ("blue", "grey")
    assert added.images == 75
    assert [(part.images, part.before, part.after) for part in added.parts] == [(10, 1, 1), (5, 1, 1), (10, None, 1)]
    grown = read(Path(added.path))
    assert grown.class_names == ("green", "red", "blue", "grey")
    assert grown.calibration is None
    for name in ("green", "red", "blue", "grey"):
        folder = tmp_path / ("old" if name == "green" else "new") / name
        assert {one.label for one in grown.predict(folder, listener=ignore)} == {name}
    assert (known / "classifier" / "weights.safetensors").read_bytes() == weights
    assert grown.known_images is not None
    assert grown.known_images.labels.bincount().tolist() == [25, 50, 25, 25]
    assert grown.novelty is not None
    with pytest.raises(StorageError):
        add_classes(new, known, listener=ignore)
    assert vitral.load(add_classes(new, known, overwrite=True, listener=ignore).path, listener=ignore)


def test_a_folder_of_one_class_is_enough(known: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = photos(tmp_path / "new", "blue")
    assert main(["add", str(new), "--to", str(known), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == ["blue"]
    assert main(["add", str(new / "blue"), "--to", str(known), "--out", str(tmp_path / "other")]) == 0
    assert read(tmp_path / "other").class_names == ("green", "red", "blue")
    assert "Photos of new classes" in capsys.readouterr().out


def test_what_cannot_be_added_is_refused_and_nothing_is_written(known: Path, tmp_path: Path) -> None:
    few = photos(tmp_path / "few", "blue", count=1)
    faults: dict[type[VitralError], tuple[Path, Path]] = {
        DataError: (few, known),
        WeightsError: (photos(tmp_path / "new", "blue"), tmp_path / "plain"),
    }
    plain = read(known / "classifier")
    plain.remember(None)
    save(plain, tmp_path / "plain")
    for error, (data, to) in faults.items():
        with pytest.raises(error):
            add_classes(data, to, out=tmp_path / "out", listener=ignore)
    with pytest.raises(WeightsError):
        add_classes(few, tmp_path / "nowhere", out=tmp_path / "out", listener=ignore)
    assert not (tmp_path / "out").exists()


def test_the_features_of_earlier_images_decide_with_those_of_the_new(known: Path, tmp_path: Path) -> None:
    """The head is the probe on what was learned from: kept features and new ones, those that are held out left out."""
    added = add_classes(photos(tmp_path / "new", "blue"), known, listener=ignore)
    grown = read(Path(added.path))
    every = grown.known_images
    assert isinstance(every, KnownImages)
    learned, ours = every.where(~every.held_out), grown.model.head.weight.detach().double()
    away = []
    for known_images in (learned, every):
        weight = fit_probe(known_images.features, known_images.labels, classes=3).weight
        away.append(float((ours / ours.norm() - weight / weight.norm()).norm()))
    assert away[0] < 0.001 < away[1]
