"""The stem of our hybrids: its first layer whitens, its stages begin as the identity, its sizes are those of its maps."""

import math
from typing import cast

import torch
from torch import nn

from tests.cases import every_case
from vitral.models.catalog import variant
from vitral.models.convolution import Stage, WhitenedStem, WhitenedStemConfig, whitening_filters
from vitral.models.families import build
from vitral.models.resnet import StemConfig
from vitral.models.vit_config import ViTConfig
from vitral.training.optimization.muon import hidden_matrices


def covariance_of_images(patch: int) -> torch.Tensor:
    """Return the covariance of the patches of the first-order model of images, by its definition."""
    colour = torch.tensor([[1, 0.92, 0.85], [0.92, 1, 0.91], [0.85, 0.91, 1]], dtype=torch.float64)
    down, across = (
        torch.tensor([[r ** abs(i - j) for j in range(patch)] for i in range(patch)], dtype=torch.float64)
        for r in (0.95, 0.945)
    )
    return torch.einsum("ab,cd,ef->acebdf", colour, down, across).reshape(3 * patch**2, -1)


@every_case("patch", [1, 2, 3, 4])
def test_the_first_layer_whitens_what_natural_images_are_like(patch: int) -> None:
    filters = whitening_filters(patch).double().flatten(1)
    half = len(filters) // 2
    assert torch.equal(filters[:half], -filters[half:])
    covariance = covariance_of_images(patch)
    seen = filters[:half] @ covariance @ filters[:half].T
    # Whole but for the epsilon, which keeps down what hardly varies.
    variances = torch.linalg.eigvalsh(covariance).flip(0)
    torch.testing.assert_close(seen, torch.diag(variances / (variances + 5e-4)), atol=1e-4, rtol=0)


@every_case("config", [WhitenedStemConfig(), WhitenedStemConfig(patch=3, step=2, widths=(8, 8, 16))])
@every_case("size", [28, 32, 45, 64])
def test_a_map_has_the_positions_that_the_config_says(config: WhitenedStemConfig, size: int) -> None:
    stem = WhitenedStem(config)
    stem.init_weights(torch.Generator().manual_seed(0))
    maps = stem.eval()(torch.randn(1, 3, size, size))
    assert maps.shape[1:] == (config.channels, config.positions(size), config.positions(size))
    least = config.least(2)
    assert (config.positions(least - 1), config.positions(least)) == (1, 2)


def test_a_stage_hands_on_what_it_is_given() -> None:
    stem = WhitenedStem(WhitenedStemConfig(widths=(64,)))
    stem.init_weights(torch.Generator().manual_seed(0))
    maps = torch.rand(2, 24, 8, 8)
    stage = cast(Stage, stem.stages[0])
    torch.testing.assert_close(stage.conv1(maps)[:, :24], maps)


def test_the_filters_are_kept_and_never_learned() -> None:
    config = ViTConfig(
        image_size=(32, 32),
        patch_size=(1, 1),
        dim=16,
        depth=1,
        mlp_dim=16,
        num_heads=2,
        stem=WhitenedStemConfig(widths=(8, 16)),
    )
    model = build(config)
    assert "stem.whitening.weight" in model.state_dict()
    assert "stem.whitening.weight" not in dict(model.named_parameters())
    model.train()(torch.rand(2, 3, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_muon_takes_every_convolution_but_the_one_that_reads_the_pixels() -> None:
    model = build(variant("conv-vit-8"))
    stem = cast(WhitenedStem, model.stem)
    matrices = hidden_matrices(model)
    convolutions = [layer.weight for layer in stem.stages.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 6
    assert all(weight in matrices for weight in convolutions)
    assert stem.whitening.weight not in matrices


def test_a_resnet_stem_counts_positions_as_its_padding_gives_them() -> None:
    config = StemConfig(stages=(1, 1))
    assert [config.positions(size) for size in (32, 33, 40)] == [math.ceil(size / 8) for size in (32, 33, 40)]
