"""LeJEPA's loss against its definition by quadrature, and over two processes."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from tests.cases import every_case
from tests.forks import job
from tests.objectives import shared_views
from tests.objectives.shared_views import CONFIG, make, views
from vitral.models.families import build
from vitral.models.layers import BatchPart
from vitral.objectives.latent_views import (
    BatchNormOfAll,
    LatentViews,
    agreement_loss,
    draw_directions,
    gaussian_loss,
)


def projections(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_definition(values: np.ndarray) -> float:
    """N times the integral of |c(t) - exp(-t²/2)|² exp(-t²/2) over t from -3 to 3, of the values along one direction."""

    def integrand(t: float) -> float:
        return abs(np.exp(1j * t * values).mean() - math.exp(-(t**2) / 2)) ** 2 * math.exp(-(t**2) / 2)

    return len(values) * quad(integrand, -3, 3, limit=200)[0]


@every_case("spread", [0.0, 0.3, 1.0, 2.0])
def test_the_gaussian_part_is_the_integral_of_its_definition(spread: float) -> None:
    torch.manual_seed(0)
    found, directions = projections(2, 40, 5) * spread + 0.2, draw_directions(5, 7)
    along = (found @ directions).double().numpy()
    expected = np.mean([by_definition(along[view, :, number]) for view in range(2) for number in range(7)])
    assert float(gaussian_loss(found, directions)) == pytest.approx(expected, rel=2e-3)


def test_a_standard_gaussian_costs_what_chance_makes_and_anything_else_more() -> None:
    torch.manual_seed(0)
    directions = draw_directions(8, 64)
    # Of N values from a standard Gaussian N |c - phi|² has the mean 1 - phi².
    chance = quad(lambda t: (1 - math.exp(-(t**2))) * math.exp(-(t**2) / 2), -3, 3)[0]
    found = np.mean([float(gaussian_loss(projections(4, 500, 8, seed=seed), directions)) for seed in range(5)])
    assert found == pytest.approx(chance, rel=0.1)
    for other in (projections(4, 500, 8) * 0.5, projections(4, 500, 8) + 1, torch.zeros(4, 500, 8)):
        assert float(gaussian_loss(other, directions)) > 10 * chance


def test_directions_are_unit_vectors_of_all_directions() -> None:
    torch.manual_seed(0)
    found = draw_directions(3, 4000)
    torch.testing.assert_close(found.norm(dim=0), torch.ones(4000))
    torch.testing.assert_close(found @ found.T / 4000, torch.eye(3) / 3, rtol=0, atol=0.03)


def test_agreement_is_the_squared_difference_from_the_views_mean() -> None:
    found = projections(3, 4, 2).double()
    mean = sum(found) / 3
    expected = sum(float(((view - mean) ** 2).sum()) for view in found) / found.numel()
    assert float(agreement_loss(found)) == pytest.approx(expected, rel=1e-6)
    assert float(agreement_loss(projections(1, 4, 2).expand(3, -1, -1))) == pytest.approx(0, abs=1e-12)


def test_the_norm_is_a_batch_norm_in_training() -> None:
    own, usual = BatchNormOfAll(6), torch.nn.BatchNorm1d(6)
    for norm in (own, usual):
        torch.nn.init.constant_(norm.weight, 1.5)
        torch.nn.init.constant_(norm.bias, -0.5)
    values = projections(9, 6) * 3 + 1
    torch.testing.assert_close(own(values), usual(values))


def test_of_two_processes_loss_and_gradients_are_those_of_one(tmp_path: Path) -> None:
    for done in job(2, shared_views.main, tmp_path):
        assert done.returncode == 0, done.stderr[-3000:]
    module = make()
    whole = shared_views.loss(module, views())
    whole.backward()  # type: ignore[no-untyped-call]
    saved = torch.load(tmp_path / "gradients.pt", weights_only=True)
    assert float(saved.pop("loss")) == pytest.approx(float(whole.detach()), rel=1e-5)
    assert saved.keys() == {name for name, value in module.named_parameters() if value.grad is not None}
    for name, value in module.named_parameters():
        if value.grad is not None:
            torch.testing.assert_close(saved[name], value.grad, rtol=1e-4, atol=1e-6)
    assert sum(float(value.abs().max()) > 1e-4 for value in saved.values()) > 10


def test_the_norm_of_what_hardly_varies_is_torchs_too() -> None:
    own, usual = BatchNormOfAll(6), torch.nn.BatchNorm1d(6)
    values = projections(9, 6) * 0.005
    torch.testing.assert_close(own(values), usual(values))


def test_the_projector_is_three_layers_with_batch_norm_and_relu_between() -> None:
    module, seen = make(), views()
    usual = [torch.nn.BatchNorm1d(12), torch.nn.BatchNorm1d(12)]
    features = torch.cat([module.network.features(view) for view in seen])
    for layer, norm in zip(module.layers, usual, strict=False):
        features = norm(layer(features)).relu()
    expected = module.layers[-1](features).unflatten(0, (3, 8))
    torch.testing.assert_close(module(tuple(seen)), expected, rtol=1e-4, atol=1e-5)
    shapes = [tuple(value.shape) for value in module.layers.parameters()]
    assert shapes == [(12, 16), (12,), (12, 12), (12,), (5, 12), (5,)]
    for width, value in zip((16, 16, 12, 12, 12, 12), module.layers.parameters(), strict=True):
        assert 0.5 < float(value.detach().abs().max()) * width**0.5 <= 1  # as torch makes a linear layer
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), make().parameters(), strict=True))


def test_a_part_of_a_batch_loses_the_branches_that_it_would_lose_in_the_whole() -> None:
    network = build(dataclasses.replace(CONFIG, depth=3, stochastic_depth=0.5), seed=0).train()
    module = LatentViews(network, hidden=12, dimensions=5, seed=1)
    seen, part = tuple(views()[:, :4]), BatchPart(5, 9)
    torch.manual_seed(3)
    found = module(seen, part)
    torch.manual_seed(3)
    features = torch.cat([network.features(images, part) for images in seen])
    for layer, norm in zip(module.layers, module.norms, strict=False):
        features = norm(layer(features)).relu()
    torch.testing.assert_close(found, module.layers[-1](features).unflatten(0, (3, 4)))
    torch.manual_seed(3)
    assert not torch.allclose(module(seen), found)
