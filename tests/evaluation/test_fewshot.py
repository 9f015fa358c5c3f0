"""Baselines on frozen features."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import Int64
from torch.nn import functional

from vitral.classifier.classifier import Classifier
from vitral.data.digits import open_digits
from vitral.data.source import Source
from vitral.evaluation import fewshot
from vitral.evaluation.fewshot import (
    extract_features,
    knn_accuracy,
    linear_probe_accuracy,
    nearest_accuracy,
    score_baselines,
)
from vitral.events import Event, Progress
from vitral.images.decode import Pixels, Shrink
from vitral.images.preprocessing import Preprocessing
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig
from vitral.tasks.task import Label


def test_neighbours_by_hand() -> None:
    train = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 5.0], [-1.0, 0.0]])
    labels = torch.tensor([0, 0, 1, 1, 2])
    queries = torch.tensor([[3.0, 0.1], [0.1, 0.2], [-2.0, -0.1], [1.0, 1.1]])
    assert knn_accuracy(train, labels, queries, torch.tensor([0, 1, 2, 1]), k=1) == 1.0
    assert knn_accuracy(train, labels, queries, torch.tensor([1, 1, 2, 1]), k=1) == 0.75


def test_near_neighbours_count_more_than_far_ones() -> None:
    # One neighbour at cosine 1 against two at cosine -0.6, whose votes weigh 0.2 each.
    train = torch.tensor([[1.0, 0.0], [-0.6, 0.8], [-0.6, -0.8]])
    query = torch.tensor([[2.0, 0.0]])
    assert knn_accuracy(train, torch.tensor([1, 0, 0]), query, torch.tensor([1])) == 1.0


def test_neighbours_on_the_far_side_still_vote_for_their_class() -> None:
    train = torch.tensor([[-1.0, 0.2], [-1.0, -0.2]])
    assert knn_accuracy(train, torch.tensor([3, 3]), torch.tensor([[1.0, 0.0]]), torch.tensor([3])) == 1.0


def test_probe_separates_what_a_plane_separates() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(400, 5, generator=generator)
    features = features[(features[:, 0] + features[:, 1]).abs() > 0.3]
    labels = (features[:, 0] + features[:, 1] > 0).long()
    half = len(labels) // 2
    parts = (features[:half], labels[:half], features[half:], labels[half:])
    assert linear_probe_accuracy(*parts) > 0.97
    # The fixed penalty of the original's ImageNet evaluation is too much for so few images.
    assert linear_probe_accuracy(*parts, penalty=2.0**10) < 0.9


def test_probe_is_regularised_least_squares() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (30,), generator=generator)
    white = (features - features.mean(0)) / (features.std(0, correction=0) + 1e-5)
    design = torch.cat([white, torch.full((30, 1), 100.0, dtype=torch.float64)], dim=1)
    gram = design.T @ design + 8.0 * torch.eye(5, dtype=torch.float64)
    weights = torch.linalg.solve(gram, design.T @ (2.0 * functional.one_hot(labels) - 1.0).double())
    expected = (design @ weights).argmax(1)
    assert linear_probe_accuracy(features, labels, features, expected, penalty=8.0) == 1.0


def test_the_leave_one_out_shortcut_is_leave_one_out() -> None:
    generator = torch.Generator().manual_seed(3)
    design = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (12,), generator=generator)
    targets = 2.0 * functional.one_hot(labels).double() - 1.0

    def held_out_accuracy(penalty: float) -> float:
        right = 0
        for index in range(12):
            rest = [other for other in range(12) if other != index]
            gram = design[rest].T @ design[rest] + penalty * torch.eye(4, dtype=torch.float64)
            weights = torch.linalg.solve(gram, design[rest].T @ targets[rest])
            right += int((design[index] @ weights).argmax() == labels[index])
        return right / 12

    left, singular, _ = torch.linalg.svd(design, full_matrices=False)
    chosen = fewshot._best_penalty(left, singular, left.T @ targets, targets, labels)
    scores = {penalty: held_out_accuracy(penalty) for penalty in fewshot.PENALTIES}
    assert scores[chosen] == max(scores.values())
    assert chosen == max(penalty for penalty, accuracy in scores.items() if accuracy == scores[chosen])


def test_fewer_images_than_features() -> None:
    features = torch.eye(40)[:6]
    labels = torch.arange(6) % 2
    assert linear_probe_accuracy(features, labels, features, labels) == 1.0
    assert knn_accuracy(features, labels, features, labels, k=1) == 1.0


@pytest.fixture
def digit_classifier(tiny_config: ViTConfig) -> Classifier:
    """An untrained network for the digits."""
    model = ViT(tiny_config)
    model.init_weights(0)
    model.replace_head(10)
    return Classifier(model, Preprocessing(image_size=(16, 16)), [str(digit) for digit in range(10)])


def test_baselines_of_random_features_beat_chance(
    digit_classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fewshot, "MOST_TRAINING", 400)
    monkeypatch.setattr(fewshot, "MOST_TEST", 150)
    events: list[Event] = []
    baselines = score_baselines(digit_classifier, open_digits(), listener=events.append)
    assert baselines is not None
    assert (baselines.split, baselines.num_train, baselines.num_test) == ("test", 400, 150)
    assert baselines.knn > 0.3
    assert baselines.linear_probe > 0.4
    assert events[-1] == Progress("extract features", 150, 150)
    assert baselines.pixel_neighbour is not None
    assert baselines.pixel_linear is not None
    assert min(baselines.pixel_neighbour, baselines.pixel_linear) > 0.8


def test_features_come_in_order_and_leave_the_mode_alone(digit_classifier: Classifier) -> None:
    source = open_digits().splits["validation"]
    digit_classifier.model.train()
    features, labels = extract_features(digit_classifier, source, batch_size=50)
    assert digit_classifier.model.training
    assert features.shape == (len(source), 16)
    assert labels.tolist() == source.labels().tolist()
    digit_classifier.model.eval()
    alone = digit_classifier.features(digit_classifier.preprocessing(source.image(60))[None])
    torch.testing.assert_close(features[60], alone[0].detach())


class Slow(Source):
    """A source whose images take a while."""

    def __init__(self, source: Source, seconds: float) -> None:
        self.source, self.seconds = source, seconds
        self.endless, self.shards = source.endless, source.shards

    def __len__(self) -> int:
        return len(self.source)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        time.sleep(self.seconds)
        return self.source.image(index, shrink)

    def encoded(self, index: int) -> bytes | Path | None:
        return self.source.encoded(index)

    def label(self, index: int) -> Label:
        return self.source.label(index)

    def labels(self) -> Int64[np.ndarray, " examples"]:
        return self.source.labels()

    def describe(self, index: int) -> str:
        return self.source.describe(index)


@pytest.mark.parametrize(("each", "seconds"), [(0.002, 2.5), (0.02, 3.0), (0.2, 1.0)])
def test_baselines_keep_to_their_time_or_are_left_out(
    digit_classifier: Classifier, each: float, seconds: float
) -> None:
    data = open_digits()
    slow = replace(data, splits={name: Slow(source, each) for name, source in data.splits.items()})
    started = time.perf_counter()
    baselines = score_baselines(digit_classifier, slow, seconds=seconds)
    took = time.perf_counter() - started
    assert (baselines is None) == (each == 0.2)
    if baselines is None:
        assert took < 34 * each + 3.0  # what the timing itself takes
        return
    assert baselines.num_train < len(data.splits["train"])
    assert baselines.num_test >= 30
    assert took < 2 * seconds


def test_the_nearest_image_decides() -> None:
    train = torch.tensor([[0.0, 0.0], [10.0, 10.0]])
    tests = torch.tensor([[1.0, 1.0], [9.0, 8.0], [4.0, 4.0]])
    assert nearest_accuracy(train, torch.tensor([1, 0]), tests, torch.tensor([1, 0, 0])) == pytest.approx(2 / 3)
