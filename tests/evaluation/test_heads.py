"""The head on directions, held to least squares that is solved anew without each image, and to what few or odd images allow."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as PlainRidge
from torch.nn import functional

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.evaluation import heads
from vitral.evaluation.heads import fit_head


def features_of(labels: torch.Tensor, width: int, seed: int = 0, *, noise: float = 1.0) -> torch.Tensor:
    """Features after a ReLU: a few tell the class, the others are rare and weak; how long they are tells nothing."""
    generator = torch.Generator().manual_seed(seed)
    strength = torch.logspace(0.5, -1.5, width)
    centres = torch.randn(int(labels.max()) + 1, width, generator=torch.Generator().manual_seed(99))
    spread = noise * torch.randn(len(labels), width, generator=generator)
    return ((centres[labels] + spread) * strength).relu() * (
        0.5 + torch.rand(len(labels), 1, generator=generator)
    ) + 0.01


@every_case("count", [14, 60])  # for which features themselves are decomposed, or their products
@every_case("weights", [None, torch.tensor([0.5, 1.0, 4.0])])
def test_the_layer_and_what_it_says_without_an_image(count: int, weights: torch.Tensor | None) -> None:
    labels = torch.arange(count) % 3
    features, penalty = features_of(labels, 5).double(), 8.0
    fit = heads._Directions(features, labels, 3, weights)
    counts = np.ones(count) if weights is None else weights[labels].numpy()
    lengths = features.norm(dim=1, keepdim=True)
    directions = features / lengths
    scale = (directions - directions.mean(0)).square().mean().sqrt()

    def design(inputs: torch.Tensor) -> np.ndarray:
        return functional.pad((inputs - directions.mean(0)) / scale, (0, 1), value=100.0).numpy()

    targets = 2.0 * functional.one_hot(labels).numpy() - 1.0
    seen, asked = design(directions), design(features / lengths.mean())
    ridge = PlainRidge(alpha=penalty, fit_intercept=False)
    weight, bias = fit.layer(penalty)
    np.testing.assert_allclose(features @ weight.T + bias, ridge.fit(seen, targets, counts).predict(asked), atol=1e-6)
    expected = [
        ridge.fit(*(np.delete(each, index, 0) for each in (seen, targets, counts))).predict(asked[index : index + 1])[0]
        for index in range(count)
    ]
    np.testing.assert_allclose(fit.left_out(penalty), expected, atol=1e-6)


def test_logits_are_chosen_by_the_likelihood_of_what_is_said_without_each_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = torch.arange(90) % 3
    features = features_of(labels, 12, noise=2.0)
    chosen = float(functional.cross_entropy(fit_head(features, labels).left_out, labels, label_smoothing=1 / 91))
    fit = heads._Directions(features.double(), labels, 3, None)
    each = [
        float(functional.cross_entropy(2.0 ** (quarter / 4) * scores, labels, label_smoothing=1 / 91))
        for scores in map(fit.left_out, heads.SWEPT)
        for quarter in heads.QUARTERS
    ]
    assert 0.1 < chosen < 1.0
    assert chosen == pytest.approx(min(each), abs=1e-9)


def test_how_long_features_are_changes_nothing_but_the_length_that_is_taken_for_granted() -> None:
    labels = torch.arange(30) % 3
    features = features_of(labels, 12).double()
    longer = features * torch.linspace(0.2, 4, 30)[:, None]
    (weight, bias), (other, same) = (heads._Directions(each, labels, 3, None).layer(8.0) for each in (features, longer))
    torch.testing.assert_close(weight * features.norm(dim=1).mean(), other * longer.norm(dim=1).mean())
    torch.testing.assert_close(bias, same)


def test_of_one_image_a_class_it_is_neither_sure_nor_clueless() -> None:
    labels = torch.arange(6)
    head = fit_head(features_of(labels, 40, 1), labels)
    test = features_of(labels.repeat(50), 40, 2).double()
    sure = torch.softmax(test @ head.weight.T + head.bias, dim=1).max(dim=1).values
    assert 0.3 < float(sure.mean()) < 0.95


def test_probabilities_are_right_as_often_as_they_say() -> None:
    labels, test_labels = torch.arange(300) % 6, torch.arange(3000) % 6
    train, test = features_of(labels, 40, 1, noise=2.0), features_of(test_labels, 40, 2, noise=2.0)
    head = fit_head(train, labels)
    sure, predicted = torch.softmax(test.double() @ head.weight.T + head.bias, dim=1).max(dim=1)
    accuracy = float((predicted == test_labels).double().mean())
    assert 0.6 < accuracy < 0.97
    assert float(sure.mean()) == pytest.approx(accuracy, abs=0.05)


ODD = {
    "all alike": (torch.ones(6, 4), torch.arange(6) % 2, 2),
    "no features at all": (torch.zeros(6, 4), torch.arange(6) % 2, 2),
    "one image a class": (torch.eye(5), torch.arange(5), 5),
    "one class of one image": (torch.eye(7)[:, :4] + 1, torch.tensor([0, 0, 0, 1, 1, 1, 2]), 3),
    "a class without images": (torch.eye(4), torch.tensor([0, 0, 2, 2]), 4),
    "a thousand classes": (
        torch.rand(1200, 8, generator=torch.Generator().manual_seed(0)),
        torch.arange(1200) % 1000,
        1000,
    ),
}


@every_case("name", ODD)
def test_odd_images_have_a_head_all_the_same(name: str) -> None:
    features, labels, classes = ODD[name]
    head = fit_head(features, labels, classes=classes)
    probabilities = torch.softmax(features.double() @ head.weight.T + head.bias, dim=1)
    assert head.weight.shape == (classes, features.shape[1])
    assert head.left_out.isfinite().all()
    assert probabilities.isfinite().all()
    if name in ("all alike", "no features at all"):
        torch.testing.assert_close(probabilities, torch.full((6, 2), 0.5).double(), atol=0.01, rtol=0)


@every_case("broken", [math.nan, math.inf])
def test_features_that_are_no_numbers_are_refused_in_one_line(broken: float) -> None:
    features = torch.rand(6, 8, generator=torch.Generator().manual_seed(0))
    features[1, 2] = broken
    with pytest.raises(ModelError, match="no finite numbers for these images") as caught:
        fit_head(features, torch.arange(6) % 2)
    assert "\n" not in str(caught.value)


@every_case("network", ["lite0", "vits14", "vits14 and patches"])
def test_in_the_mean_no_measured_head_is_surely_better(network: str) -> None:
    with (Path(__file__).parents[2] / "docs" / "heads.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["network"] == network]
    mean = {
        head: sum(float(row["accuracy"]) for row in rows if row["head"] == head)
        for head in {row["head"] for row in rows}
    }
    each = len(rows) / len(mean)
    assert mean["directions"] > max(mean["ridge"], mean["scikit-learn"])
    assert mean["directions"] > max(mean.values()) - 0.01 * each
