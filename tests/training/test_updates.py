"""What a step is made of, against formulas: optimizers, sharpness, schedules, mixing, erasing, adaptation, masked patches."""

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.training.conftest import CONFIG, Run
from vitral.data.digits import open_digits
from vitral.data.loader import Batch, TrainingBatches
from vitral.errors import ModelError, RecipeError
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import build, create_model, variant
from vitral.models.experts import ExpertsConfig
from vitral.models.layers import part_of_batch
from vitral.models.model import Model
from vitral.models.vit import ViTConfig
from vitral.objectives.classification import sigmoid_cross_entropy, softmax_cross_entropy
from vitral.objectives.masked_patches import MaskedPatchPrediction, choose_patches, mean_colours
from vitral.training.mixing import Mixer, erase
from vitral.training.objective import Classification
from vitral.training.optimization.adafactor import Adafactor, factored_axes
from vitral.training.optimization.adaptation import adapt, settle
from vitral.training.optimization.half_momentum import HalfMomentumAdamW, HalfMomentumSGD
from vitral.training.optimization.lamb import Lamb
from vitral.training.optimization.optimizers import build_optimizer, layer_depths, set_learning_rate
from vitral.training.optimization.schedules import learning_rate
from vitral.training.optimization.sharpness import perturbed
from vitral.training.settings.recipe import build_recipe
from vitral.training.settings.sections import AdaptationSettings, MixingSettings, OptimizerSettings
from vitral.training.update import Update, Updater


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


@pytest.mark.parametrize("shape", [(40, 64), (5, 7), (3,), (32, 2, 48)])
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


@pytest.mark.parametrize("nesterov", [False, True])
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


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
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


def test_the_backbone_has_a_curve_of_its_own(run: Run) -> None:
    seen: list[tuple[float, float]] = []

    class Watched(Updater):
        def __call__(self, batch: Batch, step: int, rate: float, backbone_rate: float, *, stop: bool) -> Update:
            made = super().__call__(batch, step, rate, backbone_rate, stop=stop)
            named = dict(self.network.named_parameters())
            rates = {id(p): group["lr"] for group in self.optimizer.param_groups for p in group["params"]}
            assert {rates[id(p)] for name, p in named.items() if not name.startswith("head.")} == {backbone_rate}
            assert rates[id(named["head.weight"])] == rates[id(named["head.bias"])] == rate
            seen.append((rate, backbone_rate))
            return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitral.training.loop.Updater", Watched)
        run.train(
            optimizer={"name": "sgd", "lr": 0.05, "backbone_lr": 0.01},
            schedule={"warmup_steps": 0, "final_lr": 2e-4},
        )
    assert seen[0] == pytest.approx((0.05, 5e-4))
    assert seen[15] == pytest.approx((0.0251, 3.5e-4))  # half way; each is on its way to the same floor
    assert seen[-1][1] > 2e-4


def sharp_update(groups: int, *, shared: bool, decay: float) -> tuple[Model, Tensor, Tensor]:
    """Return a network, and its gradient by SAM: ours, and by the formula with a climb for each of so many groups."""
    torch.manual_seed(0)
    model = build(dataclasses.replace(CONFIG, dropout=0.0), seed=0)
    torch.nn.init.normal_(model.head.weight, std=0.3)
    images, labels = torch.randint(0, 256, (8, 3, 8, 8), dtype=torch.uint8), torch.arange(8)
    optimizer = {"name": "sgd", "weight_decay": decay, "decay_on": "all", "sam_rho": 0.5}
    optimizer |= {} if shared else {"sam_images": 8 // groups}
    recipe = build_recipe({"batch_size": 8, "precision": "fp32", "optimizer": optimizer}, "test")
    updater = Updater(model, recipe, PHOTOS.normalize, erasing=0.0)
    batch = Batch(images, labels, labels, 0)
    updater.sharp_gradients(batch, 0, 0.5)
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


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("groups", [1, 2, 4])
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


def test_every_family_has_depths_that_grow() -> None:
    for name in ("cvt-13", "coatnet-0", "bit-r50x1", "t2t-vit-7", "deit-ti16-distilled", "r26-vit-s32"):
        with torch.device("meta"):
            network = build(variant(name), seed=None)
        depths = layer_depths(network)
        assert next(iter(depths.values())) == 0
        assert depths["head.weight"] == max(depths.values()) == len(network.blocks()) + 1


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.0), (50, 0.5), (100, 1.0), (400, 0.5), (940, 0.5 / math.sqrt(3.8) * 2 * 0.6), (1000, 0.0)],
)
def test_rsqrt_with_cool_down(step: int, expected: float) -> None:
    rate = learning_rate(
        step, base=1.0, total_steps=1000, warmup_steps=100, decay="rsqrt", timescale=100, cooldown_steps=100
    )
    if step == 940:
        expected = 0.6 / math.sqrt(1 + 840 / 100)
    assert rate == pytest.approx(expected)


