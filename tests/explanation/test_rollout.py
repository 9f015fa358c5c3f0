"""Rollout worked by hand."""

import pytest
import torch

from vitral.explanation.methods import attention_rollout, patch_relevance


def test_two_layers_by_hand() -> None:
    # Two heads of the first layer, whose mean is [[0.5, 0.5], [0, 1]]; one layer more, with equal heads.
    first = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]])
    second = torch.tensor([[[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]])
    # A1 = [[0.75, 0.25], [0, 1]], A2 = [[0.5, 0.5], [0.5, 0.5]], A2 A1 = [[0.375, 0.625], [0.375, 0.625]].
    expected = torch.tensor([[[0.375, 0.625], [0.375, 0.625]]])
    torch.testing.assert_close(attention_rollout([first, second]), expected)
    # The other way round would be [[0.5, 0.5], [0.5, 0.5]]: the order matters.
    torch.testing.assert_close(attention_rollout([second, first]), torch.full((1, 2, 2), 0.5))


def test_one_layer_is_half_identity() -> None:
    attention = torch.tensor([[[[0.2, 0.8], [0.6, 0.4]]]])
    torch.testing.assert_close(attention_rollout([attention]), torch.tensor([[[0.6, 0.4], [0.3, 0.7]]]))


def test_rows_sum_to_one() -> None:
    generator = torch.Generator().manual_seed(0)
    attentions = [torch.randn(2, 3, 11, 11, generator=generator).softmax(dim=-1) for _ in range(6)]
    torch.testing.assert_close(attention_rollout(attentions).sum(dim=-1), torch.ones(2, 11))


def test_relevance_drops_class_token_and_registers_and_keeps_raster_order() -> None:
    rollout = torch.arange(64.0).view(1, 8, 8)
    weights = torch.zeros(1, 8)
    weights[0, 0] = 1.0
    relevance = patch_relevance(rollout, grid=(2, 3), num_prefix_tokens=2, weights=weights)
    assert relevance.tolist() == [[[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]]


def test_relevance_of_a_mean_is_the_mean_of_the_rows() -> None:
    rollout = torch.eye(4)[None]
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    relevance = patch_relevance(rollout, grid=(2, 2), num_prefix_tokens=0, weights=weights)
    assert relevance.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
