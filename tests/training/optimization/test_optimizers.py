"""Optimizers against their formulas."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import every_case
from tests.training.conftest import CONFIG
from vitral import plugins
from vitral.errors import PluginError
from vitral.models.catalog import variant
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.training.optimization.adafactor import Adafactor, factored_axes
from vitral.training.optimization.optimizers import build_optimizer, layer_depths, set_learning_rate
from vitral.training.optimization.per_parameter import HalfMomentumAdamW, HalfMomentumSGD, Lamb
from vitral.training.settings.sections import OptimizerSettings


def gradients_of(parameter: nn.Parameter, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(parameter.shape, generator=generator) for _ in range(count)]


def test_lamb_is_its_formula() -> None:
    parameter = nn.Parameter(torch.linspace(-1, 2, 12).view(3, 4))
    weight = parameter.detach().double().numpy().copy()
    optimizer = Lamb([parameter], lr=0.1, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.02)
    first = second = np.zeros_like(weight)
    for step, gradient in enumerate(gradients_of(parameter, 5), 1):
        parameter.grad = gradient.clone()
        optimizer.step()
        g = gradient.double().numpy()
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g**2
        update = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-6) + 0.02 * weight
        weight = weight - 0.1 * np.linalg.norm(weight) / np.linalg.norm(update) * update
    np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=1e-5)


def test_lamb_adapts_no_rate_where_nothing_decays() -> None:
    one, other = (nn.Parameter(torch.linspace(-1, 2, 12).view(3, 4)) for _ in range(2))
    lamb, adam = Lamb([one], lr=0.1, eps=1e-8), torch.optim.Adam([other], lr=0.1, eps=1e-8)
    for gradient in gradients_of(one, 4):
        one.grad, other.grad = gradient.clone(), gradient.clone()
        lamb.step()
        adam.step()
    torch.testing.assert_close(one, other)  # apex's FusedLAMB with use_nvlamb false, as timm makes it


@every_case("shape", [(40, 64), (5, 7), (3,), (32, 2, 48)])
def test_adafactor_is_its_formula(shape: tuple[int, ...]) -> None:
    parameter = nn.Parameter(torch.linspace(-1, 2, math.prod(shape)).view(shape))
    weight = parameter.detach().double().numpy().copy()
    optimizer = Adafactor([parameter], lr=0.1, beta1=0.9, largest_beta2=0.9, weight_decay=0.03)
    axes = factored_axes(shape)
    assert (axes is None) == (shape in ((5, 7), (3,)))
    moment = np.zeros_like(weight)
    second = rows = columns = 0.0
    for step, gradient in enumerate(gradients_of(parameter, 4), 1):
        parameter.grad = gradient.clone()
        optimizer.step()
        g = gradient.double().numpy()
        decay = min(1 - step**-0.8, 0.9)
        squared = g**2 + 1e-30
        if axes is None:
            second = decay * second + (1 - decay) * squared
        else:
            rows = decay * rows + (1 - decay) * squared.mean(axis=axes[1], keepdims=True)
            columns = decay * columns + (1 - decay) * squared.mean(axis=axes[0], keepdims=True)
            second = rows * columns / np.mean(rows, axis=axes[0], keepdims=True)
        moment = 0.9 * moment + 0.1 * g / np.sqrt(second)
        weight = weight * (1 - 0.1 * 0.03) - 0.1 * moment
    np.testing.assert_allclose(
        parameter.detach().numpy(), weight, rtol=0.02, atol=0.01
    )  # the moment is kept in bfloat16
    state = optimizer.state[parameter]
    assert state["exp_avg"].dtype == torch.bfloat16
    if axes is not None:
        assert sum(state[key].numel() for key in ("rows", "columns")) < parameter.numel() / 10


@every_case("nesterov", [False, True])
def test_momentum_in_bfloat16_rounds_only_what_is_kept(nesterov: bool) -> None:
    parameter = nn.Parameter(torch.linspace(-1, 2, 12).view(3, 4))
    weight, kept = parameter.detach().clone(), torch.zeros(3, 4)
    optimizer = HalfMomentumSGD([parameter], lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.01)
    for gradient in gradients_of(parameter, 5):
        parameter.grad = gradient.clone()
        optimizer.step()
        gradient = gradient + 0.01 * weight
        moment = 0.9 * kept + gradient
        weight = weight - 0.1 * (gradient + 0.9 * moment if nesterov else moment)
        kept = moment.bfloat16().float()
    torch.testing.assert_close(parameter.detach(), weight)
    assert optimizer.state[parameter]["momentum_buffer"].dtype == torch.bfloat16


def test_adams_first_moment_in_bfloat16_rounds_only_what_is_kept() -> None:
    parameter = nn.Parameter(torch.linspace(-1, 2, 12).view(3, 4))
    weight, kept, second = parameter.detach().clone(), torch.zeros(3, 4), torch.zeros(3, 4)
    optimizer = HalfMomentumAdamW([parameter], lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.02)
    for step, gradient in enumerate(gradients_of(parameter, 5), 1):
        parameter.grad = gradient.clone()
        optimizer.step()
        moment, second = 0.9 * kept + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
        update = moment / (1 - 0.9**step) / ((second / (1 - 0.99**step)).sqrt() + 1e-8)
        weight = weight * (1 - 0.1 * 0.02) - 0.1 * update
        kept = moment.bfloat16().float()
    torch.testing.assert_close(parameter.detach(), weight)
    assert optimizer.state[parameter]["exp_avg"].dtype == torch.bfloat16
    assert optimizer.state[parameter]["exp_avg_sq"].dtype == torch.float32


@every_case("name", ["sgd", "adam", "adamw"])
@every_case("dtype", ["float32", "bfloat16"])
def test_a_recipe_says_in_what_the_momentum_is_kept(name: str, dtype: str) -> None:
    model = build(CONFIG, seed=0)
    settings = OptimizerSettings(name=name, momentum_dtype=dtype)  # type: ignore[arg-type]
    optimizer = build_optimizer(model, model, settings)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    key = "momentum_buffer" if name == "sgd" else "exp_avg"
    assert {state[key].dtype for state in optimizer.state.values()} == {getattr(torch, dtype)}


def test_the_axis_of_the_experts_is_never_factored_where_the_recipe_says_so() -> None:
    experts = ExpertsConfig(blocks=(1,), num_experts=48)
    model = build(dataclasses.replace(CONFIG, dim=64, mlp_dim=64, experts=experts), seed=0)
    named = {name: parameter for name, parameter in model.named_parameters() if "encoder.1.mlp." in name}
    for factored_from, over_experts in ((32, True), (49, False)):
        settings = OptimizerSettings(name="adafactor", factored_from=factored_from)
        optimizer = build_optimizer(model, model, settings)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        factored = {name for name, parameter in named.items() if "rows" in optimizer.state[parameter]}
        assert ("encoder.1.mlp.router.weight" in factored) == over_experts  # (experts, dim)
        assert ("encoder.1.mlp.fc1.bias" in factored) == over_experts  # (experts, hidden)
        assert "encoder.1.mlp.fc1.weight" in factored  # (experts, dim, hidden), over the other two
        assert optimizer.state[named["encoder.1.mlp.fc1.weight"]]["rows"].shape == (48, 64)


def test_layer_decay_and_the_heads_own_weight_decay() -> None:
    model = build(ViTConfig(image_size=(8, 8), patch_size=(4, 4), dim=16, depth=3, mlp_dim=32, num_heads=2), seed=0)
    depths = layer_depths(model)
    assert depths["patch_embedding.weight"] == depths["position.embedding"] == depths["class_token"] == 0
    assert [depths[f"encoder.{block}.mlp.fc1.weight"] for block in range(3)] == [1, 2, 3]
    assert depths["norm.weight"] == depths["head.weight"] == 4
    settings = OptimizerSettings(lr=1.0, weight_decay=0.1, head_weight_decay=3.0, layer_decay=0.5)
    optimizer = build_optimizer(model, model, settings)
    set_learning_rate(optimizer, 0.2, 0.2)
    of = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    named = dict(model.named_parameters())
    assert of[id(named["head.weight"])]["weight_decay"] == 3.0
    assert of[id(named["head.bias"])]["weight_decay"] == 0.0
    assert of[id(named["encoder.0.mlp.fc1.weight"])]["weight_decay"] == 0.1
    assert of[id(named["encoder.0.mlp.fc1.weight"])]["lr"] == pytest.approx(0.2 * 0.5**3)
    assert of[id(named["patch_embedding.weight"])]["lr"] == pytest.approx(0.2 * 0.5**4)
    assert of[id(named["head.weight"])]["lr"] == 0.2


def test_a_methods_own_optimizer_learns_at_the_rate_itself() -> None:
    """Its groups say nothing of a share, or of a backbone."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=1.0)
    set_learning_rate(optimizer, 0.2, 0.03)
    assert optimizer.param_groups[0]["lr"] == 0.2