def test_steps_are_hyperrules() -> None:
    def rate(step: int) -> float:
        return learning_rate(
            step, base=0.003, total_steps=500, warmup_steps=100, decay="steps", milestones=(0.4, 0.6, 0.8)
        )

    assert [rate(step) for step in (0, 50, 100, 200)] == pytest.approx([0, 0.0015, 0.003, 0.003])
    assert [rate(step) for step in (201, 301, 401)] == pytest.approx([3e-4, 3e-5, 3e-6])


def test_warm_up_from_a_rate_and_a_cool_down_at_one() -> None:
    options: dict[str, Any] = {"base": 1.0, "total_steps": 100, "warmup_steps": 10, "decay": "cosine"}
    options |= {"final": 0.1, "warmup_lr": 0.2, "cooldown_steps": 20}
    rates = [learning_rate(step, **options) for step in (0, 5, 10, 45, 80, 99)]
    assert rates == pytest.approx([0.2, 0.6, 1.0, 0.55, 0.1, 0.1])


@pytest.mark.parametrize(
    ("epoch", "expected"),
    # timm 1.0's CosineLRScheduler(t_initial=300, lr_min=1e-5, warmup_t=5, warmup_lr_init=1e-6) at DeiT's rate of 1e-3
    [(0, 1e-6), (1, 2.008e-4), (4, 8.002e-4), (5, 9.99321619703514e-4), (150, 5.05e-4), (299, 1.002714116407149e-5)],
)
def test_timms_cosine_counts_from_the_start_and_changes_once_an_epoch(epoch: int, expected: float) -> None:
    options: dict[str, Any] = {"base": 1e-3, "total_steps": 3000, "warmup_steps": 50, "decay": "cosine", "final": 1e-5}
    options |= {"warmup_lr": 1e-6, "curve_from": "start", "hold_steps": 10}
    for step in (10 * epoch, 10 * epoch + 9):
        assert learning_rate(step, **options) == pytest.approx(expected, rel=1e-12)


def test_mixing_mixes_each_image_with_the_one_before_it() -> None:
    images = torch.arange(5.0).view(5, 1, 1, 1).expand(5, 3, 4, 4).contiguous()
    labels = torch.arange(5)
    mixer = Mixer(MixingSettings(mixup=1.0), num_classes=5, seed=7)
    mixed, shares = mixer(images, labels, step=3)
    share = float(shares[0, 1])
    assert mixed.shape == (4, 3, 4, 4)
    torch.testing.assert_close(mixed[:, 0, 0, 0], torch.arange(1.0, 5) - (1 - share))
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(4))
    again, _ = mixer(images, labels, step=3)
    assert torch.equal(mixed, again)
    assert not torch.equal(mixed, mixer(images, labels, step=4)[0])


def test_cutmix_shares_are_the_areas() -> None:
    images = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 3, 16, 16).contiguous()
    mixer = Mixer(MixingSettings(cutmix=1.0), num_classes=3, seed=0)
    for step in range(10):
        mixed, shares = mixer(images, torch.arange(3), step=step)
        kept = float((mixed[0, 0] == 1.0).float().mean())
        assert float(shares[0, 1]) == pytest.approx(kept, abs=1e-6)


def test_both_kinds_are_drawn() -> None:
    images = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 3, 8, 8).contiguous()
    mixer = Mixer(MixingSettings(mixup=1.0, cutmix=1.0), num_classes=2, seed=0)
    whole = [len(torch.unique(mixer(images, torch.arange(2), step=step)[0])) == 1 for step in range(30)]
    assert 5 < sum(whole) < 25


def test_erasing_is_a_function_of_the_place_in_the_batch() -> None:
    images = torch.zeros(8, 3, 32, 32)
    erased = erase(images.clone(), 0.5, seed=1, step=2, first=0, batch_size=8)
    part = erase(images[4:].clone(), 0.5, seed=1, step=2, first=4, batch_size=8)
    assert torch.equal(erased[4:], part)
    touched = (erased != 0).flatten(1).any(dim=1)
    assert 0 < touched.sum() < 8
    box = (erased[touched][0, 0] != 0).float()
    assert 0.02 < float(box.mean()) < 0.4


