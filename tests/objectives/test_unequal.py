"""Unequal classes: weights, shares and losses against the formulas of their papers."""

import math

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int64
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor
from torch.nn import functional

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.families import build
from vitral.models.pixels import PixelsConfig
from vitral.objectives.unequal import balanced_weights, log_prior, sampling_shares
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.method import Context
from vitral.training.methods.supervised import Supervised
from vitral.training.settings.recipe import Recipe

IMAGES = (300, 30, 7, 1)


def method(*changes: str, images: tuple[int, ...] = IMAGES) -> Supervised:
    model = build(PixelsConfig(image_size=(16, 16), num_classes=4, side=4))
    return Supervised(model, Recipe().changed(changes), SINGLE_LABEL, Context(class_images=images))


def batch() -> tuple[Float[Tensor, "n k"], Int64[Tensor, " n"]]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(64, 4, generator=generator) * 3, torch.arange(64) % 4


def test_the_weights_are_scikit_learns() -> None:
    labels = np.repeat(np.arange(4), IMAGES)
    expected = compute_class_weight("balanced", classes=np.arange(4), y=labels)
    assert balanced_weights(IMAGES).tolist() == pytest.approx(expected.tolist())
    assert float((balanced_weights(IMAGES)[labels]).mean()) == pytest.approx(1.0)
    assert balanced_weights((5, 0, 5)).tolist() == [1.0, 0.0, 1.0]


@every_case("tau", [0.3, 1.0, 2.5])
def test_the_adjusted_loss_is_equation_10(tau: float) -> None:
    logits, labels = batch()
    shares = [count / sum(IMAGES) for count in IMAGES]
    rows = [
        -math.log(shares[label] ** tau * math.exp(row[label]))
        + math.log(sum(share**tau * math.exp(value) for share, value in zip(shares, row, strict=True)))
        for row, label in zip(logits.double().tolist(), labels.tolist(), strict=True)
    ]
    found = method(f"objective.logit_adjustment={tau}").loss_of(logits, labels)
    assert float(found) == pytest.approx(sum(rows) / len(rows), rel=1e-5)


@every_case("smoothing", [0.0, 0.2])
def test_the_weighted_loss_is_the_mean_of_weighted_losses(smoothing: float) -> None:
    logits, labels = batch()
    weighted = method("objective.class_weights=balanced", f"regularization.label_smoothing={smoothing}")
    targets = functional.one_hot(labels, 4) * (1 - smoothing) + smoothing / 4
    expected = -(balanced_weights(IMAGES) * targets * logits.log_softmax(1)).sum(1).mean()
    assert float(weighted.loss_of(logits, labels)) == pytest.approx(float(expected), rel=1e-5)
    mixed = torch.randn(64, 4).softmax(1)  # of two images each
    expected = -(balanced_weights(IMAGES) * (mixed * (1 - smoothing) + smoothing / 4) * logits.log_softmax(1)).sum(1)
    assert float(weighted.loss_of(logits, mixed)) == pytest.approx(float(expected.mean()), rel=1e-5)


def test_equal_classes_are_left_as_they_are() -> None:
    logits, labels = batch()
    plain = method().loss_of(logits, labels)
    for change in ("objective.class_weights=balanced", "objective.logit_adjustment=1.0"):
        assert float(method(change, images=(9, 9, 9, 9)).loss_of(logits, labels)) == pytest.approx(float(plain))


def test_what_the_data_do_not_tell_is_refused() -> None:
    recipe = Recipe().changed(["objective.class_weights=balanced"])
    model = build(PixelsConfig(image_size=(16, 16), num_classes=4, side=4))
    with pytest.raises(ModelError, match=r"class_weights.*may have several labels"):
        Supervised(model, recipe, MULTI_LABEL, Context())


def test_a_class_without_images_does_not_win_by_its_rarity() -> None:
    assert log_prior((8, 0, 2)).exp().tolist() == pytest.approx([0.8, 0.8, 0.2])


@every_case(
    ("sampling", "expected"),
    [
        ("instance-balanced", [0.9, 0.1, 0.0]),
        ("square-root", [0.75, 0.25, 0.0]),
        ("class-balanced", [0.5, 0.5, 0.0]),
    ],
)
def test_the_shares_of_sampling(sampling: str, expected: list[float]) -> None:
    assert sampling_shares((90, 10, 0), sampling).tolist() == pytest.approx(expected)
