"""The losses against their formulas, written out in numpy."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.cases import every_case
from vitral.objectives.classification import balance_loss, sigmoid_cross_entropy, softmax_cross_entropy

Array = NDArray[np.float64]
CLASSES = 7
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 3 * torch.randn(5, CLASSES, generator=GENERATOR)
NUMBERS = torch.tensor([0, 6, 2, 2, 5])
MIXED = torch.eye(CLASSES)[NUMBERS] * 0.7 + torch.eye(CLASSES)[NUMBERS.roll(1)] * 0.3
SEVERAL = torch.tensor([[1, 0, 1, 0, 0, 1, 0], [0] * 7, [1] * 7, [0, 0, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 1, 0]]).float()
TARGETS = {"numbers": NUMBERS, "mixed": MIXED, "several": SEVERAL}


def shares(targets: torch.Tensor, smoothing: float) -> Array:
    """Return smoothed labels as Szegedy et al. define them (arXiv 1512.00567, section 7): (1 - s) q + s / K."""
    whole = np.eye(CLASSES)[targets.numpy()] if targets.ndim == 1 else targets.double().numpy()
    smoothed: Array = (1 - smoothing) * whole + smoothing / CLASSES
    return smoothed


def sigmoid_loss(logits: Array, labels: Array) -> float:
    """vision_transformer's and big_vision's: minus the log-likelihoods, summed over the classes, mean over the batch."""
    positive, negative = -np.log1p(np.exp(-logits)), -np.log1p(np.exp(logits))
    return float(-(labels * positive + (1 - labels) * negative).sum(axis=1).mean())


def softmax_loss(logits: Array, labels: Array) -> float:
    """Return minus the labels times the logarithms of the softmax, summed over the classes, mean over the batch."""
    logarithms = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(-(labels * logarithms).sum(axis=1).mean())


@every_case("smoothing", [0.0, 0.1, 0.6])
@every_case("kind", TARGETS)
def test_the_sigmoid_loss_is_summed_over_classes_and_its_smoothing_spread_over_all(kind: str, smoothing: float) -> None:
    found = sigmoid_cross_entropy(LOGITS, TARGETS[kind], label_smoothing=smoothing)
    expected = sigmoid_loss(LOGITS.double().numpy(), shares(TARGETS[kind], smoothing))
    assert float(found) == pytest.approx(expected, rel=1e-5)


@every_case("smoothing", [0.0, 0.1, 0.6])
@every_case("kind", ["numbers", "mixed"])
def test_the_softmax_loss_is_its_formula(kind: str, smoothing: float) -> None:
    found = softmax_cross_entropy(LOGITS, TARGETS[kind], label_smoothing=smoothing)
    expected = softmax_loss(LOGITS.double().numpy(), shares(TARGETS[kind], smoothing))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_a_sigmoid_loss_by_hand() -> None:
    # Of logits of 0 every class costs log 2, whatever its label; ten classes cost ten times that.
    assert float(sigmoid_cross_entropy(torch.zeros(4, 10), torch.arange(4))) == pytest.approx(10 * math.log(2))
    # The original's bias of -10 at the start: a wrong class costs nothing, the right one 10.
    start = float(sigmoid_cross_entropy(torch.full((4, 10), -10.0), torch.arange(4)))
    assert start == pytest.approx(10.0, abs=1e-3)


def test_losses_without_being_told_smooth_nothing_and_leave_shares_as_they_are() -> None:
    logits = LOGITS.double().numpy()
    assert float(sigmoid_cross_entropy(LOGITS, MIXED)) == pytest.approx(sigmoid_loss(logits, shares(MIXED, 0.0)), 1e-5)
    assert float(softmax_cross_entropy(LOGITS, MIXED)) == pytest.approx(softmax_loss(logits, shares(MIXED, 0.0)), 1e-5)


@every_case("smoothing", [0.0, 0.1])
@every_case("kind", TARGETS)
def test_binary_targets_count_every_label_as_one_and_smoothing_makes_no_labels(kind: str, smoothing: float) -> None:
    """DeiT III: `targets.gt(0.0)` of mixed labels; timm's BinaryCrossEntropy holds smoothed ones against the off value."""
    found = sigmoid_cross_entropy(LOGITS, TARGETS[kind], label_smoothing=smoothing, binary_targets=True)
    whole = shares(TARGETS[kind], 0.0)
    expected = sigmoid_loss(LOGITS.double().numpy(), np.where(whole > 0, 1.0, 0.0))
    assert float(found) == pytest.approx(expected, rel=1e-5)


@every_case("loss", [softmax_cross_entropy, sigmoid_cross_entropy])
@every_case("targets", [NUMBERS, MIXED])
def test_a_loss_in_half_precision_is_computed_in_float32(loss: type, targets: torch.Tensor) -> None:
    found = loss(LOGITS.bfloat16(), targets)
    assert found.dtype == torch.float32
    assert torch.equal(found, loss(LOGITS.bfloat16().float(), targets))


@every_case("loss", [softmax_cross_entropy, sigmoid_cross_entropy])
def test_a_label_that_is_no_class_is_an_error_and_not_another_class(loss: type) -> None:
    with pytest.raises((IndexError, RuntimeError)):
        loss(LOGITS, torch.full((5,), CLASSES))


def test_what_balances_experts_weighs_a_half_percent() -> None:
    """V-MoE (arXiv 2106.05974, appendix A.4): 0.01 times the mean of the importance and the load loss."""
    importance, load = torch.tensor(0.3), torch.tensor(0.5)
    found = balance_loss({"importance": importance, "load": load})
    assert float(found) == pytest.approx(0.01 * (0.3 + 0.5) / 2)
