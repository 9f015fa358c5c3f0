"""Pseudo-labels: which images are taken, what is learned from them, and what a teacher learns from its student's progress."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from vitral.objectives.pseudo_labels import (
    choose_balanced,
    consistency_loss,
    draw_labels,
    feedback_loss,
    soft_cross_entropy,
)


def sure(*pairs: tuple[int, float]) -> np.ndarray:
    """Probabilities whose largest is of a class, for each image."""
    rows = np.zeros((len(pairs), 3))
    for row, (label, probability) in enumerate(pairs):
        rows[row] = (1 - probability) / 2
        rows[row, label] = probability
    return rows


def test_the_surest_of_a_frequent_class_and_those_of_a_rare_one_several_times() -> None:
    frequent = [(0, 0.9 - 0.01 * number) for number in range(10)]
    chosen = choose_balanced(sure(*frequent, (1, 0.8), (1, 0.7), (2, 0.3)), confidence=0.34, per_class=4, seed=0)
    assert chosen.tolist() == [0, 1, 2, 3, 10, 10, 11, 11]


def test_as_many_as_the_classes_have_on_average() -> None:
    chosen = choose_balanced(sure(*[(0, 0.9)] * 9, *[(1, 0.9)] * 3), confidence=0.5, per_class=None, seed=0)
    counts = np.bincount(chosen, minlength=12)
    assert counts[:9].sum() == 6
    assert counts[9:].tolist() == [2, 2, 2]


def test_what_is_no_whole_number_of_times_is_rounded_at_random() -> None:
    several = [choose_balanced(sure(*[(0, 0.9)] * 4), confidence=0.5, per_class=6, seed=seed) for seed in range(400)]
    counts = np.stack([np.bincount(chosen, minlength=4) for chosen in several])
    assert set(counts.flatten().tolist()) == {1, 2}
    assert counts.mean() == pytest.approx(1.5, abs=0.06)
    again = choose_balanced(sure(*[(0, 0.9)] * 4), confidence=0.5, per_class=6, seed=7)
    assert again.tolist() == several[7].tolist()


def test_where_nothing_is_sure_nothing_is_chosen() -> None:
    assert not len(choose_balanced(sure((0, 0.4), (1, 0.5)), confidence=0.5, per_class=None, seed=0))


def test_soft_answers_are_learned_as_they_are() -> None:
    teacher, student = torch.tensor([[2.0, 0.0, -1.0]] * 2), torch.tensor([[0.5, 0.1, 0.3]] * 2)
    told, said = teacher[0].softmax(dim=0).tolist(), student[0].softmax(dim=0).tolist()
    expected = -sum(one * math.log(other) for one, other in zip(told, said, strict=True))
    assert float(soft_cross_entropy(student, teacher)) == pytest.approx(expected, rel=1e-6)


def test_consistency_counts_the_sure_images_in_the_mean_over_all() -> None:
    weak = torch.tensor([[2.0, 0.0], [0.1, 0.0]], requires_grad=True)
    strong = torch.tensor([[0.3, 0.4], [3.0, 0.0]], requires_grad=True)
    loss = consistency_loss(weak, strong, temperature=0.5, threshold=0.8)
    target = torch.tensor([4.0, 0.0]).softmax(dim=0)  # the second image's 0.55 does not reach the threshold
    expected = -(target * strong[0].detach().log_softmax(dim=0)).sum() / 2
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert weak.grad is None
    assert strong.grad is not None
    assert not strong.grad[1].any()


def test_what_just_reaches_the_threshold_counts() -> None:
    weak, strong = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])
    assert float(consistency_loss(weak, strong, temperature=1.0, threshold=0.5)) > 0


def test_labels_are_drawn_by_their_probabilities() -> None:
    logits = torch.tensor([[0.7, 0.2, 0.1]]).log().expand(6, 3)
    chances = torch.tensor([0.0, 0.69, 0.71, 0.89, 0.91, 1 - 1e-12], dtype=torch.float64)
    assert draw_labels(logits, chances).tolist() == [0, 0, 1, 1, 2, 2]


def test_the_teachers_gradient_is_the_derivative_of_the_students_loss_after_its_step() -> None:
    """On a tiny problem: all labels that can be drawn are, each counted by its probability."""
    double = torch.float64
    generator = torch.Generator().manual_seed(4)
    unlabelled, labelled = (torch.randn(2, 2, dtype=double, generator=generator) for _ in range(2))
    targets, rate = torch.tensor([0, 2]), 0.7
    student, teacher = (torch.randn(2, 3, dtype=double, generator=generator) for _ in range(2))

    def after(labels: torch.Tensor) -> torch.Tensor:
        weights = student.clone().requires_grad_()
        (slope,) = torch.autograd.grad(functional.cross_entropy(unlabelled @ weights, labels), weights)
        return functional.cross_entropy(labelled @ (student - rate * slope), targets)

    before = functional.cross_entropy(labelled @ student, targets)
    every = [torch.tensor(labels) for labels in itertools.product(range(3), repeat=2)]

    def expected_loss(weights: torch.Tensor) -> float:
        probabilities = (unlabelled @ weights).softmax(dim=1)
        return sum(float(probabilities[[0, 1], labels].prod() * after(labels)) for labels in every)

    ours = torch.zeros_like(teacher)
    for labels in every:
        weights = teacher.clone().requires_grad_()
        said = unlabelled @ weights
        chance = said.detach().softmax(dim=1)[[0, 1], labels].prod()
        # The mean over the images, as the student has it; the derivative is of the sum of their logarithms.
        loss = len(unlabelled) * feedback_loss(
            said, labels, before - after(labels) - 0.3
        )  # any baseline gives the same
        (slope,) = torch.autograd.grad(loss, weights)
        ours += chance * slope
    step = 1e-5
    for index in itertools.product(range(2), range(3)):
        moved = [teacher.clone(), teacher.clone()]
        moved[0][index] += step
        moved[1][index] -= step
        derivative = (expected_loss(moved[0]) - expected_loss(moved[1])) / (2 * step)
        assert float(ours[index]) == pytest.approx(derivative, rel=1e-3, abs=1e-6)


def test_of_equally_sure_images_the_first_are_chosen() -> None:
    chosen = choose_balanced(sure(*[(0, 0.8), (0, 0.9)] * 200), confidence=0.5, per_class=250, seed=0)
    assert chosen.tolist() == sorted([*range(0, 100, 2), *range(1, 400, 2)])


def test_classes_are_rounded_independently_of_each_other() -> None:
    pairs = sure(*[(0, 0.9)] * 20, *[(1, 0.9)] * 20)
    counts = np.bincount(choose_balanced(pairs, confidence=0.5, per_class=30, seed=0), minlength=40)
    assert set(counts.tolist()) == {1, 2}
    assert counts[:20].tolist() != counts[20:].tolist()


def test_a_class_without_any_probability_is_never_drawn() -> None:
    logits = torch.tensor([[-1e4, 0.0, -1e4]]).expand(2, 3)
    assert draw_labels(logits, torch.tensor([0.0, 1 - 1e-12], dtype=torch.float64)).tolist() == [1, 1]
