"""Several right labels and one answer, held to the formulas of those who reassessed ImageNet."""

import json

import numpy as np
import pytest
import torch

from vitral.errors import DataError, ModelError
from vitral.tasks.any_right_label import ANY_RIGHT_LABEL
from vitral.tasks.task import Label, classes_of

NAMES = ("ant", "bee", "cat", "dog", "elk")


def some(count: int) -> tuple[torch.Tensor, list[Label]]:
    rng = np.random.default_rng(0)
    probabilities = torch.from_numpy(rng.dirichlet(np.ones(5), count)).float()
    labels: list[Label] = [
        tuple(sorted(rng.choice(5, rng.integers(1, 4), replace=False).tolist())) for _ in range(count)
    ]
    return probabilities, labels


def test_any_right_label_counts_once() -> None:
    probabilities, labels = some(200)
    scores = ANY_RIGHT_LABEL.score(probabilities, ANY_RIGHT_LABEL.encode(labels, 5), class_names=NAMES, describe=str)
    # As the README of the reassessed labels computes it: whether each prediction is in the image's list.
    expected = [int(row.argmax()) in classes_of(right) for row, right in zip(probabilities, labels, strict=True)]
    assert scores.top1 == pytest.approx(np.mean(expected), abs=1e-12)
    assert 0.2 < scores.top1 < 0.6
    assert scores.top1_interval[0] < scores.top1 < scores.top1_interval[1]
    assert (scores.num_examples, scores.labels) == (200, sum(len(classes_of(right)) for right in labels))
    wrong = [index for index, hit in enumerate(expected) if not hit]
    confidence = probabilities.max(dim=1).values
    assert [mistake.index for mistake in scores.mistakes] == sorted(wrong, key=lambda index: -confidence[index])[:50]
    first = scores.mistakes[0]
    assert first.truth == " or ".join(NAMES[label] for label in classes_of(labels[first.index]))
    assert first.predicted == NAMES[int(probabilities[first.index].argmax())]


def test_scores_survive_a_file() -> None:
    probabilities, labels = some(20)
    scores = ANY_RIGHT_LABEL.score(probabilities, ANY_RIGHT_LABEL.encode(labels, 5), class_names=NAMES, describe=str)
    assert ANY_RIGHT_LABEL.read(json.loads(json.dumps(scores.to_json()))) == scores


def test_the_loss_is_of_the_right_classes_together() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]])
    targets = ANY_RIGHT_LABEL.encode([(0, 1), (0,)], 3)
    shares = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    expected = -(torch.log(shares[0, 0] + shares[0, 1]) + torch.log(shares[1, 0])) / 2
    torch.testing.assert_close(ANY_RIGHT_LABEL.loss(logits, targets), expected)
    assert ANY_RIGHT_LABEL.right(logits, targets).tolist() == [True, False]
    figures = ANY_RIGHT_LABEL.validate(shares, targets)
    assert figures == {"accuracy": 0.5, "loss": pytest.approx(float(expected))}
    smoothed = ANY_RIGHT_LABEL.loss(logits, targets, label_smoothing=0.3)
    mixed = 0.7 * targets + 0.1
    torch.testing.assert_close(smoothed, -(shares * mixed).sum(dim=1).log().mean())


def test_an_image_without_a_right_label_is_no_question() -> None:
    assert ANY_RIGHT_LABEL.takes((3, 4))
    assert not ANY_RIGHT_LABEL.takes(())
    assert not ANY_RIGHT_LABEL.takes(3)
    with pytest.raises(DataError, match="no right label"):
        ANY_RIGHT_LABEL.encode([(1,), ()], 5)
    with pytest.raises(DataError, match="no images"):
        ANY_RIGHT_LABEL.score(torch.zeros(0, 5), torch.zeros(0, 5), class_names=NAMES, describe=str)
    with pytest.raises(ModelError, match="NaN"):
        ANY_RIGHT_LABEL.score(torch.full((1, 5), torch.nan), torch.ones(1, 5), class_names=NAMES, describe=str)