def test_erased_boxes_have_the_areas_and_shapes_of_their_source() -> None:
    state = torch.get_rng_state()
    erased = erase(torch.zeros(3000, 3, 48, 64), 0.25, seed=1, step=0, first=0, batch_size=3000)
    assert torch.equal(torch.get_rng_state(), state)
    boxes = []
    for image in erased:
        rows, columns = torch.nonzero(image[0], as_tuple=True)
        if len(rows):
            boxes.append([int(places.max() - places.min()) + 1 for places in (rows, columns)])
            assert len(rows) == boxes[-1][0] * boxes[-1][1]
    assert abs(len(boxes) - 750) < 120
    heights, widths = torch.tensor(boxes, dtype=torch.float64).T
    areas, aspects = heights * widths / (48 * 64), (heights / widths).log() / math.log(1 / 0.3)
    assert 0.015 < areas.min() < 0.03
    assert 0.31 < areas.max() < 0.345
    assert abs(float((areas < (0.02 + 1 / 3) / 2).double().mean()) - 0.5) < 0.1  # a few tall ones do not fit
    assert -1.1 < aspects.min() < -0.9
    assert 0.85 < aspects.max() < 1.1
    noise = erased[erased != 0]
    assert abs(float(noise.mean())) < 0.01
    assert abs(float(noise.std()) - 1) < 0.01


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 3)])
def test_erasing_leaves_an_image_that_no_box_fits_in(size: tuple[int, int]) -> None:
    erased = erase(torch.zeros(40, 3, *size), 1.0, seed=0, step=0, first=0, batch_size=40)
    assert not (erased != 0).flatten(1).all(dim=1).any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_labels_as_numbers_or_as_shares(smoothing: float) -> None:
    logits, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 1, 1])
    shares = nn.functional.one_hot(labels, 4).float()
    for loss in (softmax_cross_entropy, sigmoid_cross_entropy):
        torch.testing.assert_close(
            loss(logits, labels, label_smoothing=smoothing), loss(logits, shares, label_smoothing=smoothing)
        )
    mixed = torch.tensor([[0.7, 0.3, 0.0, 0.0]])
    binary = sigmoid_cross_entropy(logits[:1], mixed, binary_targets=True)
    torch.testing.assert_close(binary, sigmoid_cross_entropy(logits[:1], torch.tensor([[1.0, 1.0, 0.0, 0.0]])))


def test_deit3s_loss_is_torchs_own() -> None:
    network, logits = build(CONFIG, seed=0), torch.randn(5, 10)
    mixed = torch.rand(5, 10).where(torch.rand(5, 10) < 0.3, 0.0)
    objective = {"name": "sigmoid", "binary_targets": True, "mean_over_classes": True}
    loss = Classification(network, build_recipe({"objective": objective}, "test")).loss(logits, mixed)
    torch.testing.assert_close(loss, nn.BCEWithLogitsLoss()(logits, mixed.gt(0.0).float()))


@pytest.mark.parametrize("method", ["probe", "lora"])
def test_what_is_frozen_stays(run: Run, method: str) -> None:
    start = {name: tensor.clone() for name, tensor in build(CONFIG, seed=1).state_dict().items()}
    model, _ = run.train(adaptation={"method": method, "lora_rank": 2}, optimizer={"lr": 0.01})
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, start[name])}
    assert {"head.weight", "head.bias"} <= changed
    others = changed - {"head.weight", "head.bias"}
    if method == "probe":
        assert others == set()
    else:
        assert others == {f"encoder.{b}.{layer}.weight" for b in (0, 1) for layer in LAYERS}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.state_dict().keys() == start.keys()


LAYERS = ("attention.qkv", "attention.out", "mlp.fc1", "mlp.fc2")


def test_low_rank_changes_start_at_nothing_and_go_into_the_weights() -> None:
    model = build(CONFIG, seed=0)
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(2, 3, 8, 8)
    model.eval()
    before = model(images)
    adapt(model, AdaptationSettings(method="lora", lora_rank=2), seed=0)
    torch.testing.assert_close(model(images), before)
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert learned < 0.6 * sum(p.numel() for p in model.parameters())
    for name, parameter in model.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(parameter)
    adapted = model(images)
    assert not torch.allclose(adapted, before)
    settle(model)
    torch.testing.assert_close(model(images), adapted)
    assert not any("parametrizations" in name for name in model.state_dict())


