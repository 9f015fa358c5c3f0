"""Each optimizer's update to the last digits, the groups that a recipe makes, clipping, averaging and penalties."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import every_case
from tests.training.conftest import CONFIG
from vitral.models.catalog import variant
from vitral.models.families import build
from vitral.training.optimization.adafactor import Adafactor, factored_axes
from vitral.training.optimization.averaging import Average
from vitral.training.optimization.muon import Muon
from vitral.training.optimization.optimizers import (
    add_penalty,
    build_optimizer,
    clip_by_global_norm,
    global_norm,
    layer_depths,
    set_learning_rate,
)
from vitral.training.optimization.per_parameter import HalfMomentumAdamW, HalfMomentumSGD, Lamb
from vitral.training.optimization.sharpness import perturbed, put_gradients, take_gradients
from vitral.training.settings.sections import OptimizerSettings

GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def train(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, gradients: list[Tensor]) -> Tensor:
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


@every_case(("shape", "axes"), [((40, 64), (0, 1)), ((64, 40), (1, 0)), ((5, 7), None), ((33, 2, 48), (0, 2))])
@every_case("largest", [0.3, 0.999])
def test_adafactor_to_the_last_digits(shape: tuple[int, ...], axes: tuple[int, int] | None, largest: float) -> None:
    """arXiv 2106.04560, section 3.2: factored second moment with decay 1 - t^-0.8 to a limit, first moment in bfloat16."""
    assert factored_axes(shape) == axes
    parameter = nn.Parameter(random(*shape))
    weight, moment = parameter.detach().double().numpy().copy(), torch.zeros(shape)
    gradients = [random(*shape) * 10.0**exponent for exponent in (-2, 0, -1, 1)]
    optimizer = Adafactor([parameter], lr=0.3, beta1=0.7, largest_beta2=largest, weight_decay=0.2)
    rows = columns = full = 0.0
    for step, gradient in enumerate(gradients, 1):
        train(optimizer, parameter, [gradient])
        g = gradient.double().numpy()
        decay = min(1 - step**-0.8, largest)
        if axes is None:
            full = decay * full + (1 - decay) * (g**2 + 1e-30)
        else:
            rows = decay * rows + (1 - decay) * (g**2 + 1e-30).mean(axis=axes[1], keepdims=True)
            columns = decay * columns + (1 - decay) * (g**2 + 1e-30).mean(axis=axes[0], keepdims=True)
            full = rows * columns / np.mean(rows, axis=axes[0], keepdims=True)
        update = torch.from_numpy(g / np.sqrt(full)).float()
        kept = 0.7 * moment + 0.3 * update
        weight = weight * (1 - 0.3 * 0.2) - 0.3 * kept.double().numpy()
        moment = kept.bfloat16().float()
    # Of values half way between two of bfloat16 either may be kept.
    np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=2e-3, atol=2e-3)
    assert float(np.abs(parameter.detach().numpy() - weight).mean()) < 2e-4


def test_adafactor_of_no_gradient_at_all_moves_nothing() -> None:
    for shape in ((40, 50), (3,)):
        parameter = nn.Parameter(torch.ones(shape))
        assert torch.equal(
            train(Adafactor([parameter], lr=0.1), parameter, [torch.zeros(shape)] * 2), torch.ones(shape)
        )


def test_adafactors_own_settings_are_the_papers() -> None:
    optimizer = Adafactor([nn.Parameter(torch.ones(2))], lr=0.1)
    settings = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    assert settings == {"lr": 0.1, "beta1": 0.9, "largest_beta2": 0.999, "weight_decay": 0.0}
    assert factored_axes((32, 32)) is not None
    assert factored_axes((31, 64)) is None
    assert factored_axes((64,)) is None
    assert factored_axes((3, 4), 3) == (0, 1)
    assert factored_axes((3, 3, 64, 128)) == (2, 3)


@every_case("decay", [0.0, 0.02])
def test_lamb_to_the_last_digits(decay: float) -> None:
    parameter = nn.Parameter(random(3, 4))
    weight = parameter.detach().double().numpy().copy()
    gradients = [random(3, 4) * 10.0**exponent for exponent in (-3, 0, 1)]
    optimizer = Lamb([parameter], lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=decay)
    first = second = np.zeros((3, 4))
    for step, gradient in enumerate(gradients, 1):
        train(optimizer, parameter, [gradient])
        g = gradient.double().numpy()
        first, second = 0.8 * first + 0.2 * g, 0.95 * second + 0.05 * g**2
        update = first / (1 - 0.8**step) / (np.sqrt(second / (1 - 0.95**step)) + 1e-3)
        if decay:
            update = update + decay * weight
            update = update * np.linalg.norm(weight) / np.linalg.norm(update)
        weight = weight - 0.1 * update
    np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=3e-5)
    state = optimizer.state[parameter]
    assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.float32


def test_lamb_trusts_a_weight_or_an_update_of_nothing_as_it_is() -> None:
    parameter = nn.Parameter(torch.zeros(4))
    moved = train(Lamb([parameter], lr=0.1, eps=1e-8, weight_decay=0.1), parameter, [torch.ones(4)])
    torch.testing.assert_close(moved, torch.full((4,), -0.1))  # Adam's first step, its trust 1
    still = nn.Parameter(torch.zeros(4))
    assert not train(Lamb([still], lr=0.1, weight_decay=0.1), still, [torch.zeros(4)]).any()


@every_case("optimizer", [Lamb, HalfMomentumAdamW])
def test_adams_kin_have_adams_settings(optimizer: Any) -> None:  # noqa: ANN401
    made = optimizer([nn.Parameter(torch.ones(2))], lr=0.1)
    settings = {key: value for key, value in made.param_groups[0].items() if key != "params"}
    eps = 1e-6 if optimizer is Lamb else 1e-8
    assert settings == {"lr": 0.1, "betas": (0.9, 0.999), "eps": eps, "weight_decay": 0.0}


def test_adam_with_a_rounded_moment_is_adamw_while_nothing_is_rounded() -> None:
    """Gradients of powers of two and betas of a half leave nothing to round in bfloat16."""
    ours, theirs = (nn.Parameter(torch.linspace(-1, 2, 6)) for _ in range(2))
    settings: dict[str, Any] = {"lr": 0.1, "betas": (0.5, 0.75), "eps": 1e-2, "weight_decay": 0.3}
    mine, torchs = HalfMomentumAdamW([ours], **settings), torch.optim.AdamW([theirs], **settings)
    for value in (1.0, 0.5, -2.0):
        train(mine, ours, [torch.full((6,), value)])
        train(torchs, theirs, [torch.full((6,), value)])
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@every_case("nesterov", [False, True])
@every_case("decay", [0.0, 0.25])
def test_sgd_with_a_rounded_moment_is_sgd_while_nothing_is_rounded(nesterov: bool, decay: float) -> None:
    ours, theirs = (nn.Parameter(torch.tensor([1.0, -2.0, 4.0])) for _ in range(2))
    settings: dict[str, Any] = {"lr": 0.5, "momentum": 0.5, "nesterov": nesterov, "weight_decay": decay}
    mine, torchs = HalfMomentumSGD([ours], **settings), torch.optim.SGD([theirs], **settings)
    for value in (1.0, 0.5, -2.0):
        train(mine, ours, [torch.full((3,), value)])
        train(torchs, theirs, [torch.full((3,), value)])
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0.0)
    plain = HalfMomentumSGD([ours], lr=0.5, momentum=0.5).param_groups[0]
    assert (plain["nesterov"], plain["weight_decay"]) == (False, 0.0)


@every_case("dtype", ["float32", "bfloat16"])
@every_case("name", ["sgd", "adam", "adamw", "lamb", "adafactor", "muon"])
def test_a_recipes_settings_reach_the_optimizer(name: Any, dtype: Any) -> None:  # noqa: ANN401
    if dtype == "bfloat16" and name in ("lamb", "adafactor", "muon"):
        return
    model = build(CONFIG, seed=0)
    told: dict[str, Any] = {"name": name, "lr": 0.3, "weight_decay": 0.1, "betas": (0.6, 0.7), "eps": 1e-3}
    told |= {"momentum": 0.5, "nesterov": name in ("sgd", "muon"), "momentum_dtype": dtype}
    told |= {"factored_from": 5} if name == "adafactor" else {}
    settings = OptimizerSettings(**told)
    optimizer = build_optimizer(model, model, settings)
    kinds: dict[tuple[str, str], type] = {
        ("sgd", "float32"): torch.optim.SGD,
        ("sgd", "bfloat16"): HalfMomentumSGD,
        ("lamb", "float32"): Lamb,
        ("adafactor", "float32"): Adafactor,
        ("muon", "float32"): Muon,
        ("adam", "float32"): torch.optim.AdamW,
        ("adamw", "float32"): torch.optim.AdamW,
    }
    assert type(optimizer) is kinds.get((name, dtype), HalfMomentumAdamW)
    group = optimizer.param_groups[0]
    expected: dict[str, Any] = {"lr": 0.3}
    if name == "sgd":
        expected |= {"momentum": 0.5, "nesterov": True}
    elif name == "adafactor":
        expected |= {"beta1": 0.6, "largest_beta2": 0.7}
        assert isinstance(optimizer, Adafactor)
        assert optimizer.factored_from == 5
    else:
        expected |= {"betas": (0.6, 0.7), "eps": 1e-3}
    if name == "muon":
        assert isinstance(optimizer, Muon)
        assert (optimizer.momentum, optimizer.nesterov) == (0.5, True)
    assert {key: group[key] for key in expected} == expected
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))
    if dtype == "float32" and name in ("sgd", "adam", "adamw"):
        assert group["fused"] is True


def groups_of(model: nn.Module, **settings: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
    """Return each parameter's group, by name."""
    optimizer = build_optimizer(model, model, OptimizerSettings(**settings))  # type: ignore[arg-type]
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    return {named[id(parameter)]: group for group in optimizer.param_groups for parameter in group["params"]}


