"""Routing worked by hand, dropped tokens, the auxiliary losses, and that a token pays for k experts, not for all."""

import dataclasses
import json
import math

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits
from vitral.errors import ModelError
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.experts import ExpertsConfig, MixtureOfExperts, change_experts, squared_variation
from vitral.models.families import build, config_from_json, config_to_json, count_parameters
from vitral.models.model import Model
from vitral.training.settings.recipe import build_recipe
from vitral.training.starting.prepare import adapt_network

DIM, HIDDEN = 16, 24


def mixture(tokens_of_group: int = 1, **fields: object) -> MixtureOfExperts:
    config = ExpertsConfig(blocks=(0,), group_images=tokens_of_group, **fields)  # type: ignore[arg-type]
    layer = MixtureOfExperts(DIM, HIDDEN, config, gelu="tanh").eval()
    layer.init_weights(torch.Generator().manual_seed(0))
    with torch.no_grad():  # all experts begin alike; here they must differ
        for weight in (layer.fc1.weight, layer.fc2.weight, layer.fc1.bias, layer.fc2.bias):
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    return layer


def tokens(count: int, batch: int = 1) -> Tensor:
    return torch.randn(batch, count, DIM, generator=torch.Generator().manual_seed(2))


@every_case(
    ("count", "factor", "experts", "expected"),
    [(40, 1.0, 4, 20), (40, 1.05, 4, 24), (40, 0.5, 4, 12), (400, 1.05, 32, 28), (8, 1.0, 16, 4)],
)
def test_capacity_is_rounded_up_to_a_multiple_of_four(count: int, factor: float, experts: int, expected: int) -> None:
    config = ExpertsConfig(blocks=(0,), num_experts=experts, capacity_factor=factor)
    assert config.capacity(count, training=True) == expected


def test_first_choices_are_placed_before_any_second() -> None:
    layer = mixture(num_experts=3)
    gates = torch.tensor([[0.5, 0.4, 0.1], [0.3, 0.6, 0.1], [0.7, 0.1, 0.2]])
    experts, slots, values = layer.assign(gates)
    assert experts.tolist() == [0, 1, 0, 1, 0, 2]
    # Expert 0 takes the first choices of tokens 0 and 2 before the second choice of token 1.
    assert slots.tolist() == [0, 0, 1, 1, 2, 0]
    torch.testing.assert_close(values, torch.tensor([0.5, 0.6, 0.7, 0.4, 0.3, 0.2]))


def test_batch_priority_places_the_surest_first() -> None:
    layer = mixture(num_experts=2, num_selected=1, batch_priority=True)
    _, slots, _ = layer.assign(torch.tensor([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.8, 0.2]]))
    assert slots.tolist() == [2, 0, 0, 1]
    _, slots, _ = mixture(num_experts=2, num_selected=1).assign(torch.tensor([[0.6, 0.4], [0.9, 0.1], [0.8, 0.2]]))
    assert slots.tolist() == [0, 1, 2]


def dense(layer: MixtureOfExperts, inputs: Tensor) -> Tensor:
    """Every expert on every token, weighted by the chosen gates: what routing without limits must equal."""
    gates = layer.router(inputs).softmax(dim=-1)
    values, chosen = gates.topk(layer.config.num_selected, dim=-1)
    kept = torch.zeros_like(gates).scatter(-1, chosen, values)
    hidden = torch.einsum("sd,edh->esh", inputs, layer.fc1.weight) + layer.fc1.bias[:, None]
    outputs = torch.einsum("esh,ehd->esd", layer.gelu(hidden), layer.fc2.weight) + layer.fc2.bias[:, None]
    return torch.einsum("se,esd->sd", kept, outputs)


@every_case("selected", [1, 2, 3])
def test_with_room_for_all_it_is_the_weighted_sum(selected: int) -> None:
    layer = mixture(num_experts=5, num_selected=selected, capacity_factor=5.0)
    inputs = tokens(30)
    torch.testing.assert_close(layer(inputs)[0][0], dense(layer, inputs[0]), atol=1e-5, rtol=1e-4)


def test_a_token_without_a_place_gets_nothing() -> None:
    layer = mixture(num_experts=4, num_selected=1, capacity_factor=0.5)
    inputs = tokens(64)
    outputs = layer(inputs)[0][0]
    chosen = layer.router(inputs[0]).argmax(dim=-1)
    capacity = layer.config.capacity(64, training=False)
    for expert in range(4):
        of_expert = (chosen == expert).nonzero().flatten()
        assert bool(outputs[of_expert[:capacity]].any(dim=1).all())
        assert not bool(outputs[of_expert[capacity:]].any())
    assert int((~outputs.any(dim=1)).sum()) > 0


def test_groups_do_not_share_places() -> None:
    layer = mixture(2, num_experts=4, capacity_factor=0.5)
    inputs = tokens(10, batch=5)
    apart = torch.cat([layer(part)[0] for part in torch.split(inputs, 2)])
    assert torch.equal(layer(inputs)[0], apart)