def test_first_blocks_can_be_frozen() -> None:
    model = build(CONFIG, seed=0)
    adapt(model, AdaptationSettings(frozen_blocks=1), seed=0)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert all(name.startswith(("encoder.0.", "patch_embedding", "class_token", "position")) for name in frozen)
    assert "encoder.0.norm1.weight" in frozen
    with pytest.raises(RecipeError, match="only 2 blocks"):
        adapt(model, AdaptationSettings(frozen_blocks=3), seed=0)


def test_stochastic_depth_is_drawn_for_the_whole_batch() -> None:
    config = ViTConfig(
        image_size=(8, 8), patch_size=(4, 4), dim=16, depth=3, mlp_dim=32, num_heads=2, stochastic_depth=0.5
    )
    model = build(config, seed=0).train()
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(8, 3, 8, 8)
    torch.manual_seed(5)
    whole = model(images)
    torch.manual_seed(5)
    with part_of_batch(4, 8):
        part = model(images[4:])
    torch.testing.assert_close(whole[4:], part)


def test_colours_of_patches() -> None:
    pixels = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    pixels[0, 0, :4, :4], pixels[0, 1, 4:, 4:], pixels[0, 2] = 255, 128, 31
    assert mean_colours(pixels, (4, 4)).tolist() == [[7 * 64, 0, 0, 4 * 8]]


def test_masked_patches_are_corrupted_as_the_paper_says() -> None:
    assert choose_patches(10, 49, 0.5).sum(dim=1).tolist() == [24] * 10
    network = build(ViTConfig(image_size=(64, 64), patch_size=(4, 4), dim=8, depth=1, mlp_dim=8, num_heads=1), seed=0)
    module = MaskedPatchPrediction(network, share=0.5, seed=0)
    torch.nn.init.constant_(module.mask, 7.0)
    patches = torch.arange(256.0).view(1, 256, 1).expand(40, 256, 8).contiguous()
    corrupted = choose_patches(40, 256, 0.5)
    seen = module.corrupt(patches, corrupted)
    assert torch.equal(seen[~corrupted], patches[~corrupted])
    masked = (seen[corrupted] == 7.0).all(dim=1).float().mean()
    same = (seen[corrupted] == patches[corrupted]).all(dim=1).float().mean()
    assert float(masked) == pytest.approx(0.8, abs=0.03)
    assert float(same) == pytest.approx(0.1, abs=0.03)
    with pytest.raises(ModelError, match="plain grid"):
        MaskedPatchPrediction(create_model("r-vit-ti16", num_classes=2), share=0.5, seed=0)


