"""The parts that the families of published starts bring: their formulas, computed otherwise."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.cases import every_case
from tests.models.test_contract import CONFIGS, VIT, images, make
from vitral.errors import ModelError
from vitral.models.blocks import SwiGlu
from vitral.models.layers import TokenGrid
from vitral.models.position import RotaryKind, RotaryPosition, resize_position_embedding, rotate
from vitral.models.record import record
from vitral.models.vit import ViT


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def vit(name: str) -> Any:  # noqa: ANN401  # a ViT, whose parts are modules without types
    model = make(name)
    assert isinstance(model, ViT)
    return model


def cubic(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return Keys' cubic convolution (a = -0.75) of a sequence at fractional positions, its ends repeated."""
    result = np.zeros(len(positions))
    for index, position in enumerate(positions):
        first = math.floor(position) - 1
        for tap in range(first, first + 4):
            x = abs(position - tap)
            weight = 1.25 * x**3 - 2.25 * x**2 + 1 if x <= 1 else -0.75 * (x**3 - 5 * x**2 + 8 * x - 4)
            result[index] += weight * values[min(max(tap, 0), len(values) - 1)]
    return result


@every_case(("old", "new"), [(37, 16), (8, 12), (16, 15)])
def test_dinov2_resizes_as_if_the_grid_were_a_tenth_of_a_row_larger(old: int, new: int) -> None:
    column = drawn(old).double()
    table = column.reshape(1, old, 1, 1).expand(1, old, old, 1).reshape(1, old * old, 1)
    found = resize_position_embedding(table, (old, old), (new, new), method="bicubic-dinov2").reshape(new, new)
    expected = cubic(column.numpy(), (np.arange(new) + 0.5) * old / (new + 0.1) - 0.5)
    np.testing.assert_allclose(found[:, 0].numpy(), expected, atol=1e-12)
    plain = resize_position_embedding(table, (old, old), (new, new), method="bicubic").reshape(new, new)
    assert float((plain - found).abs().max()) > 1e-3


def test_antialiasing_matters_only_where_the_grid_shrinks() -> None:
    table = drawn(1, 64, 3)
    grown, shrunk = (
        [resize_position_embedding(table, (8, 8), grid, method=method) for method in ("bicubic", "bicubic-antialias")]
        for grid in ((12, 16), (4, 4))
    )
    # With antialiasing torch's cubic has a = -0.5.
    assert float((grown[0] - grown[1]).abs().max()) < 0.5
    assert float(shrunk[1].std()) < 0.8 * float(shrunk[0].std())


def test_the_gate_of_a_swiglu_is_its_first_half() -> None:
    layer = SwiGlu(6, 4)
    tokens = drawn(2, 3, 6)
    gate, value = (
        functional.linear(tokens, layer.fc1.weight[part], layer.fc1.bias[part]) for part in (slice(4), slice(4, 8))
    )
    expected = functional.linear(gate / (1 + torch.exp(-gate)) * value, layer.fc2.weight, layer.fc2.bias)
    torch.testing.assert_close(layer(tokens), expected)


@every_case("kind", ["dinov3", "eva02"])
def test_rotated_products_depend_on_how_far_apart_patches_lie(kind: RotaryKind) -> None:
    rotary = RotaryPosition(kind, (4, 5), 8)
    query, key = drawn(8, seed=1), drawn(8, seed=2)
    rotation = rotary().among(1, 0)
    queries, keys = (rotate(head.expand(1, 1, 21, 8), rotation)[0, 0] for head in (query, key))
    scores = queries @ keys.T
    assert float(scores[0, 0] - query @ key) == pytest.approx(0, abs=1e-5)  # the class token is not turned
    by_place = scores[1:, 1:].reshape(4, 5, 4, 5)  # row and column of the query, then of the key
    assert float(by_place[0, 0, 1, 2]) == pytest.approx(float(by_place[2, 1, 3, 3]), abs=1e-5)
    assert abs(float(by_place[0, 0, 1, 2] - by_place[0, 0, 2, 1])) > 1e-3
    assert torch.allclose(queries.norm(dim=1), query.norm().expand(21))


def test_rotary_angles_stay_exact_in_a_network_of_bfloat16() -> None:
    model = vit("rotary")
    before = model.rotary.table.clone()
    model.to(torch.bfloat16)
    assert torch.equal(model.rotary.table, before)


def test_rotary_positions_follow_the_grid() -> None:
    model = vit("rotary")
    for block in model.encoder:
        block.scale1.scale.data.fill_(1.0)
    model.resize((48, 32))
    batch = images(model)
    assert model.encode(batch).patches.shape[1] == 24
    shuffled = batch.roll(8, dims=2)
    assert not torch.allclose(model.features(batch), model.features(shuffled), atol=1e-4)
    dropped = TokenGrid(model.embed(model.patches(batch)).tokens, None, prefix=3)
    with pytest.raises(ModelError, match="every patch of the grid"):
        model.transform(dropped)


