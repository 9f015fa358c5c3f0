"""The calls that every network answers, over a small network of every family and kind."""

import copy
import dataclasses
import functools
import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.bit import BiTConfig
from vitral.models.coatnet import CoAtNetConfig
from vitral.models.convolution import WhitenedStemConfig
from vitral.models.cvt import CvTConfig
from vitral.models.efficientnet import EfficientNetConfig
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build, config_from_json, config_to_json, count_macs, family
from vitral.models.layers import TokenGrid
from vitral.models.model import Model, ModelConfig, TokenModel, Use
from vitral.models.pixels import PixelsConfig
from vitral.models.record import record
from vitral.models.resnet import ResNetConfig, StemConfig
from vitral.models.t2t import T2TConfig
from vitral.models.tinyvit import TinyViTConfig
from vitral.models.vit_config import ViTConfig

VIT = ViTConfig(image_size=(32, 32), patch_size=(8, 8), dim=32, depth=2, mlp_dim=48, num_heads=2, num_classes=3)
STEM = StemConfig(stages=(1, 1))
SMALL: dict[str, Any] = {"image_size": (64, 64), "num_classes": 3}
CONFIGS: dict[str, ModelConfig] = {
    "hybrid": dataclasses.replace(VIT, patch_size=(1, 1), stem=STEM),
    "root-hybrid": dataclasses.replace(VIT, patch_size=(2, 2), stem=StemConfig(stages=())),
    "whitened": dataclasses.replace(VIT, patch_size=(1, 1), stem=WhitenedStemConfig(widths=(8, 16))),
    "whitened-steps": dataclasses.replace(
        VIT, patch_size=(1, 1), stem=WhitenedStemConfig(patch=3, step=2, widths=(8, 48)), position="sincos-2d"
    ),
    "deit": dataclasses.replace(VIT, gelu="exact", position_resize="bicubic", initialization="deit"),
    "distilled": dataclasses.replace(
        VIT, gelu="exact", position_resize="bicubic", distilled=True, initialization="deit"
    ),
    "deit3": dataclasses.replace(
        VIT, gelu="exact", position_resize="bicubic", layer_scale=1e-4, class_position=False, even_depth=True
    ),
    "distilled-registers": dataclasses.replace(VIT, distilled=True, registers=2),
    "experts": dataclasses.replace(VIT, experts=ExpertsConfig(blocks=(1,), num_experts=4)),
    "every-experts": dataclasses.replace(VIT, experts=ExpertsConfig(blocks=(0, 1), num_experts=3, batch_priority=True)),
    "unbiased": dataclasses.replace(VIT, qkv_bias=False, norm_eps=1e-5),
    "dinov2": dataclasses.replace(
        VIT, gelu="exact", layer_scale=1.0, position_resize="bicubic-dinov2", initialization="deit"
    ),
    "dinov2-registers": dataclasses.replace(
        VIT,
        gelu="exact",
        mlp="swiglu",
        layer_scale=1.0,
        registers=2,
        class_position=False,
        position_resize="bicubic-antialias",
        initialization="deit",
    ),
    "dinov2-classifier": dataclasses.replace(
        VIT, gelu="exact", layer_scale=1.0, pooling="token-gap", initialization="deit"
    ),
    "rotary": dataclasses.replace(
        VIT, position="none", rotary="dinov3", registers=2, layer_scale=1e-5, mlp="swiglu", initialization="deit"
    ),
    "clip": dataclasses.replace(VIT, gelu="quick", norm_before=True, norm_eps=1e-5, patch_bias=False),
    "positions-in-layers": dataclasses.replace(VIT, position_at="layers"),
    "neighbours": dataclasses.replace(VIT, position="relative-2d", pooling="gap", initialization="whitened"),
    "pooled-norm": dataclasses.replace(
        VIT,
        pooling="gap",
        norm_pooled=True,
        registers=1,
        mlp="swiglu-norm",
        rotary="eva02",
        initialization="big_vision",
    ),
    "bit": BiTConfig(stages=(1, 2), **SMALL),
    "resnet-basic": ResNetConfig(stages=(1, 2, 1, 1), bottleneck=False, **SMALL),
    "resnet-bottleneck": ResNetConfig(stages=(1, 2, 1, 1), **SMALL),
    "t2t": T2TConfig(dim=32, depth=2, mlp_dim=48, num_heads=2, **SMALL),
    "t2t-transformer": T2TConfig(tokens="transformer", dim=32, depth=2, mlp_dim=48, num_heads=2, **SMALL),
    "cvt": CvTConfig(dims=(16, 32, 64), depths=(1, 1, 2), num_heads=(1, 2, 4), **SMALL),
    "coatnet": CoAtNetConfig(
        stem_dim=8, depths=(1, 2, 2, 1), dims=(8, 16, 32, 64), head_dim=8, representation_size=64, **SMALL
    ),
    "coatnet-timm": CoAtNetConfig(
        stem_dim=8,
        depths=(1, 2, 2, 1),
        dims=(8, 16, 32, 64),
        head_dim=8,
        convention="timm",
        representation_size=None,
        **SMALL,
    ),
    "coatnet-7": CoAtNetConfig(
        stem_dim=8,
        kinds=("convolution", "convolution", "convolution", "attention", "attention"),
        depths=(1, 1, 1, 1, 1),
        dims=(8, 16, 16, 32, 48),
        strides=(2, 2, 2, 1, 2),
        head_dim=16,
        **SMALL,
    ),
    "efficientnet": EfficientNetConfig(width=0.3, depth=0.4, **SMALL),
    "efficientnet-lite": EfficientNetConfig(width=0.3, depth=0.4, lite=True, **SMALL),
    "tinyvit": TinyViTConfig(
        dims=(16, 32, 48, 64), depths=(1, 1, 2, 1), num_heads=(1, 3, 4), windows=(3, 4, 2), **SMALL
    ),
    "pixels": PixelsConfig(side=4, **SMALL),
}


