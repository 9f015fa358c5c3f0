"""How each family draws its weights, by parameter, against what its source's code says."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cases import every_case
from vitral.models.catalog import variant
from vitral.models.convolution import whitening_filters
from vitral.models.families import build, config_from_json, config_to_json
from vitral.models.layers import TRUNCATED_STD
from vitral.models.model import Model
from vitral.models.vit_config import ViTConfig

Law = tuple[str, float]  # the kind of a distribution, and its standard deviation or limit or value
Source = Callable[[str, Tensor, Model], Law]
ZERO, ONE = ("constant", 0.0), ("constant", 1.0)
DEIT_NORMAL = ("normal", 0.02)  # cut at +-2, that is 100 standard deviations, in timm and torch


def fan_in(weight: Tensor) -> int:
    return weight[0].numel()


def original(name: str, weight: Tensor, network: Model) -> Law:
    """vit_jax, models_vit.py; big_vision, models/vit.py."""
    config = network.config
    if name in ("class_token", "head.weight"):
        return ZERO
    if name.startswith("position."):
        return "normal", config.dim**-0.5 if config.initialization == "big_vision" else 0.02
    if name.startswith(("patch_embedding.", "pre_logits.", "stem.")) or name.endswith("router.weight"):
        return (
            ("truncated", fan_in(weight) ** -0.5) if name.endswith("weight") and weight.ndim > 1 else bias_or_norm(name)
        )
    if name.endswith("qkv.weight") or ".attention." in name and name.endswith("weight"):
        return "uniform", math.sqrt(3 / config.dim)
    if name.endswith("probe"):
        return "uniform", math.sqrt(6 / (1 + config.dim))
    if ".mlp." in name:
        return (
            ("uniform", math.sqrt(6 / (config.dim + config.mlp_dim))) if name.endswith("weight") else ("normal", 1e-6)
        )
    return bias_or_norm(name)


def deit(name: str, weight: Tensor, network: Model) -> Law:
    """timm 0.3.2, vision_transformer.py, with deit/models.py; its patch embedding is torch's own."""
    if name.startswith("patch_embedding."):
        return "uniform", fan_in(dict(network.named_parameters())["patch_embedding.weight"]) ** -0.5
    if name.endswith(".scale"):
        return "constant", 1e-4
    return DEIT_NORMAL if weight.ndim > 1 else bias_or_norm(name)


def t2t(name: str, weight: Tensor, network: Model) -> Law:
    """T2T-ViT, models/t2t_vit.py."""
    return DEIT_NORMAL if weight.ndim > 1 else bias_or_norm(name)


def cvt(name: str, weight: Tensor, network: Model) -> Law:
    """CvT, lib/models/cls_cvt.py: convolutions and the head's bias are torch's own."""
    named = dict(network.named_parameters())
    if named[name.replace("bias", "weight")].ndim == 4 or name == "head.bias":
        return "uniform", fan_in(named[name.replace("bias", "weight")]) ** -0.5
    return DEIT_NORMAL if weight.ndim > 1 else bias_or_norm(name)


def coatnet(name: str, weight: Tensor, network: Model) -> Law:
    """maxvit/models/maxvit.py, of the same authors."""
    return ("normal", 0.02) if weight.ndim > 1 else bias_or_norm(name)


def bit(name: str, weight: Tensor, network: Model) -> Law:
    """big_transfer, bit_jax/models.py."""
    if name == "head.weight":
        return ZERO
    return ("truncated", fan_in(weight) ** -0.5) if weight.ndim > 1 else bias_or_norm(name)


def resnet(name: str, weight: Tensor, network: Model) -> Law:
    """torchvision, models/resnet.py."""
    if name.startswith("head."):
        return "uniform", network.head.in_features**-0.5
    return ("normal", he(weight)) if weight.ndim > 1 else bias_or_norm(name)


def efficientnet(name: str, weight: Tensor, network: Model) -> Law:
    """noisystudent, efficientnet_model.py."""
    if name == "head.weight":
        return "uniform", network.num_classes**-0.5
    return ("normal", he(weight)) if weight.ndim > 1 else bias_or_norm(name)


def tinyvit(name: str, weight: Tensor, network: Model) -> Law:
    """Cream, TinyViT/models/tiny_vit.py: convolutions are torch's own, as are the norms of all but the last of a residual."""
    if name.endswith(("windows.bias", "bottleneck.project_norm.weight")):
        return ZERO
    if weight.ndim == 4:
        return "uniform", fan_in(weight) ** -0.5
    return DEIT_NORMAL if weight.ndim > 1 else bias_or_norm(name)


def he(weight: Tensor) -> float:
    """Of variance 2 / fan-out; a depth-wise kernel has one output a channel."""
    outputs, inputs, height, width = weight.shape
    return math.sqrt(2 / (height * width * (1 if inputs == 1 else outputs)))


def bias_or_norm(name: str) -> Law:
    if name.endswith("bias"):
        return ZERO
    # The scale of a hybrid's last norm in a unit is 0; LayerScale begins at a value of its own.
    return ZERO if name.startswith("stem.") and name.endswith("norm3.weight") else ONE


