"""Losses as their sources have them."""

import pytest
import torch
from torch import nn

from tests.cases import every_case
from tests.training.conftest import CONFIG
from vitral.errors import ModelError
from vitral.models.families import build, create_model
from vitral.models.vit_config import ViTConfig
from vitral.objectives.classification import sigmoid_cross_entropy, softmax_cross_entropy
from vitral.objectives.masked_patches import MaskedPatchPrediction, choose_patches, mean_colours
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.training.methods.supervised import Supervised
from vitral.training.settings.recipe import build_recipe


@every_case("smoothing", [0.0, 0.1])
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
    loss = Supervised(network, build_recipe({"objective": objective}, "test"), MULTI_LABEL).loss_of(logits, mixed)
    torch.testing.assert_close(loss, nn.BCEWithLogitsLoss()(logits, mixed.gt(0.0).float()))


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
