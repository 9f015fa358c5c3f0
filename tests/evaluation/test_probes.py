"""Neighbours and the linear probe, held to their formulas by other means."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.evaluation import probes
from vitral.evaluation.probes import effective_rank, fit_probe, knn_accuracy, nearest_accuracy


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


def test_neighbours_among_any_number_of_images_take_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    train, queries = torch.randn(300, 5, generator=generator), torch.randn(70, 5, generator=generator)
    labels, truth = torch.randint(4, (300,), generator=generator), torch.randint(4, (70,), generator=generator)
    whole = knn_accuracy(train, labels, queries, truth)
    seen: list[int] = []
    topk = torch.Tensor.topk

    def watched(cosines: torch.Tensor, k: int, dim: int) -> object:
        seen.append(cosines.numel())
        return topk(cosines, k, dim=dim)

    monkeypatch.setattr(torch.Tensor, "topk", watched)
    monkeypatch.setattr(probes, "COSINES_AT_ONCE", 2000)
    assert knn_accuracy(train, labels, queries, truth) == whole
    assert max(seen) == 1800  # of 6 queries
    monkeypatch.setattr(probes, "COSINES_AT_ONCE", 200)  # fewer than one query has
    assert knn_accuracy(train, labels, queries, truth) == whole


def test_probe_separates_what_a_plane_separates() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(400, 5, generator=generator)
    features = features[(features[:, 0] + features[:, 1]).abs() > 0.3]
    labels = (features[:, 0] + features[:, 1] > 0).long()
    half = len(labels) // 2
    train, test = (features[:half], labels[:half]), (features[half:], labels[half:])
    assert fit_probe(*train).accuracy(*test) > 0.97
    # The fixed penalty of the original's ImageNet evaluation is too much for so few images.
    assert fit_probe(*train, penalty=2.0**10).accuracy(*test) < 0.9


def test_probe_is_regularised_least_squares() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (30,), generator=generator)
    white = (features - features.mean(0)) / (features.std(0, correction=0) + 1e-5)
    design = torch.cat([white, torch.full((30, 1), 100.0, dtype=torch.float64)], dim=1)
    gram = design.T @ design + 8.0 * torch.eye(5, dtype=torch.float64)
    weights = torch.linalg.solve(gram, design.T @ (2.0 * functional.one_hot(labels) - 1.0).double())
    expected = (design @ weights).argmax(1)
    assert fit_probe(features, labels, penalty=8.0).accuracy(features, expected) == 1.0


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

    chosen = probes.Ridge(design, targets).best_penalty(labels)
    scores = {penalty: held_out_accuracy(penalty) for penalty in probes.PENALTIES}
    assert scores[chosen] == max(scores.values())
    assert chosen == max(penalty for penalty, accuracy in scores.items() if accuracy == scores[chosen])


def test_fewer_images_than_features() -> None:
    features = torch.eye(40)[:6]
    labels = torch.arange(6) % 2
    assert fit_probe(features, labels).accuracy(features, labels) == 1.0
    assert knn_accuracy(features, labels, features, labels, k=1) == 1.0


def test_the_nearest_image_decides() -> None:
    train = torch.tensor([[0.0, 0.0], [10.0, 10.0]])
    tests = torch.tensor([[1.0, 1.0], [9.0, 8.0], [4.0, 4.0]])
    assert nearest_accuracy(train, torch.tensor([1, 0]), tests, torch.tensor([1, 0, 0])) == pytest.approx(2 / 3)


def test_many_images_are_fitted_as_few_are() -> None:
    # Beyond two images a feature the decomposition goes another way; a feature that never changes is no hindrance.
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(60, 5, generator=generator)
    features[:, 3] = 2.0
    labels = (features[:, 0] + 0.3 * torch.randn(60, generator=generator) > 0).long()
    design = torch.cat(
        [(features - features.mean(0)) / (features.std(0, correction=0) + 1e-5), torch.full((60, 1), 100.0)], 1
    )
    design = design.double()
    targets = 2.0 * functional.one_hot(labels, 3).double() - 1.0
    weights = torch.linalg.solve(design.T @ design + 8.0 * torch.eye(6, dtype=torch.float64), design.T @ targets)
    probe = probes.fit_probe(features, labels, classes=3, penalty=8.0)
    torch.testing.assert_close(features.double() @ probe.weight.T + probe.bias, design @ weights, atol=1e-4, rtol=0)
    without = torch.arange(60) != 7
    gram = design[without].T @ design[without] + 8.0 * torch.eye(6, dtype=torch.float64)
    left_out = design[7] @ torch.linalg.solve(gram, design[without].T @ targets[without])
    torch.testing.assert_close(probe.left_out[7], left_out, atol=1e-4, rtol=0)


def test_scores_become_as_sharp_as_they_are_right() -> None:
    sure = torch.tensor([[0.5, -0.5]] * 9 + [[-0.5, 0.5]], dtype=torch.float64)
    right_nine_times = torch.zeros(10, dtype=torch.int64)
    # At a factor f the first class has 1 / (1 + exp(-f)) in nine rows; nine in ten of them are right at f = ln 9 = 2.2.
    assert probes.sharpness(sure, right_nine_times) == pytest.approx(2.197, rel=0.1)
    assert probes.sharpness(sure[:9], right_nine_times[:9]) == 32.0


@every_case("count", [4, 40])  # for which features themselves are decomposed, or their products
@every_case("broken", [math.nan, math.inf])
def test_features_that_are_no_numbers_are_refused_in_one_line(count: int, broken: float) -> None:
    features = torch.randn(count, 8, generator=torch.Generator().manual_seed(0))
    features[1, 2] = broken
    with pytest.raises(ModelError, match="no finite numbers for these images: its weights are damaged") as caught:
        fit_probe(features, torch.arange(count) % 2)
    assert "\n" not in str(caught.value)


def test_the_effective_rank_is_the_number_of_dimensions_that_are_filled_alike() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    for dimensions in (1, 3, 10):
        features = np.repeat(np.concatenate([basis[:dimensions], -basis[:dimensions]]), 2, axis=0) + 7 * basis[30]
        assert effective_rank(torch.from_numpy(features)) == pytest.approx(dimensions, rel=1e-6)
    uneven = np.concatenate([3 * basis[:1], -3 * basis[:1], basis[1:2], -basis[1:2]])
    expected = np.exp(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert effective_rank(torch.from_numpy(uneven)) == pytest.approx(expected, rel=1e-6)


def test_features_that_are_all_alike_have_the_rank_one() -> None:
    noise = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    assert effective_rank(5 + 1e-7 * noise) == 1
    assert effective_rank(5 + 0.1 * noise) > 6
