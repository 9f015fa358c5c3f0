"""The joint's proof: a predictor that knows nothing of torch's modules, in one class, takes part in all that predicts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.data.generated import open_digits
from vitral.errors import ModelError
from vitral.evaluation.baselines import extract_features, score_baselines
from vitral.evaluation.evaluate import evaluate, predict_probabilities
from vitral.evaluation.probes import fit_probe
from vitral.explanation.explain import explain
from vitral.images.preprocessing import Preprocessing
from vitral.inference.predictor import Predictor
from vitral.tasks.metrics import Evaluation
from vitral.tasks.task import Task

SIZE = (8, 8)
DIGITS = tuple(str(digit) for digit in range(10))


class LinearInNumpy(Predictor):
    """A linear model on the pixels, computed by numpy in float64."""

    image_size = SIZE

    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        self.weight, self.bias = weight, bias
        self.calls: list[int] = []

    @property
    def num_classes(self) -> int:
        """The number of logits."""
        return len(self.bias)

    @property
    def num_parameters(self) -> int:
        """The number of learned values."""
        return self.weight.size + self.bias.size

    def describe(self) -> str:
        """Return what computes."""
        return "a linear model in numpy"

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits."""
        self.calls.append(len(images))
        return torch.from_numpy(self._pixels(images) @ self.weight.T + self.bias).float()

    def features(self, images: Tensor) -> Tensor:
        """Return the pixels."""
        self.calls.append(len(images))
        return torch.from_numpy(self._pixels(images)).float()

    def _pixels(self, images: Tensor) -> np.ndarray:
        return images.numpy().mean(axis=1).reshape(len(images), -1).astype(np.float64)


@pytest.fixture(scope="module")
def predictor() -> LinearInNumpy:
    """A linear model that has learned the digits."""
    untrained = LinearInNumpy(np.zeros((10, 64)), np.zeros(10))
    features, labels = extract_features(classifier_of(untrained), open_digits().splits["train"])
    probe = fit_probe(features, labels)
    weight, bias = probe.weight, probe.bias
    return LinearInNumpy(3 * weight.numpy(), 3 * bias.numpy())


def classifier_of(predictor: Predictor) -> Classifier:
    """Make a classifier of digits of it."""
    return Classifier(predictor, Preprocessing(image_size=SIZE), DIGITS)


def test_it_predicts(predictor: LinearInNumpy) -> None:
    classifier, source = classifier_of(predictor), open_digits().splits["test"]
    images = [source.image(index) for index in range(5)]
    predictor.calls.clear()
    predictions = classifier.predict(images, top=3, batch_size=2)
    assert predictor.calls == [2, 2, 1]
    logits = classifier(torch.stack([classifier.preprocessing(image) for image in images]))
    for prediction, row in zip(predictions, logits.softmax(dim=1), strict=True):
        order = row.argsort(descending=True)[:3].tolist()
        assert [label for label, _ in prediction.top] == [DIGITS[index] for index in order]
        assert prediction.probability == pytest.approx(float(row.max()), abs=1e-6)


def test_it_is_evaluated(predictor: LinearInNumpy) -> None:
    classifier, data = classifier_of(predictor), open_digits()
    evaluation = evaluate(classifier, data)
    assert isinstance(evaluation, Evaluation)
    assert evaluation.top1 > 0.85
    probabilities, labels = predict_probabilities(classifier, data.splits["test"])
    assert evaluation.top1 == float((probabilities.argmax(dim=1) == labels).double().mean())


def test_its_features_are_probed(predictor: LinearInNumpy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitral.evaluation.baselines.MOST_TRAINING", 300)
    monkeypatch.setattr("vitral.evaluation.baselines.MOST_TEST", 100)
    baselines = score_baselines(classifier_of(predictor), open_digits())
    assert baselines is not None
    assert baselines.knn is not None
    assert baselines.linear_probe is not None
    assert min(baselines.knn, baselines.linear_probe) > 0.8


def test_it_is_shown(predictor: LinearInNumpy) -> None:
    classifier = classifier_of(predictor)
    assert repr(classifier).startswith("Classifier: a linear model in numpy, images of 8x8 pixels, 10 classes")
    assert "a linear model in numpy, 650 parameters" in classifier._repr_html_()


def test_what_it_cannot_do_is_refused_in_one_line(predictor: LinearInNumpy, tmp_path: Path) -> None:
    classifier, image = classifier_of(predictor), open_digits().splits["test"].image(0)
    with pytest.raises(ModelError, match="a linear model in numpy has neither attention"):
        explain(classifier, image)
    with pytest.raises(ModelError, match="a linear model in numpy has no attention"):
        predictor.attention(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ModelError, match="does not run in torch"):
        save(classifier, tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_names_and_size_must_fit_it(predictor: LinearInNumpy) -> None:
    with pytest.raises(ModelError, match="10 classes, but 2 names"):
        Classifier(predictor, Preprocessing(image_size=SIZE), ["a", "b"])
    with pytest.raises(ModelError, match="pixels, its preprocessing"):
        Classifier(predictor, Preprocessing(image_size=(16, 16)), DIGITS)


def test_a_runtime_may_answer_with_probabilities_itself() -> None:
    class Sure(LinearInNumpy):
        """Holds its last step itself."""

        def probabilities(self, images: Tensor, task: Task) -> Tensor:
            """Return the first class."""
            return torch.eye(10)[:1].repeat(len(images), 1)

    classifier, data = classifier_of(Sure(np.zeros((10, 64)), np.zeros(10))), open_digits()
    assert {prediction.label for prediction in classifier.predict(data.splits["test"].image(0))} == {"0"}
    evaluation = evaluate(classifier, data)
    assert evaluation.headline() == float((data.splits["test"].labels() == 0).mean())
