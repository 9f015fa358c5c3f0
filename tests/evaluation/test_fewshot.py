"""Few-shot, neighbours and the linear probe on frozen features, beside references written from their formulas."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import every_case
from tests.data.published.written import cifar10_files, write
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.cli.main import main
from vitral.data.generated import open_digits
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.errors import DataError, ModelError
from vitral.evaluation.frozen import parse_ways, score_frozen
from vitral.evaluation.probes import SHOTS, Draws, score_few_shot
from vitral.events import Event, Progress
from vitral.images.preprocessing import Preprocessing
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig
from vitral.tasks.shown import percent


@pytest.fixture
def classifier(tiny_config: ViTConfig) -> Classifier:
    """An untrained network whose classes are none of the data's."""
    model = ViT(tiny_config)
    model.init_weights(0)
    model.replace_head(2)
    return Classifier(model, Preprocessing(image_size=(16, 16)), ["cat", "dog"])


def features_of(classifier: Classifier, source: Source) -> np.ndarray:
    images = torch.stack([classifier.preprocessing(source.image(index)) for index in range(len(source))])
    return classifier.features(images).detach().double().numpy()


def few_shot_reference(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, truth: np.ndarray, shots: int, seed: int, classes: int
) -> float:
    """The evaluator of the authors, from the description of its arithmetic: (X'X + 2^10 I)^-1 X'Y of whitened features."""
    rng = np.random.default_rng(seed)
    indices = np.concatenate([rng.permutation(np.where(labels == label)[0])[:shots] for label in range(classes)])
    x, y = train[indices], labels[indices]
    mean, std = x.mean(axis=0), x.std(axis=0) + 1e-5
    bias = np.full((len(x), 1), 100.0)
    x = np.concatenate([(x - mean) / std, bias], axis=1)
    targets = 2.0 * np.eye(classes)[y] - 1.0
    weights = np.linalg.solve(x.T @ x + 1024.0 * np.eye(x.shape[1]), x.T @ targets)
    scored = np.concatenate([(test - mean) / std, np.full((len(test), 1), 100.0)], axis=1)
    return float(((scored @ weights).argmax(axis=1) == truth).mean())


def knn_reference(train: np.ndarray, labels: np.ndarray, test: np.ndarray, truth: np.ndarray, classes: int) -> float:
    """The vote of the 20 training images of the largest cosine c, each with the weight (1 + c) / 2."""
    right = 0
    for query, label in zip(test, truth, strict=True):
        cosines = np.array([query @ image / np.linalg.norm(query) / np.linalg.norm(image) for image in train])
        votes = np.zeros(classes)
        for index in np.argsort(-cosines)[:20]:
            votes[labels[index]] += (1 + cosines[index]) / 2
        right += int(votes.argmax() == label)
    return right / len(truth)


def linear_reference(train: np.ndarray, labels: np.ndarray, test: np.ndarray, truth: np.ndarray, classes: int) -> float:
    """Ridge regression with the penalty, of 2^-10 to 2^19, of the best accuracy on images left out, the largest of equals."""
    mean, std = train.mean(axis=0), train.std(axis=0) + 1e-5
    x = np.concatenate([(train - mean) / std, np.full((len(train), 1), 100.0)], axis=1)
    targets = 2.0 * np.eye(classes)[labels] - 1.0
    best, weights = -1.0, np.zeros((x.shape[1], classes))
    for exponent in range(19, -11, -1):
        inverse = np.linalg.inv(x.T @ x + 2.0**exponent * np.eye(x.shape[1]))
        fitted = inverse @ x.T @ targets
        hat = np.einsum("ij,jk,ik->i", x, inverse, x)[:, None]
        accuracy = float((((x @ fitted - hat * targets) / (1 - hat)).argmax(axis=1) == labels).mean())
        if accuracy > best:
            best, weights = accuracy, fitted
    scored = np.concatenate([(test - mean) / std, np.full((len(test), 1), 100.0)], axis=1)
    return float(((scored @ weights).argmax(axis=1) == truth).mean())


def test_every_way_equals_its_formula(classifier: Classifier) -> None:
    data = open_digits()
    scores = score_frozen(classifier, data, listener=lambda event: None)
    train, test = data.splits["train"], data.splits["test"]
    known, truth = features_of(classifier, train), test.labels()
    parts = (known, train.labels(), features_of(classifier, test), truth)
    assert [few.shots for few in scores.few_shot] == list(SHOTS) == [1, 5, 10, 25]
    for few in scores.few_shot:
        expected = [few_shot_reference(*parts, few.shots, seed, 10) for seed in range(3)]
        assert list(few.accuracies) == pytest.approx(expected, abs=1e-6)
        assert few.mean == pytest.approx(np.mean(expected), abs=1e-6)
        assert few.deviation == pytest.approx(np.std(expected, ddof=1), abs=1e-6)
        assert few.images == 10 * few.shots
    assert scores.few_shot[0].mean < scores.few_shot[3].mean
    assert scores.knn == pytest.approx(knn_reference(*parts, 10), abs=1e-6)
    assert scores.linear == pytest.approx(linear_reference(*parts, 10), abs=1e-6)