def test_a_network_learns_the_colours_of_hidden_patches(run: Run) -> None:
    _, result = run.train(
        steps=200, objective={"name": "masked-patches"}, optimizer={"lr": 0.003}, averaging={}, batch_size=32
    )
    losses = [row["loss"] for row in result.history if "loss" in row]
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"mixing": {"mixup": 0.5, "cutmix": 0.5}},
        {"optimizer": {"sam_rho": 0.05}},
        {"optimizer": {"name": "sgd", "sam_rho": 0.05, "sam_images": 4, "weight_decay": 0.01, "nesterov": True}},
        {"optimizer": {"name": "sgd", "momentum_dtype": "bfloat16", "backbone_lr": 0.1}},
        {"optimizer": {"momentum_dtype": "bfloat16", "decay_on": "all", "weight_decay": 0.1}},
        {"optimizer": {"name": "lamb"}},
        {"optimizer": {"name": "adafactor"}},
        {"optimizer": {"name": "sgd", "lr": 0.1}},
        {"adaptation": {"method": "lora"}},
        {"compute": {"accumulation": 4, "checkpointing": True}},
        {"objective": {"name": "sigmoid", "binary_targets": True, "mean_over_classes": True}},
        {"objective": {"name": "masked-patches"}},
    ],
    ids=str,
)
def test_every_way_of_training_resumes_to_the_same_bits(run: Run, other_run: Run, changes: dict[str, Any]) -> None:
    run.train(**changes)
    other_run.train(steps=30, **changes, checkpoint={"every_steps": 7})
    for path in sorted((other_run.folder / "checkpoints").glob("step-*"))[-1:]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    _, again = other_run.train(resume=True, **changes, checkpoint={"every_steps": 7})
    assert again.steps == 30
    assert run.bits() == other_run.bits()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixing": {"mixup": 0.1}, "objective": {"name": "masked-patches"}}, "no labels to mix"),
        ({"objective": {"binary_targets": True}}, "belong to the sigmoid objective"),
        ({"objective": {"mean_over_classes": True}}, "belong to the sigmoid objective"),
        ({"adaptation": {"method": "probe", "frozen_blocks": 2}}, "freezes all blocks anyway"),
        ({"schedule": {"milestones": [0.5]}}, "belong to the decay 'steps'"),
        ({"augmentation": {"min_area": 7.0}}, "less than or equal to 1"),
        ({"optimizer": {"layer_decay": 1.5}}, "less than or equal to 1"),
        ({"compute": {"expert_parallel": True}}, "needs a network with experts"),
        ({"optimizer": {"nesterov": True}}, "nesterov belongs to 'sgd'"),
        ({"optimizer": {"name": "lamb", "momentum_dtype": "bfloat16"}}, "momentum_dtype belongs to 'sgd'"),
        ({"optimizer": {"factored_from": 33}}, "factored_from belongs to 'adafactor'"),
        ({"optimizer": {"sam_images": 4}}, "set sam_rho, too"),
        ({"optimizer": {"sam_rho": 0.1}, "compute": {"expert_parallel": True}}, "SAM needs every gradient"),
        ({"optimizer": {"sam_rho": 0.1, "sam_images": 4}, "compute": {"sharding": "full"}}, "needs whole gradients"),
    ],
)
def test_settings_that_do_not_go_together(run: Run, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        run.train(**changes)


def test_tanh_gelu_is_the_originals_wherever_it_counts() -> None:
    from vitral.models.layers import TanhGelu

    values = torch.linspace(-6, 6, 1001)
    torch.testing.assert_close(TanhGelu()(values), nn.functional.gelu(values, approximate="tanh"))
    with torch.no_grad():
        low = values.bfloat16()
        assert torch.equal(TanhGelu()(low), nn.functional.gelu(low, approximate="tanh"))
    trained = TanhGelu()(values.bfloat16().requires_grad_()).detach().float()
    assert float((trained - nn.functional.gelu(values.bfloat16().float(), approximate="tanh")).abs().max()) < 0.02


def test_bf16_training_kernels_give_the_gradients_of_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from vitral.models import layers

    model = create_model("vit-ti16", num_classes=10, image_size=64).train()
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(4, 3, 64, 64)

    def gradients(dtype: torch.dtype | None) -> Tensor:
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
            logits = model(images)
        logits.float().square().sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact, ours = gradients(None), gradients(torch.bfloat16)
    monkeypatch.setattr(layers, "trains_in_bf16_on_cpu", lambda values: False)
    plain = gradients(torch.bfloat16)
    errors = [float((found - exact).norm() / exact.norm()) for found in (ours, plain)]
    assert errors[0] < 1.3 * errors[1] + 0.005


def test_git_state_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    from vitral.training.records.environment import git_state

    monkeypatch.chdir(tmp_path)
    assert git_state() is None
    for arguments in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *arguments], check=True, capture_output=True)
    state = git_state()
    assert state is not None
    assert len(str(state["commit"])) == 40
    assert state["changed"] is False


@pytest.mark.parametrize("mixing", [{}, {"mixup": 0.8}, {"mixup": 0.8, "cutmix": 1.0}])
@pytest.mark.parametrize("parts", [2, 3, 16])
def test_a_batch_in_parts_is_mixed_and_erased_as_one(run: Run, mixing: dict[str, float], parts: int) -> None:
    def updater(accumulation: int) -> Updater:
        recipe = run.recipe(mixing=mixing, compute={"accumulation": accumulation})
        return Updater(build(CONFIG, seed=0), recipe, PHOTOS.normalize, erasing=0.5)

    data = open_digits()
    batch = TrainingBatches(
        data.splits["train"],
        batch_size=16,
        image_size=(8, 8),
        augmentation=data.augmentation,
        seed=0,
        lead=bool(mixing),
    ).batch(3)
    whole = updater(1).prepare(batch, 3)
    cut = [updater(parts).prepare(piece, 3) for piece in updater(parts).pieces(batch)]
    assert len(cut) == len(range(0, 16, -(-16 // parts)))
    for name in ("images", "pixels", "targets"):
        assert torch.equal(torch.cat([getattr(part, name) for part in cut]), getattr(whole, name))


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
        Updater(network, recipe, PHOTOS.normalize, erasing=0.0)(batch, 0, 0.1, 0.1, stop=False)
        return network.get_buffer("root_norm.running_mean").clone()

    whole = statistics(16)
    assert float(whole.abs().max()) > 1e-3
    torch.testing.assert_close(statistics(4), whole, rtol=1e-2, atol=1e-3 * float(whole.abs().max()))
