"""Schedule, optimizer, clipping and averaging, worked by hand."""

import pytest
import torch
from torch import nn

from tests.cases import every_case
from tests.training.settings.rates import learning_rate
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.training.optimization.averaging import Average
from vitral.training.optimization.optimizers import build_optimizer, clip_by_global_norm, set_learning_rate
from vitral.training.settings.schedule import Decay
from vitral.training.settings.sections import OptimizerSettings


@every_case(
    ("step", "decay", "expected"),
    [
        (0, "cosine", 0.0),
        (5, "cosine", 0.5),
        (10, "cosine", 1.0),
        (60, "cosine", 0.5),
        (110, "cosine", 0.0),
        (60, "linear", 0.55),
        (110, "linear", 0.1),
        (200, "linear", 0.1),
        (60, "constant", 1.0),
    ],
)
def test_schedule_at_its_corners(step: int, decay: Decay, expected: float) -> None:
    final = 0.1 if decay == "linear" else 0.0
    rate = learning_rate(step, base=1.0, total_steps=110, warmup_steps=10, decay=decay, final=final)
    assert rate == pytest.approx(expected)


def test_a_run_without_warm_up_begins_at_the_peak() -> None:
    assert learning_rate(0, base=0.3, total_steps=10, warmup_steps=0, decay="cosine") == 0.3


def test_clipping_adds_no_epsilon() -> None:
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    weights[0].grad, weights[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    assert float(clip_by_global_norm(weights, 1.0)) == 5.0
    torch.testing.assert_close(weights[0].grad, torch.tensor([0.6, 0.0]), rtol=0, atol=1e-7)
    assert float(clip_by_global_norm(weights, 1.0)) == pytest.approx(1.0)
    small = weights[1].grad.clone()
    clip_by_global_norm(weights, 2.0)
    assert torch.equal(weights[1].grad, small)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "adafactor", "muon"])
def test_decay_is_of_kernels_alone(tiny_config: ViTConfig, name: str) -> None:
    model = build(tiny_config, seed=0)
    settings = OptimizerSettings(name=name, lr=0.5, weight_decay=0.1)
    optimizer = build_optimizer(model, model, settings)
    set_learning_rate(optimizer, 0.5, 0.5)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for key, value in model.state_dict().items():
        kernel = key.endswith(".weight") and value.ndim > 1
        torch.testing.assert_close(value, before[key] * (0.95 if kernel else 1.0))


@pytest.mark.parametrize("name", ["adamw", "sgd", "adafactor", "muon"])
def test_decay_is_of_all_parameters_where_the_recipe_says_so(tiny_config: ViTConfig, name: str) -> None:
    model = build(tiny_config, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    settings = OptimizerSettings(name=name, lr=0.5, weight_decay=0.1, decay_on="all")
    optimizer = build_optimizer(model, model, settings)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter in model.parameters():
        torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, 0.95))


def test_average_is_the_formula(tiny_config: ViTConfig) -> None:
    model = build(tiny_config, seed=0)
    average = Average(model, 0.9)
    with torch.no_grad():
        model.norm.weight.fill_(2.0)  # type: ignore[union-attr, operator]
    average.update(step=0)  # decay min(0.9, 1/10)
    torch.testing.assert_close(average.tensors["norm.weight"], torch.full((16,), 0.1 * 1 + 0.9 * 2))
    average.update(step=1000)
    torch.testing.assert_close(average.tensors["norm.weight"], torch.full((16,), 0.9 * 1.9 + 0.1 * 2))