def make(name: str) -> Model:
    """Return a network of one's own, a copy of one that is drawn once: to draw takes a hundred times as long."""
    return copy.deepcopy(_made(name))


@functools.cache
def _made(name: str) -> Model:
    model = build(CONFIGS[name], seed=3)
    with torch.no_grad():  # zeros at the end of branches and in heads would hide every difference
        for tensor in model.parameters():
            if not bool(tensor.any()):
                tensor.normal_(std=0.2, generator=torch.Generator().manual_seed(0))
    return model


def images(model: Model, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, *model.image_size, generator=torch.Generator().manual_seed(1))


def _gradient(model: Model, batch: Tensor) -> Tensor:
    """Return the gradient of all parameters in one vector, of the mean over the batch."""
    model.zero_grad()
    (model(batch).square().sum() / len(batch)).backward()
    return torch.cat([tensor.grad.flatten() for tensor in model.parameters() if tensor.grad is not None])


@every_case("name", CONFIGS)
class TestContract:
    def test_logits_are_the_head_of_the_features(self, name: str) -> None:
        model = make(name)
        features = model.features(images(model))
        assert features.shape == (2, model.num_features)
        torch.testing.assert_close(model.head(features), model.outputs(images(model)).logits)
        assert model(images(model)).shape == (2, 3)

    def test_what_it_says_of_its_tokens_holds(self, name: str) -> None:
        model = make(name)
        grid = model.config.patch_grid
        with record(model, "*") as recorded, torch.no_grad():
            encoded = model.encode(images(model))
        if grid is not None and isinstance(encoded, TokenGrid):
            assert encoded.tokens.shape[1] == grid.prefix + math.prod(grid.sides)
            shares = model.token_shares(encoded.tokens, encoded.tokens.shape[1])
            torch.testing.assert_close(shares.sum(dim=1), torch.ones(2))
        for index, block in enumerate(model.blocks()):
            if hasattr(block, "attention"):
                grids = model.attention_grids(index, model.image_size)
                assert grids is not None
                found = recorded[f"blocks.{index}.attention"].shape[2:]
                prefix = found[0] - math.prod(grids[0])
                assert prefix == (grid.prefix if grid is not None else int(found[0] != math.prod(grids[0])))
                assert found[1] == prefix + math.prod(grids[1])
        if recorded[model.maps_at].ndim == 3:
            grids = model.attention_grids(len(model.blocks()) - 1, model.image_size)
            assert grids is not None
            prefix = 1 if grid is None else grid.prefix
            assert recorded[model.maps_at].shape[1] == prefix + math.prod(grids[0])

    def test_what_it_says_that_it_can_is_done(self, name: str) -> None:
        config = CONFIGS[name]
        if not config.obstacle_to("rollout"):
            assert config.patch_grid is not None
        for use in get_args(Use):
            assert isinstance(build(config), TokenModel) or use in ("rollout", "export") or config.obstacle_to(use)

    def test_every_parameter_gets_a_gradient(self, name: str) -> None:
        model = make(name).train()
        outputs = model.outputs(images(model, 8))
        loss = outputs.logits.square().sum() + sum(outputs.auxiliary.values())
        if outputs.distillation_logits is not None:
            loss = loss + outputs.distillation_logits.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []
        assert all(
            bool(parameter.grad.isfinite().all()) for parameter in model.parameters() if parameter.grad is not None
        )

    def test_one_image_has_the_gradient_that_it_has_in_a_batch(self, name: str) -> None:
        # A batch of one image is where torch reads a tensor's memory layout in more than one way.
        model = make(name).eval()
        one = images(model, 1)
        alone, doubled = (_gradient(model, batch) for batch in (one, one.repeat(2, 1, 1, 1)))
        assert float((alone - doubled).norm() / doubled.norm()) < 1e-2

    def test_weights_are_a_function_of_the_seed(self, name: str) -> None:
        first, again, other = (build(CONFIGS[name], seed=seed).state_dict() for seed in (5, 5, 6))
        assert all(torch.equal(first[key], again[key]) for key in first)
        assert any(not torch.equal(first[key], other[key]) for key in first)
        assert all(bool(tensor.isfinite().all()) for tensor in first.values())

    def test_fresh_logits_begin_at_the_heads_bias(self, name: str) -> None:
        model = build(dataclasses.replace(CONFIGS[name], head_bias=-4.0), seed=0)
        plain = build(CONFIGS[name], seed=0)
        difference = (model.outputs(images(model)).logits - plain.outputs(images(model)).logits).detach()
        torch.testing.assert_close(difference, torch.full((2, 3), -4.0))

    def test_replacing_the_head_keeps_the_rest(self, name: str) -> None:
        model = make(name)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        model.replace_head(7)
        assert model(images(model)).shape == (2, 7)
        kept = [key for key in model.state_dict() if not key.startswith(("head.", "distillation_head."))]
        assert all(torch.equal(before[key], model.state_dict()[key]) for key in kept)

    def test_resizing_to_the_same_size_changes_nothing(self, name: str) -> None:
        model = make(name)
        logits = model(images(model))
        model.resize(model.image_size)
        assert torch.equal(model(images(model)), logits)

    def test_resizing_takes_oblong_images_and_is_described(self, name: str) -> None:
        model = make(name)
        model.resize((96, 64))
        assert model(images(model)).shape == (2, 3)
        again = build(config_from_json(config_to_json(model.config)), seed=None)
        assert {key: value.shape for key, value in again.state_dict().items()} == {
            key: value.shape for key, value in model.state_dict().items()
        }

    def test_another_size_is_refused_where_the_weights_are_of_one(self, name: str) -> None:
        model = make(name)
        larger = torch.zeros(1, 3, model.image_size[0] + 32, model.image_size[1])
        if family(model.config) in ("bit", "resnet", "cvt", "efficientnet", "tinyvit", "pixels"):
            assert model(larger).shape == (1, 3)
        else:
            with pytest.raises(ModelError, match="pixels"):
                model(larger)

    def test_bfloat16_is_near_float32(self, name: str) -> None:
        model = make(name)
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            rounded = model(images(model))
        exact = model(images(model)).detach()
        assert float((rounded.float() - exact).abs().max()) < 0.08 * float(exact.std() + 1)

    def test_decay_spares_norms_and_biases(self, name: str) -> None:
        model = make(name)
        decayed = {key for key, _ in model.named_parameters()} - model.no_weight_decay()
        assert "head.weight" in decayed
        assert not any("norm" in key or key.endswith("bias") or "token" in key.split(".")[-1] for key in decayed)

    def test_the_blocks_hold_most_of_the_network(self, name: str) -> None:
        model = make(name)
        assert model.blocks()
        assert all(isinstance(block, nn.Module) for block in model.blocks())
        with record(model, "blocks.0") as recorded:
            model(images(model))
        assert list(recorded) == ["blocks.0"]

    def test_rates_are_taken_where_there_is_a_place(self, name: str) -> None:
        model = make(name).train()
        without = ("bit", "resnet", "cvt", "efficientnet", "tinyvit", "pixels")
        attention = 0.0 if family(model.config) in without else 0.1
        dropout = 0.0 if family(model.config) in ("bit", "resnet", "pixels") else 0.1
        model.set_rates(dropout=dropout, attention_dropout=attention, stochastic_depth=0.5)
        torch.manual_seed(0)
        first = model(images(model, 8))
        assert torch.equal(model(images(model, 8)), first) == (family(model.config) == "pixels")  # it has no branch
        if not attention:
            with pytest.raises(ModelError, match="no place for attention_dropout"):
                model.set_rates(dropout=0.0, attention_dropout=0.1, stochastic_depth=0.0)

    def test_it_costs_something(self, name: str) -> None:
        assert count_macs(CONFIGS[name]) > (100 if name == "pixels" else 10_000)

    def test_a_batch_is_its_images(self, name: str) -> None:
        if "experts" in name:
            pytest.skip("experts share their places among the images of a group")
        model = make(name)
        batch = images(model, 3)
        alone = torch.cat([model(image[None]) for image in batch])
        torch.testing.assert_close(model(batch), alone, atol=1e-5, rtol=1e-4)


