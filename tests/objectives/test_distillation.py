"""What a teacher's answers cost, against DeiT's equations 2 and 3 and big_vision's distance, in double precision by hand."""

import numpy as np
import pytest
import torch

from tests.cases import every_case
from vitral.objectives.classification import agreement, hard_loss, soft_loss


def logits(seed: int) -> torch.Tensor:
    return 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(seed))


def probabilities(values: torch.Tensor) -> np.ndarray:
    powers = np.exp(values.double().numpy())
    return powers / powers.sum(axis=1, keepdims=True)


def test_hard_answers_are_the_teachers_most_probable_classes_unsmoothed() -> None:
    student, teacher = logits(0), logits(1)
    best = teacher.argmax(dim=1).numpy()
    expected = -np.log(probabilities(student)[np.arange(6), best]).mean()
    assert float(hard_loss(student.bfloat16().float(), teacher)) == pytest.approx(expected, rel=0.02)
    assert float(hard_loss(student, teacher)) == pytest.approx(expected, rel=1e-5)


@every_case("temperature", [0.5, 1.0, 3.0, 10.0])
def test_soft_answers_are_the_divergence_from_the_teacher_times_the_temperature_squared(temperature: float) -> None:
    student, teacher = logits(0), logits(1)
    ours, theirs = probabilities(student / temperature), probabilities(teacher / temperature)
    expected = temperature**2 * (theirs * np.log(theirs / ours)).sum(axis=1).mean()
    assert float(soft_loss(student, teacher, temperature)) == pytest.approx(expected, rel=1e-5)


def test_a_student_that_answers_as_its_teacher_learns_nothing_more() -> None:
    student = logits(0).requires_grad_()
    loss = soft_loss(student, logits(0) + 2.5, 3.0)  # logits are of one distribution, whatever is added to all
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    assert student.grad is not None
    assert float(student.grad.abs().max()) < 1e-6


def test_agreement_is_the_share_of_equal_answers() -> None:
    student = torch.eye(4)
    teacher = torch.eye(4)[[0, 1, 2, 2]]
    assert float(agreement(student, teacher)) == 0.75
