"""Semantic softmax as a method: its levels with and without the deepest, and what it says of them."""

import dataclasses
from pathlib import Path

import pytest
import torch

from tests.cases import every_case
from tests.objectives.test_semantic_softmax import CLASSES, NODES, TOLD, TREE, by_hand
from tests.training.conftest import CONFIG
from vitral.data.label_tree import levels
from vitral.errors import DataError
from vitral.events import Event, Message
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.layers import BatchPart
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.method import Context
from vitral.training.methods.semantic_softmax import SemanticSoftmax
from vitral.training.methods.views import Part, Seen
from vitral.training.settings.recipe import build_recipe

SMOOTHING = 0.2


def made(folder: Path, events: list[Event], *, deepest: bool) -> SemanticSoftmax:
    (folder / "tree.tsv").write_text("".join(f"{label}\t{above}\n" for label, above in TREE.items()))
    settings = {"name": "semantic-softmax", "tree": str(folder / "tree.tsv"), "deepest": deepest}
    recipe = build_recipe({"method": settings, "regularization": {"label_smoothing": SMOOTHING}}, "test")
    network = build(dataclasses.replace(CONFIG, num_classes=len(CLASSES), dropout=0.0), seed=1)
    torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(3))
    return SemanticSoftmax(network, recipe, SINGLE_LABEL, Context(CLASSES, PHOTOS.normalize, events.append))


@every_case("deepest", [True, False])
def test_without_the_deepest_level_the_loss_is_the_released_codes(tmp_path: Path, deepest: bool) -> None:
    events: list[Event] = []
    method = made(tmp_path, events, deepest=deepest)
    pixels = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    part = Part((Seen(PHOTOS.normalize(pixels), pixels, torch.arange(5)),), BatchPart(0, 5))
    found, _ = method.loss(method.module, part)
    values = method.module(part.images).tolist()
    # normalization_factor_list of semantics.py: all labels over those of a level and of all below, the deepest too.
    expected, rows = 0.0, NODES if deepest else NODES[:-1]
    for row, nodes in enumerate(rows):
        weight = sum(map(len, NODES)) / sum(map(len, NODES[row:]))
        losses = [by_hand(values[image], nodes, TOLD[name][row], SMOOTHING) for image, name in enumerate(CLASSES)]
        expected += weight * sum(losses) / len(CLASSES)
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)
    (said,) = (event.text for event in events if isinstance(event, Message))
    assert ("2, 4, 2 labels" in said, "method.deepest=false" in said) == (deepest, deepest)
    assert ("the 2 classes there" in said) != deepest


def test_a_class_alone_on_the_deepest_level_is_left_out_with_it() -> None:
    above = {"a": "top", "b": "top", "c": "other", "d": "a"}
    classes = ("a", "b", "c", "d")
    with pytest.raises(DataError, match="the class 'd' alone on its level"):
        levels(above, classes, "tree")
    found = levels(above, classes, "tree", deepest=False)
    assert (found.nodes, found.left_out) == ((("top", "other"), ("a", "b", "c")), 1)
    assert found.places == ((0, 0), (0, 1), (1, 2), (0, 0))


def test_the_level_of_all_classes_cannot_be_left_out() -> None:
    with pytest.raises(DataError, match="All classes stand on the deepest level of the label tree 'tree'"):
        levels(
            {f"fine {number}": f"coarse {number // 5}" for number in range(20)},
            ("fine 0", "fine 7"),
            "tree",
            deepest=False,
        )
