"""Wrong labels are found by confident learning on features, whatever the network learned of them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from tests.cases import every_case
from vitral.checks.check_data import check_data
from vitral.checks.suspects import confidently_wrong, left_out
from vitral.classifier.classifier import Classifier
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import create_model
from vitral.report.pages import write_check_page


def digits(images: int, planted: int, seed: int) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Handwritten digits as features of 64 pixels, their labels, and which of those were made wrong."""
    rng = np.random.default_rng(seed)
    every = load_digits()
    chosen = rng.permutation(len(every.target))[:images]
    labels = every.target[chosen].astype(np.int64)
    wrong = rng.choice(images, planted, replace=False)
    labels[wrong] = (labels[wrong] + rng.integers(1, 10, planted)) % 10
    return torch.from_numpy(every.data[chosen]).float(), labels, wrong


def counted(probabilities: np.ndarray, labels: np.ndarray) -> list[int]:
    """The images off the diagonal of the confident joint, image by image as arXiv 1911.00068, section 3.1, defines it.

    As cleanlab, it leaves out those whose label is the most probable class all the same.
    """
    pairs = list(zip(probabilities, labels.tolist(), strict=True))
    names = range(probabilities.shape[1])
    thresholds = [np.mean([row[name] for row, label in pairs if label == name]) for name in names]
    found = []
    for index, (row, label) in enumerate(pairs):
        confident = [name for name in names if row[name] >= thresholds[name]]
        guess = max(confident, key=lambda name: row[name]) if confident else label
        if guess != label and row[guess] > row[label]:
            found.append(index)
    return found


# By cleanlab 2.9.0: num_label_issues of these probabilities, and the ranks of the planted labels by their self-confidence.
CLEANLAB = {
    0: (7, [1, 2, 4, 5]),
    1: (4, [1, 2, 5, 11]),
    2: (9, [1, 2, 3, 4]),
    3: (7, [1, 2, 3, 4]),
    7: (10, [1, 2, 3, 10]),
}


@every_case("seed", CLEANLAB)
def test_labels_are_counted_and_ranked_as_by_cleanlab(seed: int) -> None:
    features, labels, wrong = digits(278, 4, seed)
    probabilities = left_out(features, labels, np.arange(278))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    doubtful = confidently_wrong(probabilities, labels)
    assert np.flatnonzero(doubtful).tolist() == counted(probabilities, labels)
    order = probabilities[np.arange(278), labels].argsort().tolist()
    assert (int(doubtful.sum()), sorted(order.index(image) + 1 for image in wrong)) == CLEANLAB[seed]


def test_copies_of_an_image_do_not_vouch_for_each_other() -> None:
    features, labels, wrong = digits(278, 4, 0)
    copies = np.concatenate([np.arange(278), np.repeat(wrong[:1], 9)])
    first = np.concatenate([np.arange(278), np.repeat(wrong[:1], 9)])
    probabilities = left_out(features[copies], labels[copies], first)
    alone = left_out(features[copies], labels[copies], np.arange(len(copies)))
    assert alone[278:, labels[wrong[0]]].mean() > 2 * probabilities[278:, labels[wrong[0]]].mean()


@pytest.fixture
def shades(tmp_path: Path) -> Path:
    """Three classes of images of one colour each, in two splits, with four wrong labels and copies of one of them."""
    rng = np.random.default_rng(0)
    colours = {"red": (200, 60, 60), "green": (60, 200, 60), "blue": (60, 60, 200)}
    for split, images in (("train", 40), ("val", 20)):
        for name, colour in colours.items():
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(images):
                pixels = np.clip(np.array(colour) + rng.normal(0, 50, 3) + rng.normal(0, 20, (32, 32, 3)), 0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / split / name / f"{number}.png")
    for number, (label, name) in enumerate((("red", "green"), ("green", "blue"), ("blue", "red"))):
        (tmp_path / "train" / name / f"{number}.png").rename(tmp_path / "train" / label / f"wrong {number}.png")
    (tmp_path / "val" / "red" / "0.png").rename(tmp_path / "val" / "blue" / "wrong 3.png")
    return tmp_path


@pytest.fixture
def network() -> Classifier:
    """A network that was trained on nothing, and knows other classes; its features tell colours apart."""
    model = create_model("vit-mu16-gap", num_classes=2, image_size=32).eval()
    return Classifier(model, PHOTOS.with_size(32), ["cat", "dog"])


def test_four_planted_labels_are_found_first_by_a_network_of_other_classes(
    shades: Path, network: Classifier, tmp_path: Path
) -> None:
    found = check_data(shades, classifier=network, listener=ignore)
    assert found.doubts is not None
    first = [suspect for suspect in found.suspects[:6] if "wrong" in suspect.name]
    assert sorted(suspect.label for suspect in first) == ["blue", "blue", "green", "red"]
    assert {suspect.split for suspect in first} == {"train", "validation"}
    assert found.doubts.expected in range(2, 13)
    assert (found.doubts.images, found.doubts.accuracy > 0.85) == (180, True)
    assert f"{found.doubts.expected} labels are possibly wrong" in found.problems()
    own = [suspect.own_probability for suspect in found.suspects]
    assert own == sorted(own)
    described = found.to_json()
    assert described["doubts"] == {"images": 180, "accuracy": found.doubts.accuracy, "expected": found.doubts.expected}
    assert len(described["suspects"]) == len(own)
    json.dumps(described)
    write_check_page(found, [], tmp_path / "check.html")
    page = (tmp_path / "check.html").read_text(encoding="utf-8")
    assert found.doubts.sentence().split(",")[0] in page
    for suspect in first:
        assert (suspect.split, suspect.name) in found.thumbnails


def test_features_that_are_too_weak_count_nothing(shades: Path, network: Classifier) -> None:
    rng = np.random.default_rng(0)
    for path in [*shades.rglob("*.png")]:
        Image.fromarray(rng.integers(0, 256, (32, 32, 3)).astype(np.uint8)).save(path)
    found = check_data(shades, classifier=network, listener=ignore)
    assert found.doubts is not None
    assert found.doubts.expected is None
    assert len(found.suspects) == 20
    assert "cannot be said" in found.doubts.sentence()
    assert f"{found.doubts.accuracy:.1%}" in found.doubts.sentence()
    assert not any("wrong" in problem for problem in found.problems())


def test_what_cannot_be_judged_is_said(
    shades: Path, network: Classifier, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for path in [*(shades / "train" / "red").glob("[1-9]*.png"), *(shades / "val" / "red").iterdir()]:
        path.unlink()
    found = check_data(shades, classifier=network, listener=ignore)
    assert found.doubts is not None
    assert "red" not in {suspect.label for suspect in found.suspects}
    rows = "".join(f"train/blue/{number}.png,{'a|b' if number % 2 else 'a'}\n" for number in range(3, 13))
    (shades / "several.csv").write_text("path,labels\n" + rows)
    none = check_data(shades / "several.csv", classifier=network, listener=ignore)
    assert none.doubts is None
    assert any("No label was doubted" in note for note in none.notes)