@every_case("width", [4, 60])  # more images than features, and fewer
def test_the_scores_of_the_fits_are_the_formulas_too(width: int) -> None:
    # Accuracies alone could agree by chance where few images tell them apart.
    rng = np.random.default_rng(width)
    labels = rng.permutation(np.arange(40) % 4)
    train = rng.standard_normal((40, width)) + labels[:, None] * 0.5
    test, truth = rng.standard_normal((3000, width)) + 0.7, rng.integers(0, 4, 3000)
    draws = Draws.of(labels, 4, shots=(2, 7), draws=4)
    indices = draws.union()
    scored = score_few_shot(
        draws,
        indices,
        torch.from_numpy(train[indices]),
        torch.from_numpy(labels[indices]),
        torch.from_numpy(test),
        torch.from_numpy(truth),
        classes=4,
    )
    for few in scored:
        expected = [few_shot_reference(train, labels, test, truth, few.shots, seed, 4) for seed in range(4)]
        assert list(few.accuracies) == pytest.approx(expected, abs=1e-6)


def test_few_shot_alone_computes_the_features_of_the_drawn_images_alone(classifier: Classifier) -> None:
    data = open_digits()
    events: list[Event] = []
    alone = score_frozen(classifier, data, ways=["few-shot"], shots=(1, 2), listener=events.append)
    totals = [event.total for event in events if isinstance(event, Progress)]
    assert max(total for total in totals if total) == len(data.splits["test"])
    assert min(total for total in totals if total) <= 3 * 2 * 10
    both = score_frozen(classifier, data, ways=["knn", "few-shot"], shots=(1, 2), listener=lambda event: None)
    assert both.few_shot == alone.few_shot
    assert alone.knn is alone.linear is both.linear is None


def test_a_class_of_fewer_images_gives_all_that_it_has() -> None:
    draws = Draws.of(np.array([0, 1, 0, 1, 1, 0, 1, 2]), 4, shots=(1, 3), draws=2)
    assert [len(indices) for indices in draws.images[3]] == [7, 7]  # of the third class one, of the fourth none
    assert draws.union().tolist() == sorted(set(np.concatenate([*draws.images[1], *draws.images[3]]).tolist()))
    for one, three in zip(draws.images[1], draws.images[3], strict=True):
        assert set(one) <= set(three)  # as many shots as there are, the first of the same order
    for wrong in ({"shots": (0,)}, {"shots": ()}, {"draws": 0}):
        with pytest.raises(DataError, match="at least one image a class and one draw"):
            Draws.of(np.array([0, 1]), 2, **wrong)


def test_no_more_images_a_class_are_spoken_of_than_there_are(classifier: Classifier, tmp_path: Path) -> None:
    spec = f"cifar10:{write(tmp_path, cifar10_files(10))}"  # five of each class
    given: dict[str, Any] = {"ways": "few-shot", "listener": lambda event: None}
    scores = score_frozen(classifier, spec, **given)
    assert [few.shots for few in scores.few_shot] == [1, 5]
    few, whole = (row[1] for row in scores.tables()[0].rows)
    assert "±" in few
    assert "±" not in whole  # all draws are the same images
    with pytest.raises(DataError, match="has 6 photos to learn from; the largest has 5"):
        score_frozen(classifier, spec, shots=(6, 1000), **given)


def test_all_of_a_published_training_split_may_be_drawn(classifier: Classifier, tmp_path: Path) -> None:
    spec = f"cifar10:{write(tmp_path, cifar10_files(10))}"
    assert len(open_data(spec).splits["train"]) == 40
    scores = score_frozen(classifier, spec, ways=["few-shot"], shots=(5,), draws=1, listener=lambda event: None)
    assert (scores.num_train, scores.num_test, scores.split) == (50, 10, "test")
    assert scores.few_shot[0].images == 50
    assert scores.to_json()["few_shot"][0]["deviation"] is None  # of one draw there is none
    assert scores.tables()[0].rows == (("5 photos a class", percent(scores.few_shot[0].mean), "50"),)


def test_the_command_prints_what_python_gives(
    classifier: Classifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(classifier, tmp_path / "classifier")
    command = ["evaluate", "--data", "digits", "--classifier", str(tmp_path / "classifier"), "--frozen"]
    assert main([*command, "few-shot,knn,linear", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    scores = score_frozen(classifier, "digits", listener=lambda event: None)
    assert printed == scores.to_json()
    assert set(printed["few_shot"][1]) == {"shots", "mean", "deviation", "accuracies", "images"}
    assert main([*command, "few-shot,linear"]) == 0
    out = capsys.readouterr().out
    assert f"{100 * scores.few_shot[2].mean:.1f}% ± {100 * scores.few_shot[2].deviation:.1f}" in out
    assert "10 photos a class" in out
    assert "nearest neighbours" not in out


def test_what_cannot_be_scored_is_one_line(classifier: Classifier, tmp_path: Path) -> None:
    assert parse_ways("knn, few-shot,knn") == ("knn", "few-shot")
    with pytest.raises(DataError, match="not 'knm'. Did you mean 'knn'"):
        parse_ways("few-shot,knm")
    with pytest.raises(DataError, match="no split 'train' to score on"):
        score_frozen(classifier, "digits", split="train", listener=lambda event: None)
    with pytest.raises(DataError, match="is endless"):
        score_frozen(classifier, "visualatom-mini", listener=lambda event: None)
    digits = open_digits()
    only = DataSet("digits", digits.class_names, {"test": digits.splits["test"]}, digits.augmentation)
    with pytest.raises(DataError, match="beside its training images"):
        score_frozen(classifier, only, listener=lambda event: None)
    next(iter(classifier.model.parameters())).data.fill_(torch.nan)
    with pytest.raises(ModelError, match="damaged"):
        score_frozen(classifier, digits, ways=["few-shot"], listener=lambda event: None)


def test_a_report_of_frozen_features_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--data", "digits", "--frozen", "knn", "--report", str(tmp_path / "page.html")]) == 2
    assert "leave it out with --frozen" in capsys.readouterr().err