def multiplied(layer: MixtureOfExperts, count: int) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(tokens(count))
    return counter.get_total_flops() // 2


def test_a_token_pays_for_k_experts_whatever_their_number() -> None:
    count = 256
    for experts in (4, 8, 16, 32):
        cost = multiplied(mixture(num_experts=experts, capacity_factor=1.0), count)
        router = count * DIM * experts
        of_k = 2 * count * 2 * DIM * HIDDEN
        assert cost == router + of_k
    once = multiplied(mixture(num_experts=8, num_selected=1, capacity_factor=1.0), count)
    assert once == count * DIM * 8 + count * 2 * DIM * HIDDEN


def test_importance_is_the_squared_variation_of_the_gates() -> None:
    layer = mixture(num_experts=4)
    _, losses = layer(tokens(20))
    importance = layer.router(tokens(20)[0]).softmax(dim=-1).sum(dim=0).detach().numpy()
    assert float(losses["importance"].detach()) == pytest.approx((importance.std() / importance.mean()) ** 2, rel=1e-4)
    assert set(losses) == {"importance"}
    assert float(squared_variation(torch.full((5,), 3.0))) == 0


def test_load_is_how_often_an_expert_would_be_chosen_with_its_noise_drawn_anew() -> None:
    layer = mixture(num_experts=4, noise_std=4.0)
    clean = layer.router(tokens(3)[0]).detach()
    generator = torch.Generator().manual_seed(3)
    noisy = clean + torch.randn(clean.shape, generator=generator)
    exact = layer._load(clean, noisy, 1.0)
    threshold = noisy.topk(2, dim=-1).values[:, -1:]
    redrawn = clean + torch.randn(20_000, *clean.shape, generator=generator)
    drawn = (redrawn >= threshold).float().mean(dim=(0, 1))
    torch.testing.assert_close(exact, drawn, atol=0.01, rtol=0)


def test_noise_and_the_load_loss_come_in_training_alone() -> None:
    layer = mixture(num_experts=4)
    assert torch.equal(layer(tokens(20))[0], layer(tokens(20))[0])
    layer.train()
    torch.manual_seed(0)
    first, _ = layer(tokens(20))
    second, losses = layer(tokens(20))
    assert not torch.equal(first, second)
    assert set(losses) == {"importance", "load"}
    (losses["importance"] + losses["load"]).backward()
    assert layer.router.weight.grad is not None
    assert bool(layer.router.weight.grad.any())


def test_the_auxiliary_losses_go_out_with_the_logits_and_nothing_stays_behind() -> None:
    config = dataclasses.replace(
        variant("vmoe-s32-last2"),
        image_size=(32, 32),
        dim=32,
        mlp_dim=32,
        num_heads=2,
        experts=ExpertsConfig(blocks=(5, 7), num_experts=2),
    )
    model = build(config).train()
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    outputs = model.outputs(torch.randn(2, 3, 32, 32))
    assert set(outputs.auxiliary) == {"importance", "load"}
    assert all(loss.requires_grad for loss in outputs.auxiliary.values())
    kept = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor | dict)]
    tensors = [value for part in kept for value in (part.values() if isinstance(part, dict) else [part])]
    assert not [tensor for tensor in tensors if isinstance(tensor, Tensor) and tensor.grad_fn is not None]
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before


def test_buffers_have_another_size_outside_of_training() -> None:
    config = ExpertsConfig(blocks=(0,), num_experts=4, capacity_factor=0.5, evaluation_capacity_factor=4.0)
    assert (config.capacity(40, training=True), config.capacity(40, training=False)) == (12, 80)
    layer = mixture(num_experts=4, num_selected=1, noise_std=0.0, capacity_factor=0.5, evaluation_capacity_factor=4.0)
    inputs = tokens(64)
    dropped = [int((~layer.train(training)(inputs)[0][0].any(dim=1)).sum()) for training in (True, False)]
    assert dropped[0] > 0 == dropped[1]


def test_dropout_of_the_experts_is_theirs_alone() -> None:
    config = dataclasses.replace(
        variant("vmoe-s32-last2"), depth=2, dropout=0.3, experts=ExpertsConfig(blocks=(1,), num_experts=4, dropout=0.2)
    )

    def rates(network: Model) -> dict[str, float]:
        return {name: layer.p for name, layer in network.named_modules() if isinstance(layer, torch.nn.Dropout)}

    model = build(config, seed=None)
    assert rates(model).pop("encoder.1.mlp.dropout") == 0.2
    assert {rate for name, rate in rates(model).items() if name != "encoder.1.mlp.dropout"} == {0.3}
    model.set_rates(dropout=0.0, attention_dropout=0.0, stochastic_depth=0.0)
    assert {name for name, rate in rates(model).items() if rate} == {"encoder.1.mlp.dropout"}
    change_experts(model, dropout=0.1, capacity_factor=1.5)
    assert rates(model)["encoder.1.mlp.dropout"] == model.config.experts.dropout == 0.1
    (layer,) = (layer for layer in model.modules() if isinstance(layer, MixtureOfExperts))
    assert layer.config.capacity_factor == model.config.experts.capacity_factor == 1.5
    without = build(dataclasses.replace(config, experts=ExpertsConfig(blocks=(1,), num_experts=4)), seed=None)
    assert set(rates(without).values()) == {0.3}