def test_a_steady_gradient_goes_no_further_beyond_optax_than_the_docstring_says() -> None:
    gradient, decay = torch.rand(1000, generator=torch.Generator().manual_seed(0)), torch.tensor(0.9).bfloat16()
    assert float(decay) == 0.8984375
    parameter, theirs, moment = nn.Parameter(torch.zeros(1000)), torch.zeros(1000), torch.zeros(1000).bfloat16()
    optimizer = HalfMomentumSGD([parameter], lr=1.0, momentum=0.9)
    for _ in range(300):
        train(optimizer, parameter, [gradient])
        updated = gradient + (decay * moment).float()  # as optax's trace computes with an accumulator of bfloat16
        theirs, moment = theirs - updated, updated.bfloat16()
    assert float(parameter.detach().sum() / theirs.sum()) == pytest.approx((1 - 0.8984375) / (1 - 0.9), abs=5e-3)


def test_weight_decay_is_on_kernels_or_on_all() -> None:
    model = build(CONFIG, seed=0)
    kernels = groups_of(model, weight_decay=0.1)
    for name, group in kernels.items():
        kernel = name.endswith("weight") and "norm" not in name
        assert group["weight_decay"] == (0.1 if kernel else 0.0), name
    assert {group["weight_decay"] for group in groups_of(model, weight_decay=0.1, decay_on="all").values()} == {0.1}
    assert kernels.keys() == dict(model.named_parameters()).keys()
    assert {group["penalty"] for group in kernels.values()} == {0.0}


