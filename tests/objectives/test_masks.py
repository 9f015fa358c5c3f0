"""The matching of queries with regions and their losses, by hand and by formulas; tests/peers holds them against EoMT's."""

import itertools

import numpy as np
import pytest
import torch

from vitral.models.dense.answers import QueryAnswers
from vitral.objectives.masks import MaskLoss, dice_loss, uncertain_points
from vitral.objectives.matching import MaskCosts, cheapest, match, pairwise_cross_entropy, pairwise_dice, sample

SURE = 30.0


def blocks() -> torch.Tensor:
    """Return the masks of the four quarters of an image."""
    masks = torch.zeros(4, 8, 8, dtype=torch.bool)
    for mask, (row, column) in zip(masks, itertools.product((0, 4), repeat=2), strict=True):
        mask[row : row + 4, column : column + 4] = True
    return masks


def answers(order: list[int], classes: list[int]) -> QueryAnswers:
    """Return queries that are sure of a quarter each, in that order, and of its class, of two."""
    masks = SURE * (2 * blocks()[order].float() - 1)
    return QueryAnswers(SURE * torch.nn.functional.one_hot(torch.tensor(classes), 3).float()[None], masks[None])


def test_each_quarter_finds_its_query() -> None:
    (pairs,) = match(
        answers([2, 0, 3, 1], [0, 1, 0, 1]), [torch.tensor([1, 1, 0])], [blocks()[:3]], points=200, costs=MaskCosts()
    )
    assert dict(zip(*map(torch.Tensor.tolist, pairs), strict=True)) == {1: 0, 3: 1, 0: 2}


def test_the_pairs_are_the_cheapest_of_all() -> None:
    cost = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    queries, regions = cheapest(cost)
    least = min(float(cost[list(chosen), range(3)].sum()) for chosen in itertools.permutations(range(5), 3))
    assert float(cost[queries, regions].sum()) == pytest.approx(least)
    assert len(cheapest(torch.full((2, 2), torch.nan))[0]) == 2


def test_values_at_points_are_bilinear_and_0_outside() -> None:
    masks = torch.arange(12.0).reshape(1, 3, 4)
    points = torch.tensor([[[0.5 / 4, 0.5 / 3], [2 / 4, 1.5 / 3], [0.0, 0.5 / 3]]])
    torch.testing.assert_close(sample(masks + 1, points), torch.tensor([[1.0, 6.5, 0.5]]))
    many = torch.rand(70, 5, 5) > 0.5
    own = torch.rand(70, 4, 2)
    torch.testing.assert_close(sample(many, own)[69:], sample(many[69:], own[69:]))


def test_costs_of_pairs_are_the_losses_of_pairs() -> None:
    logits, labels = torch.randn(3, 50), (torch.rand(2, 50) > 0.4).float()
    crossed, dice = pairwise_cross_entropy(logits, labels), pairwise_dice(logits, labels)
    for query, region in np.ndindex(3, 2):
        expected = torch.nn.functional.binary_cross_entropy_with_logits(logits[query], labels[region])
        torch.testing.assert_close(crossed[query, region], expected)
        torch.testing.assert_close(
            dice[query, region], dice_loss(logits[query : query + 1], labels[region : region + 1])[0]
        )


def test_points_are_where_masks_are_uncertain() -> None:
    columns = torch.linspace(-10, 10, 64).expand(1, 64, 64)  # uncertain in the middle columns alone
    points = uncertain_points(columns, 400)
    assert points.shape == (1, 400, 2)
    far = (points[0, :, 0] - 0.5).abs()
    assert float(far[:300].max()) < 0.2  # a third of three times as many, times three quarters
    assert float(far[300:].max()) > 0.4


def test_right_answers_cost_nothing_and_queries_with_nothing_to_find_little() -> None:
    loss, parts = MaskLoss(points=100)(
        answers([0, 1, 2, 3], [0, 1, 2, 2]), [torch.tensor([0, 1])], [blocks()[:2]], num_masks=torch.tensor(2.0)
    )
    assert float(parts["class"]) < 1e-6
    worse, parts = MaskLoss(points=100)(
        answers([0, 1, 2, 3], [0, 1, 1, 1]), [torch.tensor([0, 1])], [blocks()[:2]], num_masks=torch.tensor(2.0)
    )
    assert float(loss) < float(worse)
    assert float(parts["class"]) == pytest.approx(2 * 0.1 * SURE / 2.2, rel=1e-4)


def test_a_batch_without_any_region_teaches_classes_and_leaves_no_weight_without_a_gradient() -> None:
    given = answers([0, 1], [0, 2])
    masks, classes = given.masks.requires_grad_(), given.classes.requires_grad_()  # type: ignore[union-attr]
    nothing = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, 8, 8, dtype=torch.bool)]
    loss, parts = MaskLoss(points=10)(QueryAnswers(classes, masks), *nothing, num_masks=torch.tensor(1.0))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(parts["mask"].detach()) == float(parts["dice"].detach()) == 0.0
    assert masks.grad is not None
    assert classes.grad is not None
    assert bool(classes.grad.any())