@every_case(
    ("name", "fields", "message"),
    [
        ("distilled", {"pooling": "gap"}, "needs a class token"),
        ("distilled", {"representation_size": 8}, "no representation layer"),
        ("experts", {"experts": ExpertsConfig(blocks=(2,))}, "only 2 blocks"),
        ("hybrid", {"image_size": (36, 32)}, "not divided"),
        ("whitened", {"image_size": (8, 32)}, "height 8 is too small for this network; use 9 or more"),
        ("bit", {"stages": ()}, "at least 1"),
        ("bit", {"dropout": 0.1}, "BiT has no place for dropout"),
        ("t2t", {"image_size": (72, 64)}, "not divided by 16"),
        ("t2t", {"num_heads": 5}, "evenly"),
        ("cvt", {"num_heads": (1, 3, 4)}, "evenly"),
        ("coatnet", {"image_size": (80, 64)}, "not divided by 32"),
        ("coatnet", {"depths": (1, 2)}, "each group"),
        ("coatnet", {"head_dim": 7}, "not divided by heads of 7"),
        ("efficientnet", {"width": 0.0}, "above 0"),
        ("tinyvit", {"num_heads": (1, 5, 4)}, "evenly"),
        ("tinyvit", {"windows": (0, 4, 2)}, "at least 1"),
        ("resnet-basic", {"num_classes": 0}, "num_classes"),
    ],
)
def test_what_cannot_be_built_is_refused(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dataclasses.replace(CONFIGS[name], **fields)


def test_distilled_logits_are_the_mean_of_both_heads() -> None:
    model = make("distilled")
    outputs = model.outputs(images(model))
    assert outputs.distillation_logits is not None
    torch.testing.assert_close(model(images(model)), (outputs.logits + outputs.distillation_logits) / 2)
    assert not torch.allclose(outputs.logits, outputs.distillation_logits)


def test_the_token_transformer_scales_by_the_width_in() -> None:
    model = make("t2t-transformer")
    scales = [layer.scale for layer in model.token_layers]  # type: ignore[union-attr]
    assert scales == pytest.approx([1 / math.sqrt(147), 1 / math.sqrt(576)])


def test_a_lite_network_clips_every_activation_at_6() -> None:
    model, seen = make("efficientnet-lite"), dict[str, Tensor]()
    for index, block in enumerate(model.blocks()):
        for name in ("depthwise", "project"):
            layer = getattr(block, name)
            layer.register_forward_hook(
                lambda _, inputs, __, key=f"{index}.{name}": seen.__setitem__(key, inputs[0].detach())
            )
    with torch.no_grad():
        model.encode(1e4 * images(model))
    assert all(float(values.min()) >= 0.0 and float(values.max()) <= 6.0 for values in seen.values())
    assert float(seen["0.depthwise"].max()) == float(seen["0.project"].max()) == 6.0