def test_the_heads_own_decay_may_be_none_at_all() -> None:
    groups = groups_of(build(CONFIG, seed=0), weight_decay=0.1, head_weight_decay=0.0)
    assert groups["head.weight"]["weight_decay"] == 0.0
    assert groups["encoder.0.mlp.fc1.weight"]["weight_decay"] == 0.1


def test_a_distilled_networks_second_head_is_a_head() -> None:
    config = dataclasses.replace(variant("deit-ti16-distilled"), depth=1, dim=12, mlp_dim=12)
    groups = groups_of(build(config, seed=0), weight_decay=0.1, head_weight_decay=0.7, backbone_lr=0.5)
    assert groups["distillation_head.weight"]["weight_decay"] == groups["head.weight"]["weight_decay"] == 0.7
    assert not groups["distillation_head.weight"]["backbone"]
    assert groups["class_token"]["backbone"]


def test_only_a_smaller_rate_makes_a_backbone() -> None:
    model = build(CONFIG, seed=0)
    assert {group["backbone"] for group in groups_of(model).values()} == {False}
    groups = groups_of(model, backbone_lr=0.1)
    assert {name for name, group in groups.items() if not group["backbone"]} == {"head.weight", "head.bias"}


def test_frozen_parameters_are_in_no_group_and_what_is_beside_the_network_learns_as_the_head() -> None:
    model = build(CONFIG, seed=0)
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    assert groups_of(model).keys() == {"head.weight", "head.bias"}

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = build(CONFIG, seed=0)
            self.mask = nn.Parameter(torch.zeros(1, 1, 3))

    around = Around()
    for decay_on, decay in (("kernels", 0.0), ("kernels-and-tokens", 0.1), ("all", 0.1)):
        settings = OptimizerSettings(weight_decay=0.1, decay_on=decay_on, layer_decay=0.5, backbone_lr=0.5)  # type: ignore[arg-type]
        optimizer = build_optimizer(around, around.network, settings)
        (group,) = (group for group in optimizer.param_groups if any(p is around.mask for p in group["params"]))
        assert (group["weight_decay"], group["scale"], group["backbone"]) == (decay, 1.0, False)