SMALL: dict[str, Any] = {"dim": 96, "mlp_dim": 160, "depth": 3, "num_heads": 4}
FEW = {"num_classes": 300}
NETWORKS: dict[str, tuple[Any, Source]] = {
    "vit-b16": (SMALL, original),
    "vit-b16-gap": (SMALL, original),
    "vit-b16-map": (SMALL, original),
    "vit-l16": ({**SMALL, "representation_size": 96}, original),
    "r26-vit-s32": (SMALL, original),
    "vmoe-b16": ({**SMALL, "depth": 3}, original),
    "deit-ti16": (SMALL, deit),
    "deit-s16-distilled": (SMALL, deit),
    "deit-b16-384": (SMALL, deit),
    "deit3-s16": (SMALL, deit),
    "t2t-vit-7": ({}, t2t),
    "t2t-vit-t-14": ({"depth": 2}, t2t),
    "cvt-13": ({}, cvt),
    "coatnet-0": ({}, coatnet),
    "bit-r50x1": ({}, bit),
    "resnet-18": ({}, resnet),
    "resnet-50": ({}, resnet),
    "efficientnet-b0": ({}, efficientnet),
    "efficientnet-lite0": ({}, efficientnet),
    "tinyvit-5m": ({}, tinyvit),
}


def network(name: str) -> Model:
    changes = NETWORKS[name][0]
    config = variant(name)
    if getattr(config, "experts", None) is not None:
        changes = {**changes, "experts": dataclasses.replace(config.experts, blocks=(1,), num_experts=24)}
    return build(dataclasses.replace(config, **changes, **FEW), seed=3)


def complaints(model: Model, source: Source) -> list[str]:
    """Return what is not drawn as the source says, one line a parameter."""
    return [
        f"{name}: {wrong}"
        for name, parameter in model.named_parameters()
        if (wrong := complaint(parameter.detach().double(), *source(name, parameter, model)))
    ]


def complaint(values: Tensor, kind: str, size: float) -> str:
    if kind == "constant":
        return "" if float((values - size).abs().max()) <= 1e-6 * size else f"not {size}"
    if values.ndim > 1 and len(values) > 1 and bool((values[0] == values[-1]).all()):
        values = values[0]  # all experts begin alike
    count, std, largest = values.numel(), float(values.std()), float(values.abs().max())
    expected = size / math.sqrt(3) if kind == "uniform" else size
    slack = 5 / math.sqrt(2 * count)  # five standard errors of a standard deviation
    if count > 8 and abs(std / expected - 1) > slack:
        return f"standard deviation {std:.4g}, not {expected:.4g}"
    bound = {"uniform": size, "truncated": 2 * size / TRUNCATED_STD, "normal": 7 * size}[kind]
    if largest > bound * (1 + 1e-6):
        return f"{largest:.4g} is beyond {bound:.4g}"
    # Of so many values a normal distribution that is not cut has some beyond 2.3 standard deviations.
    return "its tails are cut" if kind == "normal" and count > 3000 and largest < 2.5 * size else ""


@every_case("name", NETWORKS)
def test_every_parameter_is_drawn_as_in_the_source(name: str) -> None:
    assert complaints(network(name), NETWORKS[name][1]) == []


@pytest.mark.long
@every_case("name", NETWORKS)
def test_a_deviation_of_ten_times_would_be_seen(name: str) -> None:
    model = network(name)
    drawn = {key for key, value in model.named_parameters() if value.numel() > 8 and float(value.detach().std()) > 0}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10.0)
    seen = {line.split(":")[0] for line in complaints(model, NETWORKS[name][1])}
    assert drawn <= seen


@pytest.mark.long
@every_case("name", [name for name in NETWORKS if not name.startswith("efficientnet")])
def test_a_new_head_is_drawn_like_the_first(name: str) -> None:
    model, source = network(name), NETWORKS[name][1]
    model.replace_head(200, seed=5)
    heads = [line for line in complaints(model, source) if line.startswith(("head.", "distillation_head."))]
    assert heads == []
    first = model.head.weight.detach().clone()
    model.replace_head(200, seed=5)
    assert torch.equal(model.head.weight, first)
    model.replace_head(200, seed=6)
    assert torch.equal(model.head.weight, first) == (not bool(first.any()))


def test_a_new_head_of_an_efficientnet_begins_at_the_loss_of_guessing() -> None:
    network = build(dataclasses.replace(variant("efficientnet-lite0"), image_size=(32, 32), num_classes=1000), seed=0)
    network.replace_head(3)
    assert network.eval()(torch.rand(2, 3, 32, 32)).abs().max() == 0


def test_registers_and_layer_scale() -> None:
    config = ViTConfig(**SMALL, registers=8, layer_scale=1e-4, initialization="deit")
    named = dict(build(config, seed=0).named_parameters())
    assert float(named["registers"].detach().std()) == pytest.approx(1e-6, rel=0.1)
    torch.testing.assert_close(named["encoder.1.scale2.scale"].detach(), torch.full((96,), 1e-4))


def test_a_description_of_an_earlier_version_draws_as_then() -> None:
    values = config_to_json(variant("deit-ti16"))
    del values["initialization"]
    assert config_from_json(values).initialization == "vit"


@every_case(("patch", "dim"), [(8, 96), (4, 96)])
def test_whitened_patches_begin_with_the_filters_of_the_largest_variances(patch: int, dim: int) -> None:
    sizes = {**SMALL, "patch_size": (patch, patch), "dim": dim}
    whitened, plain = (build(ViTConfig(**sizes, initialization=how), seed=0) for how in ("whitened", "vit"))
    filters = whitening_filters(patch)
    filled = min(dim, len(filters))
    parameters, others = dict(whitened.named_parameters()), dict(plain.named_parameters())
    weight = parameters.pop("patch_embedding.weight")
    assert torch.equal(weight[:filled], filters[:filled])
    assert torch.equal(weight[filled:], others.pop("patch_embedding.weight")[filled:])
    assert weight.requires_grad
    assert all(torch.equal(value, others[name]) for name, value in parameters.items())