def test_a_description_of_an_earlier_version_has_the_behaviour_of_then() -> None:
    config = variant("vmoe-s32-last2")
    values = config_to_json(config)
    for name in ("evaluation_capacity_factor", "dropout"):
        del values["experts"][name]
    assert config_from_json(values) == config
    changed = dataclasses.replace(
        config, experts=dataclasses.replace(config.experts, evaluation_capacity_factor=4.0, dropout=0.2)
    )
    assert config_from_json(json.loads(json.dumps(config_to_json(changed)))) == changed


@every_case(
    ("fields", "message"),
    [
        ({"num_selected": 5, "num_experts": 4}, "num_selected must be 1 to 4"),
        ({"capacity_factor": 0.0}, "capacity factors above 0"),
        ({"evaluation_capacity_factor": -1.0}, "capacity factors above 0"),
        ({"dropout": 1.0}, "experts' dropout"),
        ({"group_images": 0}, "group_images"),
    ],
)
def test_what_cannot_be_routed_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ExpertsConfig(blocks=(0,), **fields)  # type: ignore[arg-type]


# V-MoE with the paper's JFT-300M head: a representation layer of the width and 18,291 classes.
JFT = {
    "vmoe-s32": 296_895_347,
    "vmoe-s32-last2": 166_680_435,
    "vmoe-b32": 980_631_411,
    "vmoe-b32-last2": 394_951_539,
    "vmoe-b16": 978_974_835,
    "vmoe-b16-last2": 393_294_963,
    "vmoe-b16-last5": 832_554_867,
    "vmoe-l32": 3_448_168_307,
    "vmoe-l32-last2": 845_784_947,
    "vmoe-l16": 3_445_959_539,
    "vmoe-l16-last2": 843_576_179,
    "vmoe-l16-last5": 1_624_291_187,
    "vmoe-h14": 7_160_836_211,
    "vmoe-h14-last2": 1_468_960_371,
    "vmoe-h14-last5": 2_688_648_051,
}


@every_case(("name", "count"), JFT.items())
def test_parameters_are_the_papers(name: str, count: int) -> None:
    config = variant(name)
    config = dataclasses.replace(config, num_classes=18_291, representation_size=config.dim)
    assert count_parameters(build(config, seed=None)) == count


def test_parameters_of_the_15_billion_and_of_the_released_ones() -> None:
    config = dataclasses.replace(variant("vmoe-15b"), num_classes=29_593)
    assert count_parameters(build(config, seed=None)) == 14_705_071_769
    small = dataclasses.replace(variant("vmoe-s32-last2"), experts=ExpertsConfig(blocks=(5, 7), num_experts=8))
    assert count_parameters(build(small, seed=None)) == 56_736_744
    assert count_parameters(build(dataclasses.replace(small, representation_size=512), seed=None)) == 56_999_400
    odd = tuple(range(1, 12, 2))
    base = dataclasses.replace(
        variant("vmoe-b16"), experts=ExpertsConfig(blocks=odd, num_experts=8), num_classes=21_843
    )
    assert count_parameters(build(base, seed=None)) == 300_974_931


def test_experts_begin_alike() -> None:
    layer = MixtureOfExperts(DIM, HIDDEN, ExpertsConfig(blocks=(0,), num_experts=3), gelu="tanh")
    layer.init_weights(torch.Generator().manual_seed(0))
    assert torch.equal(layer.fc1.weight[0], layer.fc1.weight[2])
    assert float(layer.fc1.weight.detach().abs().max()) <= math.sqrt(6 / (DIM + HIDDEN))


def test_fine_tuning_takes_the_experts_rates_from_its_own_recipe() -> None:
    config = dataclasses.replace(
        variant("vmoe-s32-last2"),
        image_size=(32, 32),
        dim=32,
        depth=2,
        mlp_dim=32,
        num_heads=2,
        experts=ExpertsConfig(blocks=(1,), num_experts=4, dropout=0.2, evaluation_capacity_factor=4.0),
    )

    def tuned(**experts: float) -> ExpertsConfig:
        start = Classifier(build(config), PHOTOS.with_size((32, 32)))
        recipe = build_recipe({"experts": experts, "image_size": 32}, "test")
        adapt_network(start, open_digits(), recipe)
        found: ExpertsConfig = start.model.config.experts
        return found

    assert (tuned().dropout, tuned().evaluation_capacity_factor, tuned().capacity_factor) == (None, 4.0, 1.05)
    changed = tuned(dropout=0.1, capacity_factor=1.5, evaluation_capacity_factor=1.5)
    assert (changed.dropout, changed.evaluation_capacity_factor, changed.capacity_factor) == (0.1, 1.5, 1.5)
