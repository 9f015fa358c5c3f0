"""Semantic softmax on a tree made by hand, against the loss written out term by term."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.cases import every_case
from vitral.data.label_tree import levels
from vitral.models.catalog import VARIANTS
from vitral.models.families import build, replace
from vitral.objectives.semantic_softmax import (
    Level,
    SemanticHead,
    class_shares,
    level_weights,
    semantic_distillation,
)

TREE = {"tabby": "cat", "siamese": "cat", "cat": "animal", "dog": "animal", "car": "thing", "bus": "thing"}
CLASSES = ("tabby", "siamese", "dog", "car", "bus")
OTHERS = ("animal", "thing", "cat")
LABELS = (*CLASSES, *OTHERS)
# What each class says to each level: roots, then cat, dog, car and bus, then the two cats.
TOLD = {
    "tabby": ("animal", "cat", "tabby"),
    "siamese": ("animal", "cat", "siamese"),
    "dog": ("animal", "dog", None),
    "car": ("thing", "car", None),
    "bus": ("thing", "bus", None),
}
NODES = (("animal", "thing"), ("cat", "dog", "car", "bus"), ("tabby", "siamese"))


def made() -> list[Level]:
    tree = levels(TREE, CLASSES, "tree")
    assert tree.nodes == NODES
    weights = level_weights([len(nodes) for nodes in tree.nodes], 20.0)
    return [
        Level([LABELS.index(node) for node in nodes], [places[row] for places in tree.places], weights[row])
        for row, nodes in enumerate(tree.nodes)
    ]


def logits(rows: int = 4) -> torch.Tensor:
    return 2 * torch.randn(rows, len(LABELS), generator=torch.Generator().manual_seed(0))


def by_hand(values: list[float], nodes: tuple[str, ...], told: str | None, smoothing: float) -> float:
    if told is None:
        return 0.0
    own = [values[LABELS.index(node)] for node in nodes]
    total = math.log(sum(map(math.exp, own)))
    loss = 0.0
    for node, value in zip(nodes, own, strict=True):
        share = (1 - smoothing) * (node == told) + smoothing / len(nodes)
        loss -= share * (value - total)
    return loss


@every_case("smoothing", [0.0, 0.2])
def test_each_level_has_the_loss_of_its_own_softmax(smoothing: float) -> None:
    values, truth = logits(), ("siamese", "dog", "bus", "tabby")
    shares = class_shares(torch.tensor([CLASSES.index(name) for name in truth]), len(CLASSES))
    for row, level in enumerate(made()):
        each = [
            by_hand(values[image].tolist(), NODES[row], TOLD[name][row], smoothing) for image, name in enumerate(truth)
        ]
        # The mean is over all four images, also where two of them say nothing.
        assert float(level.loss(values, shares, smoothing)) == pytest.approx(sum(each) / 4, rel=1e-5)


def test_an_image_of_two_classes_says_to_each_level_what_both_say() -> None:
    values = logits(1)
    shares = torch.tensor([[0.3, 0.0, 0.7, 0.0, 0.0]])  # a tabby and a dog: an animal for certain
    for row, level in enumerate(made()):
        each = 0.3 * by_hand(values[0].tolist(), NODES[row], TOLD["tabby"][row], 0.0)
        each += 0.7 * by_hand(values[0].tolist(), NODES[row], TOLD["dog"][row], 0.0)
        assert float(level.loss(values, shares, 0.0)) == pytest.approx(each, rel=1e-5)


def test_weights_are_the_labels_of_all_levels_over_those_below() -> None:
    assert [level.weight for level in made()] == pytest.approx([1.0, 8 / 6, 8 / 2])
    assert level_weights([1000, 30, 20], 20.0) == pytest.approx([1.0, 20.0, 20.0])


def test_an_answer_is_right_on_each_level_that_is_told_something() -> None:
    values = torch.full((2, len(LABELS)), -5.0)
    for image, nodes in enumerate((("animal", "cat", "siamese"), ("animal", "car"))):
        for node in nodes:
            values[image, LABELS.index(node)] = 5.0
    shares = class_shares(torch.tensor([CLASSES.index("tabby"), CLASSES.index("bus")]), len(CLASSES))
    counts = [tuple(map(float, level.right(values, shares))) for level in made()]
    assert counts == [(1.0, 2.0), (1.0, 2.0), (0.0, 1.0)]


def test_distillation_is_the_squared_difference_times_how_sure_the_teacher_is() -> None:
    level = made()[1]
    ours, theirs = logits(2), logits(4)[2:]
    expected = 0.0
    for image in range(2):
        own, taught = (
            torch.tensor([float(values[image][LABELS.index(node)]) for node in NODES[1]]).softmax(dim=0)
            for values in (ours, theirs)
        )
        expected += float(taught.max()) * float((own - taught).square().sum())  # a twentieth of four labels is one
    assert float(semantic_distillation(level, ours, theirs)) == pytest.approx(expected / 2, rel=1e-5)


def test_labels_that_are_no_classes_have_a_layer_of_their_own() -> None:
    network = build(replace(VARIANTS["vit-mu16"], image_size=(32, 32), num_classes=5, depth=1), seed=0)
    nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(0))
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    module = SemanticHead(network, 3, seed=1)
    values = module(images)
    assert values.shape == (2, 8)
    torch.testing.assert_close(values[:, :5], network(images))
    assert SemanticHead(network, 0, seed=1)(images).shape == (2, 5)
    again = SemanticHead(network, 3, seed=1)
    assert module.others is not None
    assert again.others is not None
    assert torch.equal(module.others.weight, again.others.weight)


def test_shares_are_taken_as_they_are_and_class_numbers_as_whole_ones() -> None:
    mixed = torch.tensor([[0.25, 0.75, 0.0]])
    assert torch.equal(class_shares(mixed, 3), mixed)
    assert torch.equal(class_shares(torch.tensor([0, 1]), 3), torch.tensor([[1.0, 0, 0], [0, 1, 0]]))


@every_case(("labels", "surest"), [(2, 1), (20, 1), (21, 2), (30, 2), (40, 2), (60, 3), (61, 4), (99, 5)])
def test_how_sure_a_teacher_is_says_a_twentieth_of_the_labels_rounded_up(labels: int, surest: int) -> None:
    generator = torch.Generator().manual_seed(labels)
    level = Level(range(labels), [0], 1.0)
    ours, theirs = (torch.randn(5, labels, generator=generator) for _ in range(2))
    own, told = ours.softmax(dim=1), theirs.softmax(dim=1)
    # calculate_KD_loss of the original, whose sum over the images is a mean here.
    assert surest == int(np.ceil(labels / 20))
    sure = told.sort(dim=1, descending=True).values[:, :surest].sum(dim=1)
    expected = float(((own - told) ** 2 * sure[:, None]).sum()) / 5
    assert float(semantic_distillation(level, ours, theirs)) == pytest.approx(expected, rel=1e-5)


def test_what_the_tree_says_is_no_part_of_a_checkpoint() -> None:
    assert not made()[0].state_dict()
