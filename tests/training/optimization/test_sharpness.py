"""Sharpness-aware minimisation against its algorithm."""

import dataclasses
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.cases import every_case
from tests.training.conftest import CONFIG, Run
from vitral.data.batch import Batch
from vitral.data.generated import open_digits
from vitral.data.loader import TrainingBatches
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.families import build
from vitral.models.model import Model
from vitral.objectives.classification import softmax_cross_entropy
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.supervised import Supervised
from vitral.training.optimization.optimizers import build_optimizer
from vitral.training.optimization.sharpness import perturbed, radius
from vitral.training.settings.recipe import build_recipe
from vitral.training.settings.sections import OptimizerSettings
from vitral.training.step import Step


def sharp_update(groups: int, *, shared: bool, decay: float) -> tuple[Model, Tensor, Tensor]:
    """Return a network, and its gradient by SAM: ours, and by the formula with a climb for each of so many groups."""
    torch.manual_seed(0)
    model = build(dataclasses.replace(CONFIG, dropout=0.0), seed=0)
    torch.nn.init.normal_(model.head.weight, std=0.3)
    images, labels = torch.randint(0, 256, (8, 3, 8, 8), dtype=torch.uint8), torch.arange(8)
    optimizer = {"name": "sgd", "weight_decay": decay, "decay_on": "all", "sam_rho": 0.5}
    optimizer |= {} if shared else {"sam_images": 8 // groups}
    recipe = build_recipe({"batch_size": 8, "precision": "fp32", "optimizer": optimizer}, "test")
    step = Step(Supervised(model, recipe, SINGLE_LABEL), recipe, PHOTOS.normalize)
    batch = Batch(images, labels, labels, 0)
    step.learn(batch, 0, step.statistics.copy(), 0.1)
    inputs = PHOTOS.normalize(images)
    ours = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    weights = [p.detach().clone().requires_grad_() for p in model.parameters()]
    names = [name for name, _ in model.named_parameters()]

    def gradient(at: list[Tensor], rows: slice) -> Tensor:
        logits = torch.func.functional_call(model, dict(zip(names, at, strict=True)), (inputs[rows],))
        loss = softmax_cross_entropy(logits, labels[rows]) + decay / 2 * sum(w.square().sum() for w in at)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, at)])

    exact = torch.zeros_like(ours)
    each = 8 // groups
    for group in range(groups):
        rows = slice(group * each, (group + 1) * each)
        climb = gradient(weights, rows)
        moves = torch.split(0.5 * climb / climb.norm(), [w.numel() for w in weights])
        there = [(w + move.view_as(w)).detach().requires_grad_() for w, move in zip(weights, moves, strict=True)]
        exact += gradient(there, rows) / groups
    return model, ours, exact


@every_case("decay", [0.0, 0.1])
@every_case("groups", [1, 2, 4])
def test_sam_counts_the_decay_as_loss_and_climbs_by_each_group_of_images(groups: int, decay: float) -> None:
    model, ours, exact = sharp_update(groups, shared=groups == 1, decay=decay)
    torch.testing.assert_close(ours, exact, rtol=1e-3, atol=1e-5)
    one_climb = sharp_update(1, shared=True, decay=decay)[1]
    assert (groups == 1) == bool(torch.allclose(ours, one_climb, rtol=1e-3, atol=1e-5))


def test_sam_does_not_decay_twice() -> None:
    model = build(CONFIG, seed=0)
    settings = OptimizerSettings(name="sgd", weight_decay=0.1, sam_rho=0.05)
    assert {group["weight_decay"] for group in build_optimizer(model, model, settings).param_groups} == {0.0}
    decoupled = OptimizerSettings(name="adamw", weight_decay=0.1, sam_rho=0.05)
    groups = build_optimizer(model, model, decoupled).param_groups
    assert {(group["weight_decay"], group["penalty"]) for group in groups} == {(0.1, 0.0), (0.0, 0.0)}


