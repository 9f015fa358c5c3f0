"""Temperature and threshold: the formulas written anew, fitted on validation images alone, kept in the folder, and used."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import read, save
from vitral.classifier.metadata import Calibration
from vitral.deployment.calibrate import calibrate, fitted
from vitral.deployment.confidence import (
    Labels,
    Logits,
    accuracy_by_coverage,
    area_under_risk,
    at_coverages,
    fit_temperature,
    fit_threshold,
    negative_log_likelihood,
)
from vitral.errors import DataError, VitralError, WeightsError
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.seeds import generator


def noisy(images: int, classes: int, scale: float, seed: int = 0) -> tuple[Logits, Labels]:
    """Return logits that are sure of themselves by a scale, and labels that follow them without it."""
    rng = generator(seed, "test")
    logits = 2 * rng.standard_normal((images, classes))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(classes, p=share) for share in shares])
    return scale * logits, labels


def likelihood_by_hand(logits: Logits, labels: Labels, temperature: float) -> float:
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        total -= row[label] / temperature - math.log(sum(math.exp(value / temperature) for value in row))
    return total / len(labels)


def temperature_by_hand(logits: Logits, labels: Labels) -> float:
    """Search the logarithm of the temperature by thirds."""
    low, high = math.log(0.05), math.log(20)
    for _ in range(70):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if likelihood_by_hand(logits, labels, math.exp(left)) < likelihood_by_hand(logits, labels, math.exp(right)):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)


@every_case("scale", [0.3, 1.0, 4.0])
def test_the_temperature_has_the_least_likelihood(scale: float) -> None:
    logits, labels = noisy(150, 4, scale)
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(temperature_by_hand(logits, labels), rel=1e-6)
    assert found == pytest.approx(scale, rel=0.3)
    for temperature in (0.5, 1.0, found or 1.0):
        expected = likelihood_by_hand(logits, labels, temperature)
        assert negative_log_likelihood(logits, labels, temperature) == pytest.approx(expected, abs=1e-9)


def test_a_temperature_counts_where_it_helps_images_that_did_not_choose_it() -> None:
    kept = {}
    for scale in (1.0, 4.0):  # probabilities that mean what they say, and that are too sure
        samples = [noisy(30, 4, scale, seed=seed) for seed in range(20)]
        assert all(fit_temperature(*sample) not in (None, 1.0) for sample in samples)
        kept[scale] = sum(fitted({"validation": sample}, None, "data").changed for sample in samples)
    assert kept[1.0] <= 2
    assert kept[4.0] >= 19


def test_where_there_is_no_threshold_the_usual_one_is_proposed() -> None:
    sample = noisy(200, 3, 4.0)
    without, asked = (fitted({"validation": sample}, accuracy, "data") for accuracy in (None, 0.95))
    assert without.calibration.threshold is None
    assert asked.calibration.threshold is not None
    assert f"{asked.calibration.threshold:.1%}" in "".join(without.lines())
    assert "accuracy=0.95" in "".join(without.lines())


def test_images_that_tell_no_temperature_change_nothing() -> None:
    logits, _ = noisy(30, 3, 1.0)
    right = logits.argmax(axis=1)
    assert fit_temperature(logits, right) is None
    result = fitted({"validation": (logits, right)}, None, "data")
    assert result.calibration.temperature == 1.0
    assert "right" in result.remark
    assert fit_temperature(logits, (right + 1) % 3) == 20.0  # all wrong: the flattest
    assert fit_temperature(1e5 * np.eye(3), np.array([0, 1, 2])) is None


def test_huge_logits_do_not_overflow() -> None:
    logits = np.array([[1e4, 0.0], [0.0, 1e4], [1e4, 0.0]])
    assert fit_temperature(logits, np.array([0, 1, 1])) == 20.0
    assert negative_log_likelihood(logits, np.array([1, 1, 0])) == pytest.approx(1e4 / 3)


def test_accuracy_against_coverage_is_that_of_the_surest() -> None:
    confidences = np.array([0.9, 0.6, 0.6, 0.8, 0.3, 0.95])
    right = np.array([True, True, False, False, False, True])
    found = accuracy_by_coverage(confidences, right)
    assert [(one.threshold, one.images, one.accuracy) for one in found] == [
        (0.95, 1, 1.0),
        (0.9, 2, 1.0),
        (0.8, 3, 2 / 3),
        (0.6, 5, 3 / 5),
        (0.3, 6, 3 / 6),
    ]
    assert [one.coverage for one in at_coverages(confidences, right)] == [1, 1, 1, 5 / 6, 5 / 6, 3 / 6]
    # Of equally sure images the order counts for the area; a stable one keeps the images'.
    risks = [0, 0, 1 / 3, 1 / 4, 2 / 5, 3 / 6]
    assert area_under_risk(confidences, right) == pytest.approx(sum(risks) / 6, abs=1e-12)


def test_the_threshold_answers_as_many_as_it_may() -> None:
    rng = generator(4, "test")
    confidences = rng.random(200).round(2)  # with ties
    right = rng.random(200) < confidences
    for wanted in (0.5, 0.7, 0.9):
        found = fit_threshold(confidences, right, wanted)
        assert found is not None
        shares = {t: right[confidences >= t].mean() for t in np.unique(confidences).tolist()}
        assert found.threshold == min(t for t, share in shares.items() if share >= wanted)
        assert found.accuracy == pytest.approx(shares[found.threshold], abs=1e-12)
    assert fit_threshold(np.array([0.9, 0.8]), np.array([False, True]), 0.9) is None


def test_test_images_change_nothing_of_what_is_fitted() -> None:
    validation, one, other = noisy(200, 3, 4.0), noisy(400, 3, 4.0, seed=1), noisy(100, 3, 0.2, seed=2)
    results = [fitted({"validation": validation, "test": test}, 0.8, "data") for test in (one, other)]
    assert results[0].calibration == results[1].calibration
    assert results[0].effects["test"] != results[1].effects["test"]
    effect = results[0].effects["test"]
    assert effect.ece[1] < effect.ece[0]
    assert effect.nll[1] < effect.nll[0]
    assert effect.answered is not None
    assert effect.answered.accuracy is not None
    assert effect.answered.accuracy > effect.accuracy
    with pytest.raises(DataError, match="No threshold gives"):
        fitted({"validation": (np.eye(3)[[0, 1]], np.array([1, 0]))}, 0.9, "data")


def test_what_test_images_say_against_it_is_said() -> None:
    validation, good, bad = noisy(400, 3, 4.0), noisy(2000, 3, 4.0, seed=1), noisy(400, 3, 0.2, seed=2)
    worse = fitted({"validation": validation, "test": bad}, 0.9, "data")
    effect = worse.effects["test"]
    assert effect.nll[1] > effect.nll[0] or (effect.answered is not None and (effect.answered.accuracy or 0) < 0.9)
    assert any(line.startswith("On the test images") for line in worse.lines())
    assert not any(
        "probabilities worse" in line for line in fitted({"validation": validation, "test": good}, None, "data").lines()
    )
    unlucky = fitted({"validation": validation, "test": bad}, 0.99, "data").lines()
    assert any("misses its aim" in line and "99.0% were wanted" in line for line in unlucky)


@pytest.fixture
def classifier(tiny_config: ViTConfig) -> Classifier:
    model = build(tiny_config, seed=0)
    torch.nn.init.normal_(model.head.weight, std=3.0, generator=torch.Generator().manual_seed(0))
    return Classifier(model, PHOTOS.with_size(16), ("red", "green", "blue"))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = generator(4, "test")
    for split in ("train", "val", "test"):
        for name in ("red", "green", "blue"):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for index in range(8):
                pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / split / name / f"{index}.png")
    return tmp_path / "photos"


def test_a_temperature_of_one_changes_no_bit(classifier: Classifier) -> None:
    images = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    before = classifier.probabilities(images)
    classifier.calibration = Calibration(1.0, None, None, "data", 10)
    assert torch.equal(classifier.probabilities(images), before)
    classifier.calibration = Calibration(2.5, None, None, "data", 10)
    expected = (classifier.predictor.logits(images).double() / 2.5).softmax(dim=1)
    torch.testing.assert_close(classifier.probabilities(images).double(), expected, atol=1e-6, rtol=0)


def test_nothing_is_written_unless_that_is_said(classifier: Classifier, photos: Path, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = calibrate(folder, photos, accuracy=0.5, listener=ignore)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert "(95% interval" in result.lines()[-1]
    assert calibrate(folder, photos, accuracy=0.5, write=True, listener=ignore).calibration == result.calibration
    kept = read(folder)
    assert kept.calibration == result.calibration
    assert result.calibration.temperature != 1
    assert (folder / "weights.safetensors").read_bytes() == before["weights.safetensors"]
    assert "not sure" in (folder / "README.md").read_text()
    predictions = kept.predict(photos / "val", listener=ignore)
    threshold = result.calibration.threshold
    assert [one.sure for one in predictions] == [one.probability >= (threshold or 0) for one in predictions]
    answered = result.effects["validation"].answered
    assert answered is not None
    assert sum(one.sure is True for one in predictions) == answered.images
    assert predictions[0].to_json()["sure"] is predictions[0].sure
    again = calibrate(folder, photos, accuracy=0.5, listener=ignore)
    assert again.calibration == result.calibration, "a calibration that is kept is not fitted once more on top"
    for split, effect in again.effects.items():
        assert effect.nll == (result.effects[split].nll[1],) * 2, "before is what the folder does now"
        assert effect.ece == (result.effects[split].ece[1],) * 2
        assert effect.answered_before == effect.answered == result.effects[split].answered
    scored = vitral.evaluate(folder, photos, split="validation", listener=ignore)
    assert scored.scores()["nll"] == pytest.approx(result.effects["validation"].nll[1], abs=1e-6)
    assert scored.scores()["ece"] == pytest.approx(result.effects["validation"].ece[1], abs=1e-6)


def test_a_threshold_that_was_not_asked_for_is_kept(classifier: Classifier, photos: Path, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "mine")
    first = calibrate(folder, photos, accuracy=0.5, write=True, listener=ignore).calibration
    assert first.threshold is not None
    assert not calibrate(folder, photos, write=True, listener=ignore).changed
    assert read(folder).calibration == first


def test_a_threshold_follows_the_temperature_or_is_dropped_by_name() -> None:
    answers = {"validation": noisy(200, 3, 4.0)}
    present = Calibration(1.0, 0.9, 0.8, "older", 10)
    asked, left_out = fitted(answers, 0.8, "data"), fitted(answers, None, "data", present=present)
    assert left_out.calibration == asked.calibration
    by_hand = Calibration(1.0, 0.9, None, "older", 10)
    assert fitted(answers, None, "data", present=by_hand).calibration.threshold == 0.9
    wrong = {"validation": (np.eye(3)[[0, 1]], np.array([1, 0]))}
    dropped = fitted(wrong, None, "data", present=present)
    assert (dropped.calibration.threshold, dropped.calibration.wanted) == (None, None)
    assert "threshold of 90.0% that the classifier has is left out" in dropped.remark


def test_where_no_temperature_fits_nothing_changes(
    classifier: Classifier, tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, _ = noisy(30, 3, 1.0)
    answers = {"validation": (logits, logits.argmax(axis=1))}
    present = Calibration(2.5, 0.7, 0.9, "older", 10)
    result = fitted(answers, None, "data", present=present)
    assert (result.calibration, result.changed) == (present, False)
    assert result.effects["validation"].nll[0] == negative_log_likelihood(*answers["validation"], 2.5)
    asked = fitted(answers, 0.9, "data", present=present)
    assert (asked.calibration.temperature, asked.changed) == (2.5, True)
    assert asked.calibration.threshold != present.threshold
    classifier.calibration = present
    folder = save(classifier, tmp_path / "mine")
    monkeypatch.setattr("vitral.deployment.calibrate.fit_temperature", lambda logits, labels: None)
    before = (folder / "classifier.json").read_bytes()
    assert calibrate(folder, photos, write=True, listener=ignore).lines()[0].endswith("Nothing changes.")
    assert (folder / "classifier.json").read_bytes() == before


def test_what_was_fitted_at_another_size_is_left_behind(classifier: Classifier, tmp_path: Path) -> None:
    classifier.calibration = Calibration(2.0, 0.5, 0.9, "data", 10)
    folder = save(classifier, tmp_path / "mine")
    assert vitral.load(folder, image_size=16).calibration == classifier.calibration
    assert vitral.load(folder, image_size=32).calibration is None


def test_a_folder_of_an_earlier_version_has_no_calibration(classifier: Classifier, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "mine")
    assert "calibration" not in json.loads((folder / "classifier.json").read_text())
    assert read(folder).calibration is None
    assert "sure" not in read(folder).predict(np.zeros((16, 16, 3), np.uint8), listener=ignore)[0].to_json()


@pytest.mark.parametrize(
    "damage",
    [3, {}, {"temperature": -1}, {"temperature": 0.0}, {"temperature": "hot"}, {"threshold": 2.0}, {"more": 1}],
)
def test_a_damaged_calibration_is_refused(classifier: Classifier, tmp_path: Path, damage: object) -> None:
    folder = save(classifier, tmp_path / "mine")
    path = folder / "classifier.json"
    whole = {"temperature": 1.5, "threshold": None, "wanted": None, "data": "photos", "images": 3}
    kept = {**whole, **damage} if isinstance(damage, dict) and damage else damage
    path.write_text(json.dumps({**json.loads(path.read_text()), "calibration": kept}))
    with pytest.raises(WeightsError, match="classifier.json"):
        read(folder)
    with pytest.raises(VitralError):
        Calibration(math.nan, None, None, "", 0)


def test_what_cannot_be_calibrated_is_refused(classifier: Classifier, photos: Path, tmp_path: Path) -> None:
    for share in (0.0, 1.5, -1.0, math.nan):
        with pytest.raises(DataError, match="wanted accuracy"):
            calibrate(classifier, photos, accuracy=share, listener=ignore)
    with pytest.raises(WeightsError, match="Only a classifier folder"):
        calibrate(classifier, photos, write=True, listener=ignore)
    with pytest.raises(DataError, match="has no validation images"):
        calibrate(classifier, photos / "test", listener=ignore)
    several = Classifier(classifier.model, classifier.preprocessing, classifier.class_names, multi_label=True)
    with pytest.raises(DataError, match="Only classifiers of images that have one class each"):
        calibrate(several, photos, listener=ignore)