@every_case(
    ("made", "says"),
    [
        (lambda groups, _: 3, "returns a int; it must return a torch optimizer"),
        (lambda groups, _: torch.optim.SGD(groups[0]["params"], lr=1.0), "must keep the parameter groups"),
        (lambda groups, _: torch.optim.SGD(groups, lr=1.0), ""),
    ],
)
def test_a_plugins_optimizer_is_checked(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[list[Any], OptimizerSettings], object], says: str
) -> None:
    monkeypatch.setattr(plugins, "registered", lambda kind: {"adamw": made})
    model = build(CONFIG, seed=0)
    if not says:
        assert isinstance(build_optimizer(model, model, OptimizerSettings(name="adamw")), torch.optim.SGD)
        return
    with pytest.raises(PluginError, match=f"The optimizer 'adamw' {says}"):
        build_optimizer(model, model, OptimizerSettings(name="adamw"))


def test_every_family_has_depths_that_grow() -> None:
    for name in ("cvt-13", "coatnet-0", "bit-r50x1", "t2t-vit-7", "deit-ti16-distilled", "r26-vit-s32"):
        with torch.device("meta"):
            network = build(variant(name), seed=None)
        depths = layer_depths(network)
        assert next(iter(depths.values())) == 0
        assert depths["head.weight"] == max(depths.values()) == len(network.blocks()) + 1