def test_sharpness_climbs_by_rho_in_all_and_comes_back_to_the_same_bits() -> None:
    model = build(CONFIG, seed=0)
    torch.nn.init.normal_(model.head.weight, std=0.1)
    images, labels = torch.randn(4, 3, 8, 8), torch.arange(4)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    softmax_cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
    with perturbed(model.parameters(), 0.05):
        moves = [p.detach() - old for p, old in zip(model.parameters(), before, strict=True)]
        for move, gradient in zip(moves, gradients, strict=True):
            torch.testing.assert_close(move, 0.05 * gradient / norm, rtol=1e-3, atol=1e-6)
        assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_batch_norms_move_once_an_update_however_many_groups_climb(run: Run) -> None:
    """The mean of the groups' means is that of the whole batch; once for each group it was several steps."""

    def statistics(images_a_climb: int) -> Tensor:
        recipe = run.recipe(averaging={}, optimizer={"name": "sgd", "sam_rho": 0.05, "sam_images": images_a_climb})
        config = replace(variant("resnet-18"), stages=(1,), num_classes=10, image_size=(32, 32))
        network = build(config, seed=0).train()
        data = open_digits()
        batch = TrainingBatches(
            data.splits["train"], batch_size=16, image_size=(32, 32), augmentation=data.augmentation, seed=0
        ).batch(0)
        Step(Supervised(network, recipe, SINGLE_LABEL), recipe, PHOTOS.normalize)(batch, 0, 0.1, 0.1)
        return network.get_buffer("root_norm.running_mean").clone()

    whole = statistics(16)
    assert float(whole.abs().max()) > 1e-3
    torch.testing.assert_close(statistics(4), whole, rtol=1e-2, atol=1e-3 * float(whole.abs().max()))


@every_case("groups", [1, 2, 4])
@every_case("alpha", [0.2, 0.6])
def test_the_surrogate_gap_takes_away_what_the_climb_leaves(groups: int, alpha: float) -> None:
    torch.manual_seed(0)
    model = build(dataclasses.replace(CONFIG, dropout=0.0), seed=0)
    torch.nn.init.normal_(model.head.weight, std=0.3)
    images, labels = torch.randint(0, 256, (8, 3, 8, 8), dtype=torch.uint8), torch.arange(8)
    optimizer = {"name": "adam", "lr": 0.003, "sam_rho": 0.6, "sam_final_rho": 0.1, "gsam_alpha": alpha}
    optimizer |= {"sam_images": 8 // groups} if groups > 1 else {}
    settings = {"batch_size": 8, "precision": "fp32", "optimizer": optimizer, "schedule": {"final_lr": 0.0003}}
    recipe = build_recipe(settings, "test")
    step = Step(Supervised(model, recipe, SINGLE_LABEL), recipe, PHOTOS.normalize)
    step.learn(Batch(images, labels, labels, 0), 0, step.statistics.copy(), 0.002)
    ours = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    inputs = PHOTOS.normalize(images)

    def gradient(rows: slice) -> Tensor:
        loss = softmax_cross_entropy(model(inputs[rows]), labels[rows])
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    rho = 0.1 + (0.6 - 0.1) * (0.002 - 0.0003) / (0.003 - 0.0003)  # big_vision's gsam.py
    exact, each = torch.zeros_like(ours), 8 // groups
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    for group in range(groups):
        rows = slice(group * each, (group + 1) * each)
        clean = gradient(rows)
        torch.nn.utils.vector_to_parameters(start + rho * clean / clean.norm(), model.parameters())
        robust = gradient(rows)
        torch.nn.utils.vector_to_parameters(start, model.parameters())
        direction = robust / robust.norm()
        exact += (robust - alpha * (clean - (clean @ direction) * direction)) / groups
    torch.testing.assert_close(ours, exact, rtol=2e-3, atol=2e-5)


def test_the_radius_follows_the_learning_rate() -> None:
    settings = OptimizerSettings(lr=0.4, sam_rho=0.6, sam_final_rho=0.1)
    assert [radius(rate, settings, 0.2) for rate in (0.4, 0.3, 0.2)] == pytest.approx([0.6, 0.35, 0.1])
    assert radius(0.3, OptimizerSettings(lr=0.4, sam_rho=0.6), 0.2) == 0.6
    assert radius(0.3, settings, 0.4) == 0.6
