"""The network's contract over its fields, and its numbers worked by hand."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.attention import Attention
from vitral.models.blocks import Block
from vitral.models.catalog import variant
from vitral.models.families import build, create_model, variant_name
from vitral.models.layers import StochasticDepth
from vitral.models.position import resize_position_embedding, sincos_table
from vitral.models.record import record
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig

CHANGES: dict[str, dict[str, object]] = {
    "paper": {},
    "gap": {"pooling": "gap"},
    "map": {"pooling": "map"},
    "registers": {"registers": 3},
    "registers-gap": {"registers": 3, "pooling": "gap"},
    "layer-scale": {"layer_scale": 0.1},
    "token-without-position": {"class_position": False},
    "tanh-head": {"representation_size": 24},
    "learned-2d": {"position": "learned-2d"},
    "sincos-2d": {"position": "sincos-2d"},
    "sincos-2d-gap": {"position": "sincos-2d", "pooling": "gap"},
    "no-position": {"position": "none"},
    "positions-in-layers": {"position_at": "layers"},
    "rows-and-columns-in-layers": {"position": "learned-2d", "position_at": "layers", "pooling": "gap"},
    "one-table-in-all-layers": {"position_at": "layers-shared"},
    "relative": {"position": "relative"},
    "relative-gap": {"position": "relative", "pooling": "gap"},
    "relative-2d": {"position": "relative-2d"},
    "relative-2d-gap": {"position": "relative-2d", "pooling": "gap", "initialization": "whitened"},
    "overlapping": {"patch_stride": (2, 3)},
    "rectangular": {"image_size": (16, 24), "patch_size": (4, 8)},
    "exact-gelu": {"gelu": "exact"},
}


def tiny(config: ViTConfig, change: str) -> ViT:
    changes = dict(CHANGES[change])
    if change == "overlapping":
        changes["patch_size"] = (4, 4)
    model = build(dataclasses.replace(config, **changes), seed=3)  # type: ignore[arg-type]
    assert isinstance(model, ViT)
    with torch.no_grad():  # a head of zeros would hide every difference
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    return model


def images(model: ViT, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, *model.image_size, generator=torch.Generator().manual_seed(1))


@every_case("change", CHANGES)
class TestContract:
    def test_logits_are_the_head_of_the_features(self, tiny_config: ViTConfig, change: str) -> None:
        model = tiny(tiny_config, change)
        features = model.features(images(model))
        assert features.shape == (2, model.num_features)
        torch.testing.assert_close(model.head(features), model(images(model)))
        torch.testing.assert_close(model.outputs(images(model)).logits, model(images(model)))

    def test_every_parameter_gets_a_gradient(self, tiny_config: ViTConfig, change: str) -> None:
        model = tiny(tiny_config, change).train()
        model(images(model)).square().sum().backward()
        without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
        assert without == []

    def test_weights_are_a_function_of_the_seed(self, tiny_config: ViTConfig, change: str) -> None:
        config = tiny(tiny_config, change).config
        first, again, other = (build(config, seed=seed).state_dict() for seed in (5, 5, 6))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)

    def test_replacing_the_head_keeps_the_rest(self, tiny_config: ViTConfig, change: str) -> None:
        model = tiny(tiny_config, change)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model.replace_head(7)
        assert torch.equal(model(images(model)), torch.zeros(2, 7))
        kept = [name for name in model.state_dict() if not name.startswith("head.")]
        assert all(torch.equal(before[name], model.state_dict()[name]) for name in kept)

    def test_resizing_to_the_same_size_changes_nothing(self, tiny_config: ViTConfig, change: str) -> None:
        model = tiny(tiny_config, change)
        logits = model(images(model))
        model.resize(model.image_size)
        assert torch.equal(model(images(model)), logits)

    def test_resizing_takes_larger_images(self, tiny_config: ViTConfig, change: str) -> None:
        model = tiny(tiny_config, change)
        height, width = model.image_size
        larger = (height + 2 * model.config.stride[0], width + 4 * model.config.stride[1])
        if model.config.position == "relative":
            with pytest.raises(ModelError, match="Relative positions are of one image size"):
                model.resize(larger)
            return
        model.resize(larger)
        assert model.image_size == larger
        assert model(images(model)).shape == (2, 3)

    def test_bfloat16_is_near_float32(self, tiny_config: ViTConfig, change: str) -> None:
        model = tiny(tiny_config, change).train()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = model(images(model))
        exact = model(images(model)).detach()
        rounded = rounded.detach()
        assert float((rounded.float() - exact).abs().max()) < 0.05 * float(exact.std() + 1)

    def test_decay_spares_tables_norms_and_biases(self, tiny_config: ViTConfig, change: str) -> None:
        model = tiny(tiny_config, change)
        decayed = {name for name, _ in model.named_parameters()} - model.no_weight_decay()
        assert all(name.endswith(".weight") for name in decayed)
        assert not any("relative" in name for name in decayed)
        assert "head.weight" in decayed
        assert not any("norm" in name or "position" in name for name in decayed)


def test_the_last_block_computes_the_class_token_alone(tiny_config: ViTConfig) -> None:
    model = tiny(tiny_config, "paper")
    torch.testing.assert_close(model.features(images(model)), model.encode(images(model)).tokens[:, 0])


def test_attention_worked_by_hand() -> None:
    layer = Attention(4, 2)
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.cat([torch.zeros(8, 4), torch.eye(4)]))
        layer.qkv.bias.zero_()
        layer.out.weight.copy_(torch.eye(4))
        layer.out.bias.zero_()
    tokens = torch.arange(8.0).reshape(1, 2, 4)
    # Queries of zero attend evenly, so each token becomes the mean of the values.
    expected = torch.tensor([[[2.0, 3, 4, 5], [2, 3, 4, 5]]])
    torch.testing.assert_close(layer(tokens), expected)
    torch.testing.assert_close(layer.probabilities(tokens), torch.full((1, 2, 2, 2), 0.5))


@every_case("precision", [torch.float32, torch.bfloat16])
@every_case("queries", [None, 1])
def test_relative_positions_add_the_querys_product_with_the_distance(
    queries: int | None, precision: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = Attention(8, 2, relative=5).train()
    layer.init_weights(generator)
    assert layer.relative is not None
    with torch.no_grad():
        layer.relative.normal_(generator=generator)
    tokens = torch.randn(3, 5, 8, generator=generator)
    query, key, value = layer.qkv(tokens).reshape(3, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).double()
    expected = torch.zeros(3, 2, 5, 4, dtype=torch.float64)
    for image in range(3):
        for head in range(2):
            for i in range(5):
                of = query[image, head, i]
                scores = [of @ key[image, head, j] + of @ layer.relative[i - j + 4].double() for j in range(5)]
                share = (torch.stack(scores) / 2).softmax(dim=0)  # the root of four channels
                expected[image, head, i] = share @ value[image, head]
    mixed = layer.out(expected.transpose(1, 2).flatten(2).float())[:, :queries]
    with torch.autocast("cpu", dtype=precision, enabled=precision == torch.bfloat16):
        given = layer(tokens, num_queries=queries)
    exact = precision == torch.float32
    torch.testing.assert_close(given.float(), mixed, rtol=1e-4 if exact else 0.05, atol=1e-6 if exact else 0.02)


@every_case("where", [{"relative": 3}, {"grid": (1, 3)}, {"grid": (1, 2), "prefix": 1}])
def test_masked_keys_stay_out_beside_relative_positions(where: dict[str, Any]) -> None:
    layer = Attention(8, 2, **where).eval()
    layer.init_weights(torch.Generator().manual_seed(0))
    tokens = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([True, True, False]).expand(2, 1, 3, 3)
    changed = tokens.clone()
    changed[:, 2] = 100.0
    torch.testing.assert_close(layer(tokens, mask=mask)[:, :2], layer(changed, mask=mask)[:, :2])


def test_relative_positions_refuse_other_tokens() -> None:
    layer = Attention(8, 2, relative=3)
    layer.init_weights(torch.Generator().manual_seed(0))
    with pytest.raises(ModelError, match="Relative positions need every token"):
        layer(torch.zeros(1, 2, 8))


@pytest.mark.parametrize("place", ["layers", "layers-shared"])
def test_positions_are_added_at_the_beginning_of_every_block(tiny_config: ViTConfig, place: str) -> None:
    model = tiny(tiny_config, "positions-in-layers" if place == "layers" else "one-table-in-all-layers").eval()
    assert model.config.depth > 1
    given = images(model)
    tokens = torch.cat([model.class_token.expand(2, -1, -1), model.patches(given).tokens], dim=1)
    state = model.state_dict()
    for index, block in enumerate(model.blocks()):
        own = "position.embedding" if not index or place != "layers" else f"later_positions.{index - 1}.embedding"
        tokens, _ = block(tokens + state[own])
    torch.testing.assert_close(model(given), model.head(model.norm(tokens)[:, 0]))
    tables = {name for name in state if "position" in name}
    assert len(tables) == (model.config.depth if place == "layers" else 1)


def test_positions_that_do_not_go_together_are_refused(tiny_config: ViTConfig) -> None:
    for changes, said in (
        ({"position": "relative", "position_at": "layers"}, "Relative positions stand in every block by themselves"),
        ({"position": "relative-2d", "position_at": "layers"}, "Relative positions stand in every block by themselves"),
        ({"initialization": "whitened", "patch_size": (4, 8)}, "Whitened patches are square ones of pixels"),
        ({"position_at": "layers", "registers": 2}, "Registers have no positions"),
        ({"position_at": "middle"}, "position_at must be one of input, layers, layers-shared, not 'middle'"),
    ):
        with pytest.raises(ModelError, match=said):
            dataclasses.replace(tiny_config, **changes)


def test_position_resize_worked_by_hand() -> None:
    grid = torch.tensor([0.0, 2.0, 4.0, 6.0]).reshape(1, 4, 1)
    expected = torch.tensor([0.0, 1, 2, 2, 3, 4, 4, 5, 6]).reshape(1, 9, 1)
    assert torch.equal(resize_position_embedding(grid, (2, 2), (3, 3)), expected)
    # As many tokens on a grid of another shape are still other positions.
    assert not torch.equal(resize_position_embedding(expected[:, :8], (2, 4), (4, 2)), expected[:, :8])


def test_sincos_of_the_corner_is_zeros_and_ones() -> None:
    assert torch.equal(sincos_table((2, 2), 8)[0, 0], torch.tensor([0.0, 0, 1, 1, 0, 0, 1, 1]))


def test_class_token_survives_a_resize(tiny_config: ViTConfig) -> None:
    model = tiny(tiny_config, "paper")
    row = model.position.embedding[0, 0].clone()
    model.resize(32)
    assert torch.equal(model.position.embedding[0, 0], row)
    assert model.position.embedding.shape == (1, 65, 16)


def test_stochastic_depth_grows_linearly_and_dropout_is_seeded(tiny_config: ViTConfig) -> None:
    config = dataclasses.replace(tiny_config, depth=3, stochastic_depth=0.2, dropout=0.1)
    model = build(config, seed=0).train()
    rates = [block.stochastic_depth.rate for block in model.blocks() if isinstance(block, Block)]
    assert rates == pytest.approx([0.0, 0.1, 0.2])
    image = torch.randn(4, 3, 16, 16)
    torch.manual_seed(7)
    first = model.features(image)
    torch.manual_seed(7)
    assert torch.equal(model.features(image), first)
    assert not torch.equal(model.features(image), first)


def test_record_gives_probabilities_of_every_token(tiny_config: ViTConfig) -> None:
    model = tiny(tiny_config, "paper")
    with record(model, "blocks.*.attention") as recorded:
        model(images(model))
    assert list(recorded) == ["blocks.0.attention", "blocks.1.attention"]
    for probabilities in recorded.values():
        assert probabilities.shape == (2, 2, 17, 17)
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 2, 17))
    with pytest.raises(ModelError, match="No part"), record(model, "blocks.9.*"):
        pass


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_size": (18, 16)}, "height 18 is not divided by the patch size 4; use 16 or 20"),
        ({"image_size": (16, 15), "patch_stride": (4, 2)}, "use 14 or 16"),
        ({"image_size": (2, 16)}, "smaller than the patch"),
        ({"dim": 15}, "heads"),
        ({"dropout": 1.0}, "below 1"),
        ({"depth": 0}, "at least 1"),
        ({"position": "sincos-2d", "dim": 18}, "divides"),
    ],
)
def test_what_cannot_be_built_is_refused(tiny_config: ViTConfig, fields: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dataclasses.replace(tiny_config, **fields)  # type: ignore[arg-type]


def test_images_of_another_size_are_refused(tiny_config: ViTConfig) -> None:
    model = build(tiny_config)
    with pytest.raises(ModelError, match="16x16 pixels, not 16x20"):
        model(torch.zeros(1, 3, 16, 20))
    with pytest.raises(ModelError, match="not divided"):
        model.resize(33)


def test_create_model_takes_a_stride() -> None:
    model = create_model("vit-mu16", num_classes=5, image_size=48, patch_stride=8)
    assert isinstance(model, ViT)
    assert model.config.grid == (5, 5)
    assert model(torch.zeros(1, 3, 48, 48)).shape == (1, 5)


def test_deit3s_class_token_has_no_position_and_its_blocks_all_one_rate() -> None:
    config = dataclasses.replace(variant("deit3-s16"), depth=3, dim=48, num_heads=3, stochastic_depth=0.3)
    model = ViT(config)
    model.init_weights(0)
    rates = [layer for layer in model.modules() if isinstance(layer, StochasticDepth)]
    assert model.position.embedding.shape == (1, 196, 48)
    images = torch.randn(1, 3, 224, 224)
    class_token, patches = torch.split(model.embed(model.patches(images)).tokens, [1, 196], dim=1)
    assert torch.equal(class_token, model.class_token)
    plain = model.patch_embedding(images).flatten(2).transpose(1, 2)
    torch.testing.assert_close(patches, plain + model.position.embedding)
    assert [layer.rate for layer in rates] == [0.3, 0.3, 0.3]
    model.set_rates(dropout=0.0, attention_dropout=0.0, stochastic_depth=0.5)
    assert [layer.rate for layer in rates] == [0.5, 0.5, 0.5]
    table = model.position.embedding.detach().clone()
    model.resize(384)
    square = table.view(1, 14, 14, 48).permute(0, 3, 1, 2)
    larger = torch.nn.functional.interpolate(square, size=(24, 24), mode="bicubic").permute(0, 2, 3, 1).flatten(1, 2)
    torch.testing.assert_close(model.position.embedding.detach(), larger, rtol=1e-4, atol=1e-5)


def test_deit3_is_recognised_by_name_at_each_size() -> None:
    for name in ("deit3-s16", "deit3-s16-384", "deit3-h14", "deit-s16"):
        assert variant_name(variant(name)) == name
