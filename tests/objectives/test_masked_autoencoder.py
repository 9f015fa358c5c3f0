"""The masked autoencoder against MAE's paper and code: what the encoder sees, what is rebuilt, and from what."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.blocks import Block
from vitral.models.catalog import variant
from vitral.models.families import build
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig
from vitral.objectives.masked_autoencoder import (
    MaskedAutoencoder,
    choose_visible,
    patch_pixels,
    rebuilding_loss,
    wave_positions,
)

CONFIG = ViTConfig(image_size=(8, 12), patch_size=(4, 4), dim=16, depth=2, mlp_dim=32, num_heads=2, num_classes=3)
VISIBLE = torch.tensor([[0, 4], [2, 5]])


def autoencoder(depth: int = 1, **changes: Any) -> MaskedAutoencoder:  # noqa: ANN401
    network = build(dataclasses.replace(CONFIG, **changes), seed=0)
    return MaskedAutoencoder(network, share=0.6, depth=depth, width=24, heads=2, seed=0)


def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))


def test_the_encoder_gives_what_it_gives_for_the_visible_patches_alone() -> None:
    module = autoencoder()
    network = module.network
    assert isinstance(network, ViT)
    seen = images()
    found = module.encode(seen, VISIBLE)
    for image, numbers in enumerate(VISIBLE.tolist()):
        tokens = []
        for number in numbers:
            row, column = divmod(number, 3)
            patch = seen[image, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            embedding = network.patch_embedding
            assert embedding.bias is not None
            token = torch.einsum("dcij,cij->d", embedding.weight, patch) + embedding.bias
            tokens.append(token + network.position.embedding[0, 1 + number])
        alone = torch.stack([network.class_token[0, 0] + network.position.embedding[0, 0], *tokens])[None]
        for block in network.encoder:
            alone, _ = block(alone)
        torch.testing.assert_close(found[image : image + 1], network.norm(alone), rtol=1e-5, atol=1e-5)


def test_hidden_pixels_change_nothing_that_the_decoder_is_told() -> None:
    module, seen = autoencoder(), images()
    before = module.decode(module.encode(seen, VISIBLE), VISIBLE)
    seen[0, :, :4, 4:8] += 5  # patch 1
    assert torch.equal(module.decode(module.encode(seen, VISIBLE), VISIBLE), before)
    seen[0, :, 4:8, 4:8] += 5  # patch 4
    assert not torch.allclose(module.decode(module.encode(seen, VISIBLE), VISIBLE)[0], before[0])


def test_the_decoder_has_each_visible_token_in_its_place_and_one_token_in_all_others() -> None:
    module = autoencoder(depth=0)  # then each place is computed alone
    encoded = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(1))
    found = module.decode(encoded, VISIBLE)
    for image, numbers in enumerate(VISIBLE.tolist()):
        for number in range(6):
            token = module.mask_token[0, 0]
            if number in numbers:
                token = module.embedding(encoded[image, 1 + numbers.index(number)])
            expected = module.prediction(module.norm(token + wave_positions((2, 3), 24)[number]))
            torch.testing.assert_close(found[image, number], expected, rtol=1e-5, atol=1e-6)


@every_case(("count", "share", "expected"), [(196, 0.75, 49), (49, 0.75, 12), (7, 0.5, 3), (10, 0.5, 5), (4, 0.9, 1)])
def test_as_many_patches_are_visible_of_every_image_and_others_than_of_the_next(
    count: int, share: float, expected: int
) -> None:
    torch.manual_seed(0)
    visible, hidden = choose_visible(300, count, share)
    assert visible.shape == (300, expected)
    assert (visible.diff(dim=1) > 0).all()
    assert hidden.sum(dim=1).tolist() == [count - expected] * 300
    assert not hidden.gather(1, visible).any()
    often = (~hidden).float().mean(dim=0)
    assert float((often - expected / count).abs().max()) <= 5 * (expected / count * (1 - expected / count) / 300) ** 0.5


def test_a_patch_is_its_rows_then_its_columns_then_its_channels() -> None:
    seen = images()
    found = patch_pixels(seen, (4, 4))
    assert found.shape == (2, 6, 48)
    for number in range(6):
        row, column = divmod(number, 3)
        expected = [
            seen[1, channel, 4 * row + y, 4 * column + x] for y in range(4) for x in range(4) for channel in range(3)
        ]
        assert found[1, number].tolist() == [float(value) for value in expected]


@every_case("normalized", [True, False])
def test_the_loss_is_of_hidden_patches_alone_each_normalized_by_itself(normalized: bool) -> None:
    seen, rebuilt = images(), torch.randn(2, 6, 48, generator=torch.Generator().manual_seed(2))
    hidden = torch.tensor([[True, False, True, False, False, False], [False, False, False, False, False, True]])
    losses = []
    for image, number in ((0, 0), (0, 2), (1, 5)):
        target = patch_pixels(seen, (4, 4))[image, number].double().numpy()
        if normalized:
            target = (target - target.mean()) / np.sqrt(target.var(ddof=1) + 1e-6)
        losses.append(np.mean((rebuilt[image, number].double().numpy() - target) ** 2))
    found = rebuilding_loss(rebuilt, seen, hidden, patch=(4, 4), normalized=normalized)
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)


def test_positions_are_waves_of_column_and_row() -> None:
    found = wave_positions((2, 3), 8)
    for row in range(2):
        for column in range(3):
            slow = 10_000**-0.5
            expected = [
                *(np.sin(column), np.sin(column * slow), np.cos(column), np.cos(column * slow)),
                *(np.sin(row), np.sin(row * slow), np.cos(row), np.cos(row * slow)),
            ]
            assert found[3 * row + column].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_decoder_is_drawn_by_its_seed_alone() -> None:
    torch.manual_seed(1)
    one = autoencoder().state_dict()
    torch.manual_seed(2)
    other = autoencoder().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "positions" not in one


@every_case(
    "changes",
    [{"rotary": "dinov3"}, {"position": "relative"}, {"position_at": "layers"}, {"patch_stride": (2, 2)}],
    ids=["rotary", "relative", "layers", "overlap"],
)
def test_a_network_that_needs_all_patches_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="plain grid of patches"):
        autoencoder(**changes)


def test_other_families_are_refused() -> None:
    network = build(dataclasses.replace(variant("resnet-18"), image_size=(32, 32), num_classes=3), seed=None)
    with pytest.raises(ModelError, match="plain grid of patches"):
        MaskedAutoencoder(network, share=0.75, depth=1, width=24, heads=2, seed=0)


def test_every_norm_adds_the_epsilon_of_maes_code() -> None:
    assert {layer.eps for layer in autoencoder().modules() if isinstance(layer, nn.LayerNorm)} == {1e-6}


@every_case(("gelu", "approximate"), [("exact", "none"), ("tanh", "tanh")])
def test_the_decoders_blocks_have_the_encoders_gelu(gelu: str, approximate: str) -> None:
    block, values = autoencoder(gelu=gelu).decoder[0], torch.linspace(-4, 4, 100)
    assert isinstance(block, Block)
    torch.testing.assert_close(block.mlp.gelu(values), nn.functional.gelu(values, approximate=approximate))
    assert not torch.equal(nn.functional.gelu(values), nn.functional.gelu(values, approximate="tanh"))
