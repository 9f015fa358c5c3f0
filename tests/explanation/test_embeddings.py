"""The panels of the paper's figure 7."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from vitral.errors import ModelError
from vitral.explanation.network import (
    attention_distance,
    mean_distance,
    patch_distances,
    patch_filters,
    position_similarity,
)
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.catalog import variant
from vitral.models.families import build
from vitral.models.resnet import StemConfig
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig


def network(config: ViTConfig) -> ViT:
    """Build an untrained network."""
    model = ViT(config)
    model.init_weights(0)
    return model


def test_filters_of_rank_one_give_that_filter_first(tiny_config: ViTConfig) -> None:
    model = network(tiny_config)
    pattern = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.patch_embedding.weight.copy_(torch.arange(16.0).view(16, 1, 1, 1) * pattern)
    filters = patch_filters(model)
    assert filters is not None
    stretched = ((pattern - pattern.min()) / (pattern.max() - pattern.min())).permute(1, 2, 0).numpy()
    if float(pattern.flatten()[pattern.abs().argmax()]) < 0:
        stretched = 1 - stretched
    np.testing.assert_allclose(filters[0], stretched, atol=1e-5)


def test_there_are_at_most_28_filters(tiny_config: ViTConfig) -> None:
    few = patch_filters(network(tiny_config))
    assert few is not None
    assert few.shape == (16, 4, 4, 3)
    wide = patch_filters(network(dataclasses.replace(tiny_config, dim=64)))
    assert wide is not None
    assert wide.shape == (28, 4, 4, 3)
    assert (wide.min(), wide.max()) == (0.0, 1.0)


def test_positions_are_like_themselves(tiny_config: ViTConfig) -> None:
    config = dataclasses.replace(tiny_config, image_size=(8, 12), position="sincos-2d")
    similarity = position_similarity(network(config))
    assert similarity is not None
    assert similarity.shape == (2, 3, 2, 3)
    flat = similarity.reshape(6, 6)
    np.testing.assert_allclose(np.diag(flat), 1.0, atol=1e-6)
    np.testing.assert_allclose(flat, flat.T, atol=1e-6)


def test_the_class_token_has_no_place(tiny_config: ViTConfig) -> None:
    model = network(tiny_config)
    before = position_similarity(model)
    with torch.no_grad():
        model.position.embedding[:, 0].fill_(7.0)
    np.testing.assert_array_equal(before, position_similarity(model))


def test_no_position_embedding_has_no_similarity(tiny_config: ViTConfig) -> None:
    assert position_similarity(network(dataclasses.replace(tiny_config, position="none"))) is None


def test_distances_by_hand() -> None:
    distances = patch_distances((2, 2), (16, 16))
    diagonal = 16 * math.sqrt(2)
    expected = [[0, 16, 16, diagonal], [16, 0, diagonal, 16], [16, diagonal, 0, 16], [diagonal, 16, 16, 0]]
    np.testing.assert_allclose(distances.numpy(), expected)
    # A class token takes half of every query's attention and is left out, without scaling the rest up.
    attention = torch.full((1, 1, 5, 5), 0.125)
    attention[..., 0] = 0.5
    mean = mean_distance([attention], distances, num_prefix_tokens=1)
    assert mean.tolist() == [[pytest.approx(0.125 * (32 + diagonal))]]


def test_distance_of_a_network_is_averaged_over_its_images(tiny_config: ViTConfig) -> None:
    model = network(tiny_config)
    images = torch.randn(11, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    found = attention_distance(TorchPredictor(model), images)
    assert (len(found.pixels), len(found.pixels[0]), found.num_images) == (2, 2, 11)
    each = [attention_distance(TorchPredictor(model), image[None]).pixels for image in images]
    np.testing.assert_allclose(found.pixels, np.mean(each, axis=0), rtol=1e-6)


def test_a_hybrids_patches_have_no_colours_and_a_convolutional_network_no_patches(tiny_config: ViTConfig) -> None:
    hybrid = dataclasses.replace(tiny_config, patch_size=(1, 1), image_size=(32, 32), stem=StemConfig(stages=()))
    assert patch_filters(network(hybrid)) is None
    assert position_similarity(network(hybrid)) is not None
    with pytest.raises(ModelError, match="^resnet-18 has neither patches"):
        patch_filters(build(variant("resnet-18"), seed=None))