def test_dinov3s_positions_move_in_training_alone_by_torchs_own_draws() -> None:
    """One draw a forward pass, however many steps it is taken in; what is drawn is the original's formula."""
    rotary = RotaryPosition("dinov3", (3, 5), 8, shift=0.25, jitter=1.5, rescale=2.0)
    torch.manual_seed(3)
    found = rotary()
    torch.manual_seed(3)
    shift, jitter = (2 * torch.rand(2) - 1) * 0.25, ((2 * torch.rand(2) - 1) * math.log(1.5)).exp()
    scale = float(((2 * torch.rand(1) - 1) * math.log(2.0)).exp())
    place = (torch.tensor([2 * 1.5 / 3 - 1, 2 * 3.5 / 5 - 1]) + shift) * jitter * scale  # of row 1, column 3
    angles = torch.cat([side * 2 * math.pi * torch.tensor([1.0, 0.1]) for side in place])
    torch.testing.assert_close(found.cosine[8], angles.cos().tile(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.sine[8], angles.sin().tile(2), atol=1e-5, rtol=0)
    state = torch.get_rng_state()
    still = rotary.eval()()
    assert torch.equal(torch.stack([still.cosine, still.sine]), rotary.table)
    assert torch.equal(state, torch.get_rng_state())


def test_all_blocks_of_a_forward_pass_turn_by_the_same_draw() -> None:
    model: Any = ViT(dataclasses.replace(vit("rotary").config, rotary_rescale=2.0, layer_scale=1.0))
    model.init_weights(0)
    for block in model.encoder:
        block.attention.qkv.weight.data.mul_(30)
    batch = images(model)
    torch.manual_seed(4)
    whole = model.encode(batch).tokens
    torch.manual_seed(4)
    z = model.embed(model.patches(batch))
    for block in range(model.config.depth):
        z = model.transform(z, start=block, stop=block + 1)
    torch.testing.assert_close(model.normalize(z).tokens, whole)
    assert not torch.allclose(model.encode(batch).tokens, whole, atol=1e-3)


def test_the_recorded_attention_is_the_rotated_one() -> None:
    model = vit("rotary")
    batch = images(model)
    with record(model, "blocks.0.attention") as found:
        model(batch)
    attention = model.encoder[0].attention
    tokens = model.encoder[0].norm1(model.embed(model.patches(batch)).tokens)
    assert torch.equal(found["blocks.0.attention"], attention.probabilities(tokens, model.rotary().among(3, 0)))
    assert not torch.allclose(found["blocks.0.attention"], attention.probabilities(tokens), atol=1e-4)


def test_clips_norm_comes_after_the_positions_and_before_the_blocks() -> None:
    model = vit("clip")
    batch = images(model)
    patches = model.patches(batch).tokens
    tokens = torch.cat([model.class_token.expand(2, -1, -1), patches], dim=1) + model.position.embedding
    expected = functional.layer_norm(tokens, (32,), model.norm_before.weight, model.norm_before.bias, 1e-5)
    torch.testing.assert_close(model.embed(model.patches(batch)).tokens, expected)
    assert model.patch_embedding.bias is None


def test_a_pooled_norm_comes_after_the_mean() -> None:
    model = vit("pooled-norm")
    batch = images(model)
    torch.testing.assert_close(model.features(batch), model.norm(model.encode(batch).patches.mean(dim=1)))


def test_dinov2s_classifier_reads_class_token_and_mean() -> None:
    model = vit("dinov2-classifier")
    batch = images(model)
    encoded = model.encode(batch)
    expected = torch.cat([encoded.tokens[:, 0], encoded.patches.mean(dim=1)], dim=1)
    torch.testing.assert_close(model.features(batch), expected)
    assert model.num_features == 64


@every_case(
    ("changes", "message"),
    [
        ({"mlp": "glu"}, "mlp must be one of plain, swiglu"),
        ({"rotary": "rope"}, "rotary must be one of none, dinov3"),
        ({"rotary": "dinov3", "num_heads": 16}, "heads of a width that 4 divides, not 2"),
        ({"rotary": "eva02", "rotary_rescale": 2.0}, "Only rotary positions of the kind 'dinov3' are moved"),
        ({"rotary": "dinov3", "rotary_rescale": 0.5}, "rotary_rescale must be at least 1, not 0.5"),
        ({"norm_pooled": True}, "needs pooling 'gap', not 'token'"),
        ({"mlp": "swiglu", "experts": CONFIGS["experts"].experts}, "Experts and a gated MLP"),  # type: ignore[attr-defined]
    ],
)
def test_what_cannot_be_built_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dataclasses.replace(VIT, **changes)
