"""Masked patch prediction against the paper's appendix B.1.2, patch by patch."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.catalog import variant
from vitral.models.families import build
from vitral.models.layers import BatchPart
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig
from vitral.objectives.masked_patches import (
    MaskedPatchPrediction,
    choose_patches,
    masked_patch_loss,
    mean_colours,
)

CONFIG = ViTConfig(image_size=(8, 12), patch_size=(4, 4), dim=48, depth=1, mlp_dim=16, num_heads=2, num_classes=3)


def predictor(**changes: object) -> MaskedPatchPrediction:
    network = build(dataclasses.replace(CONFIG, **changes), seed=0)  # type: ignore[arg-type]
    return MaskedPatchPrediction(network, share=0.5, seed=0)


def test_colours_are_three_bits_a_channel_red_first() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 12), dtype=np.uint8)
    pixels[0, :, :4, :4], pixels[0, :, 4:, :4] = 255, 0
    pixels[1] = pixels[1] // 20 + np.array([32, 95, 160], dtype=np.uint8)[:, None, None]
    found = mean_colours(torch.from_numpy(pixels), (4, 4))
    for image in range(3):
        for row in range(2):
            for column in range(3):
                part = pixels[image, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
                red, green, blue = (int(channel.mean() // 32) for channel in part.astype(float))
                assert found[image, 3 * row + column] == 64 * red + 8 * green + blue
    assert found[0, 0] == 511
    assert found[0, 3] == 0


def test_colours_of_patches_that_are_wider_than_high() -> None:
    pixels = torch.zeros(1, 3, 4, 8, dtype=torch.uint8)
    pixels[0, 2, :2, 4:] = 32
    assert mean_colours(pixels, (2, 4)).tolist() == [[0, 1, 0, 0]]


def test_the_loss_looks_at_corrupted_patches_alone() -> None:
    logits = torch.randn(2, 4, 512, generator=torch.Generator().manual_seed(0))
    colours = torch.tensor([[3, 511, 7, 0], [64, 9, 100, 200]])
    logits[0, 1, 511] = logits[1, 2, 100] = 40.0
    logits[1, 3, 200] = -40.0
    corrupted = torch.tensor([[False, True, False, False], [False, False, True, True]])
    loss, right = masked_patch_loss(logits.bfloat16(), corrupted, colours)
    wrong = logits[1, 3].bfloat16().double()
    expected = float(torch.logsumexp(wrong, 0) - wrong[200]) / 3  # the two others cost nothing
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert loss.dtype == torch.float32
    assert float(right) == pytest.approx(2 / 3)


@every_case(("count", "share", "expected"), [(49, 0.5, 24), (10, 0.25, 2), (4, 0.05, 1), (9, 1.0, 9)])
def test_every_image_loses_as_many_patches_and_others_than_the_next(count: int, share: float, expected: int) -> None:
    torch.manual_seed(0)
    chosen = choose_patches(400, count, share)
    assert chosen.shape == (400, count)
    assert chosen.sum(dim=1).tolist() == [expected] * 400
    often = chosen.float().mean(dim=0)
    assert float((often - expected / count).abs().max()) <= 5 * (expected / count * (1 - expected / count) / 400) ** 0.5


def test_a_corrupted_patch_is_masked_replaced_by_one_of_its_own_image_or_left() -> None:
    torch.manual_seed(0)
    module = predictor()
    torch.nn.init.constant_(module.mask, -1.0)
    count, images = 64, 60
    patches = torch.arange(float(images * count)).view(images, count, 1).expand(-1, -1, 48).contiguous()
    corrupted = choose_patches(images, count, 0.5)
    seen = module.corrupt(patches, corrupted)[:, :, 0]
    own = patches[:, :, 0]
    assert torch.equal(seen[~corrupted], own[~corrupted])
    masked, left = seen == -1.0, seen == own
    replaced = corrupted & ~masked & ~left
    assert bool((seen[replaced] // count == torch.arange(images)[:, None].expand(-1, count)[replaced]).all())
    total = int(corrupted.sum())
    for kind, share in ((masked, 0.8), (replaced, 0.1), (corrupted & left, 0.1)):
        assert abs(int(kind.sum()) - share * total) < 5 * (total * share * (1 - share)) ** 0.5
    columns = set((seen[replaced] % count).tolist())
    assert len(columns) > 50  # any patch of the image may come in


def test_the_mask_and_the_head_are_drawn_as_the_networks_own_layers() -> None:
    modules = [MaskedPatchPrediction(build(CONFIG, seed=0), share=0.5, seed=seed) for seed in (0, 0, 1)]
    weights = [module.colour_head.weight.detach() for module in modules]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert weights[0].shape == (512, 48)
    assert float(weights[0].std()) == pytest.approx(48**-0.5, rel=0.05)
    assert float(weights[0].abs().max()) < 2.3 * 48**-0.5  # a truncated normal's bound
    assert float(modules[0].colour_head.bias.detach().abs().max()) == 0.0
    assert modules[0].mask.shape == (1, 1, 48)
    assert float(modules[0].mask.detach().std()) == pytest.approx(0.02, rel=0.35)


def test_a_forward_pass_gives_the_colours_of_every_patch_from_the_whole_encoder() -> None:
    module = predictor().eval()
    images = torch.randn(3, 3, 8, 12)
    torch.manual_seed(1)
    logits, corrupted = module(images)
    assert logits.shape == (3, 6, 512)
    assert corrupted.sum(dim=1).tolist() == [3, 3, 3]
    network = module.network
    assert isinstance(network, ViT)
    torch.manual_seed(1)
    again = choose_patches(3, 6, 0.5)
    assert torch.equal(again, corrupted)
    patches = torch.nn.functional.conv2d(
        images, network.patch_embedding.weight, network.patch_embedding.bias, stride=4
    ).flatten(2)
    changed = module.corrupt(patches.transpose(1, 2), corrupted)
    assert network.class_token is not None
    tokens = (
        torch.cat([network.class_token.expand(3, -1, -1), changed], dim=1)
        + dict(network.named_parameters())["position.embedding"]
    )
    for block in network.encoder:
        tokens, _ = block(tokens)
    torch.testing.assert_close(logits, module.colour_head(network.norm(tokens)[:, 1:]))


@every_case("changes", [{"patch_stride": (2, 2)}, {"patch_stride": (4, 2)}])
def test_overlapping_patches_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(
        ModelError, match=r"^Masked patch prediction needs a Vision Transformer with a plain grid of pat"
    ):
        predictor(**changes)


def test_a_network_without_patches_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"^Masked patch prediction needs a Vision Transformer with a plain grid of pat"
    ):
        MaskedPatchPrediction(build(variant("resnet-18"), seed=None), share=0.5, seed=0)


def test_a_part_of_a_batch_loses_the_branches_that_it_would_lose_in_the_whole() -> None:
    module = predictor(stochastic_depth=0.5, depth=3).train()
    network = module.network
    assert isinstance(network, ViT)
    images, part = torch.randn(4, 3, 8, 12), BatchPart(5, 9)
    torch.manual_seed(3)
    logits, corrupted = module(images, part)
    torch.manual_seed(3)
    choose_patches(4, 6, 0.5)
    patches = network.patches(images)
    patches = patches.with_tokens(module.corrupt(patches.tokens, corrupted))
    encoded = network.normalize(network.transform(network.embed(patches), part=part))
    torch.testing.assert_close(logits, module.colour_head(encoded.patches))
    torch.manual_seed(3)
    assert not torch.allclose(module(images)[0], logits)