@every_case(("name", "in_loss"), [("sgd", True), ("adamw", False)])
def test_sam_takes_the_decay_of_sgd_for_a_part_of_the_loss(name: str, in_loss: bool) -> None:
    groups = groups_of(build(CONFIG, seed=0), name=name, weight_decay=0.1, sam_rho=0.05)
    weight, bias = groups["head.weight"], groups["head.bias"]
    assert (weight["weight_decay"], weight["penalty"]) == ((0.0, 0.1) if in_loss else (0.1, 0.0))
    assert (bias["weight_decay"], bias["penalty"]) == (0.0, 0.0)


def test_rates_are_shares_of_the_heads_or_of_the_backbones() -> None:
    model = build(CONFIG, seed=0)
    settings = OptimizerSettings(layer_decay=0.5, backbone_lr=0.1)
    optimizer = build_optimizer(model, model, settings)
    set_learning_rate(optimizer, 0.4, 0.03)
    named = dict(model.named_parameters())
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, expected in {
        "head.weight": 0.4,
        "norm.weight": 0.03,
        "encoder.1.mlp.fc1.bias": 0.015,
        "encoder.0.norm1.weight": 0.0075,
        "class_token": 0.00375,
    }.items():
        assert rates[id(named[name])] == pytest.approx(expected), name


def test_what_stands_between_two_blocks_belongs_to_the_one_that_follows() -> None:
    with torch.device("meta"):
        network = build(variant("cvt-13"), seed=None)
    depths = layer_depths(network)
    inside = {id(p): number for number, block in enumerate(network.blocks()) for p in block.parameters()}
    seen = -1
    for name, parameter in network.named_parameters():
        if id(parameter) in inside:
            seen = inside[id(parameter)]
            assert depths[name] == seen + 1
        elif seen == -1:
            assert depths[name] == 0
        else:
            assert depths[name] == min(seen + 2, len(network.blocks()) + 1), name
    assert len(set(depths.values())) == len(network.blocks()) + 2


def test_a_penalty_is_added_to_the_gradients_or_becomes_them() -> None:
    first, second, third = (nn.Parameter(torch.full((2,), float(value))) for value in (1, 2, 3))
    optimizer = torch.optim.SGD(
        [{"params": [first, second], "penalty": 0.5}, {"params": [third], "penalty": 0.0}], lr=0.1
    )
    first.grad = torch.full((2,), 10.0)
    add_penalty([optimizer])
    assert first.grad.tolist() == [10.5, 10.5]
    assert second.grad is not None
    assert second.grad.tolist() == [1.0, 1.0]
    assert not second.grad.requires_grad
    assert third.grad is None
    add_penalty([optimizer], 0.25)
    assert first.grad.tolist() == [10.625, 10.625]
    assert second.detach().tolist() == [2.0, 2.0]


