"""Muon against its formula in float64 and torch's own, and which parameters it is for."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import every_case
from tests.training.conftest import CONFIG
from vitral.errors import RecipeError
from vitral.models.catalog import variant
from vitral.models.families import build
from vitral.training.optimization.adaptation import adapt
from vitral.training.optimization.muon import Muon, hidden_matrices, orthogonal
from vitral.training.optimization.optimizers import build_optimizer, set_learning_rate
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import AdaptationSettings, OptimizerSettings

GENERATOR = torch.Generator().manual_seed(0)
ROUNDED = 0.03  # what bfloat16 makes of five steps, as a share of the norm


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def newton_schulz(matrix: np.ndarray) -> np.ndarray:
    """Five steps on the singular values themselves: each step maps s to 3.4445 s - 4.775 s^3 + 2.0315 s^5."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values = values / np.sqrt(np.square(values).sum())
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return (left * values) @ right


def distance(one: Tensor | np.ndarray, other: Tensor | np.ndarray) -> float:
    first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return float(np.linalg.norm(first - second) / np.linalg.norm(second))


@every_case("shape", [(1, 24, 40), (1, 40, 24), (3, 32, 32), (2, 64, 576), (1, 1, 9)])
def test_an_update_is_orthogonal_whatever_its_matrix(shape: tuple[int, ...]) -> None:
    matrices = random(*shape) * 1e-3
    made = orthogonal(matrices)
    assert made.shape == matrices.shape
    assert made.dtype == torch.float32
    values = torch.linalg.svdvals(made)
    typical = torch.linalg.svdvals(matrices) > 0.1 * torch.linalg.matrix_norm(matrices)[:, None] / min(shape[1:])
    assert float(values[typical].min()) > 0.6
    assert float(values.max()) < 1.3
    for one, matrix in zip(made, matrices, strict=True):
        assert distance(one, newton_schulz(matrix.numpy().astype(np.float64))) < ROUNDED


def test_no_gradient_at_all_moves_nothing() -> None:
    assert torch.equal(orthogonal(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def reference(weight: np.ndarray, gradients: list[np.ndarray], *, nesterov: bool) -> np.ndarray:
    """Muon at rate 0.1, momentum 0.8 and decay 0.5 on one matrix, in float64."""
    moment = np.zeros_like(weight)
    for gradient in gradients:
        moment = 0.8 * moment + 0.2 * gradient
        direction = 0.8 * moment + 0.2 * gradient if nesterov else moment
        weight = weight * (1 - 0.1 * 0.5) - 0.1 * 0.2 * np.sqrt(max(weight.shape)) * newton_schulz(direction)
    return weight


@every_case("nesterov", [True, False])
def test_muon_is_its_formula_for_every_kind_of_matrix(nesterov: bool) -> None:
    kinds: dict[str, tuple[tuple[int, ...], int]] = {
        "wide": ((24, 40), 1),
        "tall": ((40, 24), 1),
        "as wide": ((24, 40), 1),
        "convolution": ((16, 8, 3, 3), 1),
        "query, key and value": ((72, 24), 3),
        "experts": ((4, 12, 20), 1),
    }
    parameters = {kind: nn.Parameter(random(*shape)) for kind, (shape, _) in kinds.items()}
    before = {kind: parameter.detach().double().numpy() for kind, parameter in parameters.items()}
    gradients = [{kind: random(*shape) for kind, (shape, _) in kinds.items()} for _ in range(4)]
    optimizer = Muon(
        parameters.values(),
        {parameters[kind]: number for kind, (_, number) in kinds.items()},
        lr=0.1,
        momentum=0.8,
        nesterov=nesterov,
        weight_decay=0.5,
    )
    for step in gradients:
        for kind, parameter in parameters.items():
            parameter.grad = step[kind].clone()
        optimizer.step()
    for kind, (shape, number) in kinds.items():
        matrices = shape if len(shape) == 3 else (number, shape[0] // number, int(np.prod(shape[1:])))
        start = before[kind].reshape(matrices)
        steps = [step[kind].double().numpy().reshape(matrices) for step in gradients]
        expected = [
            reference(start[one], [step[one] for step in steps], nesterov=nesterov) for one in range(matrices[0])
        ]
        moved = parameters[kind].detach().numpy().reshape(matrices) - start * 0.95**4
        assert distance(moved, np.stack(expected) - start * 0.95**4) < ROUNDED, kind


@every_case(("rows", "columns"), [(48, 32), (32, 48)])
@every_case(("nesterov", "ns_steps"), [(True, 5), (False, 5), (True, 3)])
def test_muon_of_one_matrix_is_torchs(rows: int, columns: int, nesterov: bool, ns_steps: int) -> None:
    ours = nn.Parameter(random(rows, columns))
    theirs = nn.Parameter(ours.detach().clone())
    settings: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.3, "momentum": 0.9}
    settings |= {"nesterov": nesterov, "ns_steps": ns_steps}
    optimizers = (
        Muon([ours], {ours: 1}, **settings),
        torch.optim.Muon([theirs], **settings, adjust_lr_fn="match_rms_adamw"),
    )
    start = ours.detach().clone()
    for _ in range(5):
        gradient = random(rows, columns)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    assert distance(ours.detach() - start, theirs.detach() - start) < ROUNDED


def test_the_recipe_says_how_orthogonal_an_update_is() -> None:
    model = build(CONFIG, seed=0)
    muon = build_optimizer(model, model, OptimizerSettings(name="muon", ns_steps=3))
    assert isinstance(muon, Muon)
    assert muon.ns_steps == 3
    assert OptimizerSettings(name="muon").ns_steps == 5


def test_what_is_no_hidden_matrix_learns_by_adamw_to_the_bit() -> None:
    model, other = build(CONFIG, seed=0), build(CONFIG, seed=0)
    settings: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6, "layer_decay": 0.7}
    ours = build_optimizer(model, model, OptimizerSettings(name="muon", **settings))
    theirs = build_optimizer(other, other, OptimizerSettings(name="adamw", **settings))
    for rate in (0.01, 0.02, 0.005):
        for one, same in zip(model.parameters(), other.parameters(), strict=True):
            one.grad = random(*one.shape)
            same.grad = one.grad.clone()
        for optimizer in (ours, theirs):
            set_learning_rate(optimizer, rate, rate)
            optimizer.step()
    hidden = hidden_matrices(model)
    assert len(hidden) == 4 * CONFIG.depth
    for (name, one), same in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same) == (one not in hidden), name


