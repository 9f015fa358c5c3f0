"""Classes that are added without training: what the new classifier answers, and what it says that this costs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.nn import functional

import vitral
import vitral.deployment.add_classes as module
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import read, save
from vitral.classifier.metadata import Calibration, Provenance
from vitral.classifier.novelty import KnownImages
from vitral.cli.main import main
from vitral.deployment.add_classes import add_classes
from vitral.errors import DataError, StorageError, VitralError, WeightsError
from vitral.evaluation.heads import fit_head
from vitral.evaluation.probes import fit_probe
from vitral.evaluation.unknown_classes import remembered
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.pixels import PixelsConfig

NOISE = 60.0  # that is added to digits of up to 240
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
    fit_probe(features, labels).become_head(model)
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


@pytest.fixture
def of_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes pixels for the features of a network, on which another head is fitted."""
    monkeypatch.setattr(module, "PixelsConfig", type("Other", (), {}))


def digits(folder: Path, classes: range, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Write noisy digits of some classes as photos; return them as a network takes them, and their classes."""
    data, random, images, labels = load_digits(), np.random.default_rng(begin), [], []
    for name in classes:
        (folder / str(name)).mkdir(parents=True)
        for number, image in enumerate(data.images[data.target == name][begin:end]):
            noisy = np.clip(image * 15 + random.normal(0, NOISE, (8, 8)), 0, 255).astype(np.uint8)
            pixels = np.repeat(noisy[:, :, None], 3, axis=2)
            Image.fromarray(pixels).save(folder / str(name) / f"{number}.png")
            images.append(PHOTOS.with_size(8)(pixels))
            labels.append(name)
    return torch.stack(images), torch.tensor(labels)


def of_digits(folder: Path, *, held_out: int = 20, trained: bool = False) -> Classifier:
    """A classifier of five digits, whose head is fitted on all 105 photos that it remembers."""
    model = build(PixelsConfig(image_size=(8, 8), num_classes=5, side=8), seed=0)
    provenance = Provenance(training={"steps": 9, "choice": {"sentence": "Of old."}} if trained else {})
    made = Classifier(model, PHOTOS.with_size(8), tuple("01234"), provenance=provenance)
    images, labels = digits(folder / "old", range(5), 0, 21)
    features = made.predictor.features(images)
    fit_head(features, labels).become_head(model)
    known = remembered(features, labels, seed=0)
    known = replace(known, held_out=known.held_out & (known.held_out.cumsum(0) <= held_out))
    made.remember(known)
    save(made, folder / "run" / "classifier")
    return made


def likelihood(classifier: Classifier, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """The negative log-likelihood and the accuracy."""
    with torch.no_grad():
        logits = classifier.model.head(classifier.predictor.features(images)).double()
    return float(functional.cross_entropy(logits, labels)), float((logits.argmax(dim=1) == labels).double().mean())


@pytest.mark.parametrize(
    ("network", "worse"), [(True, 0.15), (False, 0.2)]
)  # 0.05 and 0.17; 0.25 where nothing keeps it from being sure
def test_with_a_class_more_a_classifier_is_as_unsure_of_new_photos_as_it_was(
    request: pytest.FixtureRequest, tmp_path: Path, network: bool, worse: float
) -> None:
    if network:
        request.getfixturevalue("of_network")
    old = of_digits(tmp_path)
    images, labels = digits(tmp_path / "test", range(5), 50, 150)
    digits(tmp_path / "new", range(5, 6), 0, 12)
    grown = read(Path(add_classes(tmp_path / "new", tmp_path / "run", listener=ignore).path))
    before, right = likelihood(old, images, labels)
    after, still_right = likelihood(grown, images, labels)
    assert after < min(before + worse, np.log(6))
    assert still_right > right - 0.02


@pytest.mark.usefixtures("of_network")
@pytest.mark.parametrize("trained", [False, True])
def test_earlier_photos_are_judged_by_a_head_that_did_not_learn_from_them(tmp_path: Path, trained: bool) -> None:
    old = of_digits(tmp_path, trained=trained)
    digits(tmp_path / "new", range(5, 6), 0, 12)
    added = add_classes(tmp_path / "new", tmp_path / "run", listener=ignore)
    known = old.known_images
    assert known is not None
    judged, learned = known.where(known.held_out), known.where(~known.held_out)
    with torch.no_grad():
        its_own = float((old.model.head(judged.features).argmax(dim=1) == judged.labels).double().mean())
    without = fit_head(learned.features, learned.labels).accuracy(judged.features, judged.labels)
    assert without < its_own
    assert added.parts[0].before == (its_own if trained else without)
    assert ("a head fitted without them" in added.note) is not trained
    grown = read(Path(added.path))
    every = grown.known_images
    assert every is not None
    assert int(every.held_out.sum()) == sum(part.images for part in added.parts)
    right = sum((part.after or 0) * part.images for part in added.parts) / int(every.held_out.sum())
    assert grown.provenance.scores == {"validation/top1": pytest.approx(right)}
    assert "choice" not in grown.provenance.training


@pytest.mark.usefixtures("of_network")
def test_nothing_is_said_of_too_few_earlier_photos(tmp_path: Path) -> None:
    of_digits(tmp_path, held_out=4)
    digits(tmp_path / "new", range(5, 6), 0, 12)
    added = add_classes(tmp_path / "new", tmp_path / "run", listener=ignore)
    assert [(part.images, part.before, part.after) for part in added.parts][0] == (4, None, None)
    assert "Too few" in added.tables()[0].note
    assert read(Path(added.path)).provenance.scores == {}


def test_a_path_where_nothing_is_is_told_with_the_nearest_name(
    known: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = photos(tmp_path / "new", "blue")
    assert main(["add", str(new), "--to", str(known.with_name("rum"))]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"vitral: There is no file or folder '{known.with_name('rum')}'. Did you mean '{known}/'?"
    assert main(["add", str(new), "--to", "vit-b16"]) == 1
    assert "Only a classifier folder" in capsys.readouterr().err
