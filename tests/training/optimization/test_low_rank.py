"""LoRA's formula, which layers it changes, what is frozen, and in which precision a step computes."""

import math
from typing import Any

import pytest
import torch

from tests.cases import every_case
from tests.training.conftest import CONFIG
from vitral.errors import RecipeError
from vitral.machine import has_native_bf16
from vitral.models.catalog import variant
from vitral.models.families import build
from vitral.training.optimization import optimizers
from vitral.training.optimization.adaptation import LowRank, adapt, settle
from vitral.training.settings.sections import AdaptationSettings

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_a_low_rank_change_is_loras() -> None:
    """arXiv 2106.09685, section 4.1: W + alpha / r B A, with B of zeros; A as the authors' code draws it (loralib)."""
    weight = torch.randn(40, 100)
    change = LowRank(weight, rank=4, alpha=6.0, generator=torch.Generator().manual_seed(0))
    assert change.down.shape == (4, 100)
    assert change.up.shape == (40, 4)
    assert torch.equal(change(weight), weight)
    limit = 1 / math.sqrt(100)  # kaiming_uniform_ with a = sqrt(5)
    assert 0.95 * limit < float(change.down.detach().max()) <= limit
    assert -limit <= float(change.down.detach().min()) < -0.95 * limit
    torch.nn.init.normal_(change.up)
    torch.testing.assert_close(change(weight), weight + 6.0 / 4 * change.up @ change.down)
    again = LowRank(weight, rank=4, alpha=6.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.down, change.down)


def test_every_linear_layer_of_the_blocks_is_changed_and_the_head_learns_beside() -> None:
    model: Any = build(CONFIG, seed=0)
    adapt(model, AdaptationSettings(method="lora", lora_rank=3, lora_alpha=6.0), seed=5)
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    layers = [
        f"encoder.{block}.{layer}"
        for block in (0, 1)
        for layer in ("attention.qkv", "attention.out", "mlp.fc1", "mlp.fc2")
    ]
    parts = {f"{layer}.parametrizations.weight.0.{part}" for layer in layers for part in ("up", "down")}
    assert learning == {"head.weight", "head.bias"} | parts
    change = model.encoder[0].mlp.fc1.parametrizations.weight[0]
    assert change.down.shape[0] == 3
    assert change.scale == 2.0
    downs = [dict(model.named_parameters())[f"{layer}.parametrizations.weight.0.down"] for layer in layers]
    assert len({tuple(down.detach().flatten()[:4].tolist()) for down in downs}) == len(downs)
    other: Any = build(CONFIG, seed=0)
    adapt(other, AdaptationSettings(method="lora", lora_rank=3), seed=5)
    assert torch.equal(other.encoder[1].mlp.fc2.parametrizations.weight[0].down, downs[-1])
    adapt(third := build(CONFIG, seed=0), AdaptationSettings(method="lora", lora_rank=3), seed=6)
    assert not torch.equal(dict(third.named_parameters())[f"{layers[0]}.parametrizations.weight.0.down"], downs[0])


def test_a_rank_is_no_larger_than_the_layer() -> None:
    model: Any = build(CONFIG, seed=0)
    adapt(model, AdaptationSettings(method="lora", lora_rank=10_000), seed=0)
    layer = model.encoder[0].mlp.fc1
    assert layer.parametrizations.weight[0].down.shape[0] == min(layer.weight.shape)


def test_lora_needs_linear_layers() -> None:
    with torch.device("meta"):
        network = build(variant("bit-r50x1"), seed=None)
    says = "^LoRA changes linear layers, and the blocks of this network have none; use 'probe' or 'full'.$"
    with pytest.raises(RecipeError, match=says):
        adapt(network, AdaptationSettings(method="lora"), seed=0)


def test_a_probe_learns_the_head_alone_and_full_all() -> None:
    model = build(CONFIG, seed=0)
    adapt(model, AdaptationSettings(method="full"), seed=0)
    assert all(parameter.requires_grad for parameter in model.parameters())
    learning = adapt(model, AdaptationSettings(method="probe"), seed=0)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {"head.weight", "head.bias"}
    settle(model, learning)
    assert all(parameter.requires_grad for parameter in model.parameters())


@every_case("count", [1, 2])
def test_frozen_blocks_are_the_first_and_what_comes_before(count: int) -> None:
    model = build(CONFIG, seed=0)
    adapt(model, AdaptationSettings(frozen_blocks=count), seed=0)
    for name, parameter in model.named_parameters():
        block = int(name.split(".")[1]) if name.startswith("encoder.") else None
        before = name.startswith(("patch_embedding", "class_token", "position"))
        assert parameter.requires_grad == (not before if block is None else block >= count), name


def test_more_frozen_blocks_than_there_are_is_an_error() -> None:
    with pytest.raises(RecipeError, match=r"adaptation\.frozen_blocks is 3, .* 2 blocks"):
        adapt(build(CONFIG, seed=0), AdaptationSettings(frozen_blocks=3), seed=0)


@every_case("native", [False, True])
@every_case("device", [CPU, CUDA])
def test_auto_is_bfloat16_where_the_hardware_has_it(
    device: torch.device, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def cuda(including_emulation: bool = True) -> bool:
        asked.append(including_emulation)
        return native or including_emulation

    other = device.type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", cuda if other else lambda **_: not native)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: (not native) if other else native)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: (not native) if other else False)
    assert has_native_bf16(device) is native
    assert optimizers.computes_in_bf16(device, "auto") is native
    assert optimizers.computes_in_bf16(device, "bf16") is True
    assert optimizers.computes_in_bf16(device, "fp32") is False
    assert asked == ([False, False] if other else [])


def test_amx_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert has_native_bf16(CPU) is True


def test_autocast_makes_products_bfloat16_or_leaves_them() -> None:
    values = torch.ones(4, 4)
    with optimizers.autocast(CPU, "bf16"):
        assert (values @ values).dtype == torch.bfloat16
    with optimizers.autocast(CPU, "fp32"):
        assert (values @ values).dtype == torch.float32


def test_runs_train_on_the_current_gpu_or_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert optimizers.training_device() == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert optimizers.training_device() == torch.device("cuda", 3)