TABLES = r"class_token|distillation_token|position\.embedding"
BY_ADAMW = {  # every parameter of two axes or more, of a network of each family, that is not a hidden matrix
    "vit-b16": rf"{TABLES}|patch_embedding.weight|head.weight",
    "vit-s16-map": rf"{TABLES}|patch_embedding.weight|head.weight|map_head.probe",
    "deit-ti16-distilled": rf"{TABLES}|patch_embedding.weight|head.weight|distillation_head.weight",
    "r50-vit-b16": rf"{TABLES}|stem.root.weight|head.weight",
    "vmoe-s32": rf"{TABLES}|patch_embedding.weight|head.weight|encoder.*.mlp.(router.weight|fc[12].bias)",
    "bit-r50x1": r"root.weight|head.weight",
    "resnet-18": r"root.weight|head.weight",
    "t2t-vit-7": r"class_token|token_layers.0.kqv.weight|head.weight",
    "t2t-vit-t-14": r"class_token|token_layers.0.qkv.weight|head.weight",
    "cvt-13": r"stages.2.class_token|stages.0.embedding.weight|.*_map.convolution.weight|head.weight",
    "coatnet-0": r"stem1.weight|.*depthwise.weight|.*attention.bias|head.weight",
    "efficientnet-b0": r"stem.weight|.*depthwise.weight|head.weight",
    "tinyvit-5m": r"stem1.weight|.*(depthwise|local).weight|.*windows.bias|head.weight",
}


@every_case("name", BY_ADAMW)
def test_each_familys_hidden_matrices_are_found(name: str) -> None:
    network = build(variant(name), seed=None)
    hidden = hidden_matrices(network)
    others = {
        parameter: re.fullmatch(BY_ADAMW[name], path)
        for path, parameter in network.named_parameters()
        if parameter.ndim > 1
    }
    wrong = [path for path, one in network.named_parameters() if (one in hidden) != (others.get(one, True) is None)]
    assert wrong == []
    thirds = {path for path, one in network.named_parameters() if hidden.get(one) == 3}
    assert thirds == {
        path
        for path, one in network.named_parameters()
        if path.endswith(("qkv.weight", "kqv.weight")) and one in hidden
    }
    assert bool(thirds) == (not name.startswith(("bit", "resnet", "cvt", "efficientnet")))


def test_what_lora_changes_learns_by_adamw() -> None:
    network = build(CONFIG, seed=0)
    adapt(network, AdaptationSettings(method="lora"), seed=0)
    hidden = hidden_matrices(network)
    assert [one for one in network.parameters() if one.requires_grad and one in hidden] == []
    optimizer = build_optimizer(network, network, OptimizerSettings(name="muon"))
    network(torch.randn(2, 3, *CONFIG.image_size)).sum().backward()
    optimizer.step()
    assert {key for state in optimizer.state.values() for key in state} == {"step", "exp_avg", "exp_avg_sq"}


def test_the_momentum_follows_from_the_optimizer_unless_a_recipe_says_it() -> None:
    def momentum(recipe: Recipe) -> tuple[float, bool]:
        return recipe.optimizer.momentum, recipe.optimizer.nesterov

    plain = Recipe()
    assert momentum(plain) == momentum(plain.changed(["optimizer.name=sgd"])) == (0.9, False)
    assert momentum(plain.changed(["optimizer.name=muon"])) == (0.95, True)
    assert momentum(plain.with_changes({"optimizer.name": "muon", "image_size": 32})) == (0.95, True)
    said = plain.changed(["optimizer.momentum=0.9"])
    assert momentum(said.changed(["optimizer.name=muon", "optimizer.nesterov=false"])) == (0.9, False)
    with pytest.raises(RecipeError, match="momentum_dtype belongs to 'sgd', 'adam' and 'adamw'"):
        plain.changed(["optimizer.name=muon", "optimizer.momentum_dtype=bfloat16"])
