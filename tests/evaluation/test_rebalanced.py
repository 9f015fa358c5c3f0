"""Remedies for unequal classes: what pays, and the weighted linear model against least squares solved otherwise."""

import pytest
import torch
from sklearn.linear_model import Ridge
from torch.nn import functional

from tests.cases import every_case
from vitral.evaluation.probes import BIAS, fit_probe, fit_rebalanced
from vitral.evaluation.rebalanced import rebalanced
from vitral.objectives.unequal import balanced_weights


@every_case(
    ("better", "worse", "pays", "refuted"),
    [
        (0, 0, False, False),  # of 20 images of the rare class and 180 of the other
        (1, 0, False, False),
        (10, 0, True, False),
        (10, 3, True, False),
        (10, 40, False, True),  # at the cost of too many of the common class
        (0, 3, False, True),
    ],
)
def test_what_pays(better: int, worse: int, pays: bool, refuted: bool) -> None:
    labels = torch.arange(200) < 20
    before = torch.cat([torch.zeros(20), torch.ones(180)]).bool()
    after = before.clone()
    after[:better] = True
    after[20 : 20 + worse] = False
    found = rebalanced(before, after, labels.long())
    assert (found.pays, found.refuted) == (pays, refuted)
    assert found.accuracy == pytest.approx((0.9, 0.9 + (better - worse) / 200))
    assert found.balanced_accuracy == pytest.approx((0.5, 0.5 + better / 40 - worse / 360))


def test_one_image_of_a_class_is_no_proof() -> None:
    labels = torch.tensor([0] * 30 + [1])
    before = torch.tensor([True] * 30 + [False])
    assert not rebalanced(before, torch.ones(31, dtype=torch.bool), labels).pays


def unequal() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    labels = torch.tensor([0] * 40 + [1] * 12 + [2] * 4)
    means = torch.randn(3, 6, generator=generator)
    return means[labels] + torch.randn(56, 6, generator=generator), labels


def test_the_weighted_probe_is_weighted_least_squares_and_its_left_out_outputs_are_those_of_fits_without() -> None:
    features, labels = unequal()
    weights, penalty = balanced_weights([40, 12, 4]), 4.0
    probe = fit_probe(features, labels, classes=3, penalty=penalty, class_weights=weights)
    mean, scale = features.double().mean(0), features.double().std(0, correction=0) + 1e-5
    design = functional.pad((features.double() - mean) / scale, (0, 1), value=BIAS)
    targets = 2.0 * functional.one_hot(labels).double() - 1.0

    def solved(rows: torch.Tensor) -> Ridge:
        model = Ridge(alpha=penalty, fit_intercept=False, solver="cholesky")
        return model.fit(design[rows], targets[rows], sample_weight=weights[labels[rows]])

    every = torch.arange(56)
    found = features.double() @ probe.weight.T + probe.bias
    assert torch.allclose(found, torch.from_numpy(solved(every).predict(design)), atol=1e-6)
    for index in (0, 39, 45, 52, 55):
        alone = solved(every[every != index]).predict(design[index : index + 1])
        assert torch.allclose(probe.left_out[index], torch.from_numpy(alone[0]), atol=1e-6)


def test_classes_are_weighed_where_they_are_unequal_and_that_is_not_refuted() -> None:
    features, labels = unequal()
    plain, auto = (fit_rebalanced(fit_probe, features, labels, classes=3, weigh=weigh) for weigh in ("none", "auto"))
    assert plain.rebalanced is None
    assert auto.rebalanced is not None
    assert auto.rebalanced.balanced_accuracy[1] > auto.rebalanced.balanced_accuracy[0]
    equal = torch.arange(56) % 3
    assert fit_rebalanced(fit_probe, features, equal, classes=3, weigh="balanced").rebalanced is None
    single = torch.tensor([0] * 55 + [1])  # a class of one image, which no fit without it can know
    assert fit_rebalanced(fit_probe, features, single, classes=3, weigh="auto").weight.isfinite().all()