@every_case("limit", [1.0, 5.0, 13.0, 20.0, None])
def test_clipping_is_optaxs(limit: float | None) -> None:
    """optax, clip_by_global_norm: times limit / norm where the norm is larger, and left alone else, with no epsilon."""
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(3))]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])
    norm = clip_by_global_norm(parameters, limit)
    assert float(norm) == 13.0
    scale = 1.0 if limit is None or limit >= 13 else limit / 13
    assert parameters[0].grad.tolist() == pytest.approx([3 * scale, 4 * scale], rel=1e-6)
    assert parameters[1].grad.tolist() == pytest.approx([12 * scale], rel=1e-6)
    assert parameters[2].grad is None
    if limit is None or limit >= 13:
        assert parameters[1].grad.item() == 12.0


def test_the_norm_of_nothing_is_nothing_and_a_gradient_of_nothing_stays() -> None:
    assert float(global_norm([])) == 0.0
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.zeros(2)
    assert float(clip_by_global_norm([parameter], 1.0)) == 0.0
    assert parameter.grad.tolist() == [0.0, 0.0]


def test_the_average_follows_at_its_decay_but_quicker_in_the_beginning() -> None:
    model = nn.Linear(2, 1, bias=False)
    frozen = nn.Parameter(torch.ones(1), requires_grad=False)
    model.register_parameter("frozen", frozen)
    expected = model.weight.detach().double().clone()
    average = Average(model, decay=0.5)
    assert set(average.tensors) == {"weight"}
    for step in range(12):
        with torch.no_grad():
            model.weight.fill_(float(step))
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
        torch.testing.assert_close(average.tensors["weight"], expected.float())
    with average.in_place():
        assert torch.equal(model.weight.detach(), average.tensors["weight"])
        assert model.weight.detach() is not average.tensors["weight"]
    assert model.weight.detach().tolist() == [[11.0, 11.0]]
    average.put()
    assert torch.equal(model.weight.detach(), average.tensors["weight"])
    assert frozen.item() == 1.0


def test_an_error_under_averaged_weights_leaves_the_others() -> None:
    model = nn.Linear(2, 1)
    average = Average(model, decay=0.9)
    with torch.no_grad():
        model.weight.fill_(7.0)
    with pytest.raises(RuntimeError, match="stopped"), average.in_place():
        raise RuntimeError("stopped")
    assert model.weight.detach().tolist() == [[7.0, 7.0]]


def test_a_perturbed_network_moves_by_rho_along_the_whole_gradient_and_back_whatever_happens() -> None:
    parameters = [
        nn.Parameter(torch.tensor([1.0, 2.0])),
        nn.Parameter(torch.tensor([5.0])),
        nn.Parameter(torch.ones(1)),
    ]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    seen: list[list[float]] = []

    def stop_inside() -> None:
        with perturbed(parameters, 0.5):
            seen.extend(parameter.detach().tolist() for parameter in parameters)
            assert all(parameter.grad is None for parameter in parameters)
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop_inside()
    assert [value for values in seen for value in values] == pytest.approx([1.3, 2.0, 5.4, 1.0])
    assert [parameter.detach().tolist() for parameter in parameters] == [[1.0, 2.0], [5.0], [1.0]]


def test_gradients_are_taken_away_and_given_back() -> None:
    parameters = [nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))]
    gradient = torch.tensor([3.0])
    parameters[0].grad = gradient
    taken = take_gradients(parameters)
    assert parameters[0].grad is None
    assert [held is parameters[0] for held, _ in taken] == [True]
    put_gradients(taken)
    assert parameters[0].grad is gradient
    assert parameters[1].grad is None


def test_a_step_changes_what_has_a_gradient() -> None:
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
    parameters[0].grad = torch.ones(2)
    optimizer = HalfMomentumSGD(parameters, lr=0.5, momentum=0.0)
    optimizer.step()
    assert parameters[0].detach().tolist() == [0.5, 0.5]
    assert parameters[1].detach().tolist() == [1.0, 1.0]
    assert math.isfinite(float(global_norm([parameters[0].grad])))
