"""Semantic softmax: learn the labels on every level of a tree, each with a softmax of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from vitral.data.label_tree import levels, read_tree
from vitral.errors import ModelError
from vitral.events import Message
from vitral.models.model import Model
from vitral.objectives.semantic_softmax import Level, SemanticHead, class_shares, level_weights, semantic_distillation
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.method import Context
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.teachers import Taught, check_no_experts, check_one_class, check_one_head
from vitral.training.methods.views import Part
from vitral.training.optimization.state import Held
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


class SemanticSoftmaxSettings(MethodSettings):
    """A softmax on each level of a tree of labels (ImageNet-21K-P, arXiv 2104.10972).

    Attributes:
        tree: A text file with a line for each label: the label, a tab, and its parent; or only the label.
        heaviest: The largest weight of a level.
        deepest: Whether the tree's deepest level is learned, too; the released code leaves it out.
        teacher: A classifier of the same classes; its answers are learned at every level, too. None for labels only.
        distillation: The weight of the teacher's answers.
    """

    name: Literal["semantic-softmax"] = "semantic-softmax"
    tree: str
    heaviest: float = Field(default=20.0, ge=1)
    deepest: bool = True
    teacher: str | None = None
    distillation: float = Field(default=1.0, gt=0)


def _said(counts: Sequence[int], left_out: int) -> str:
    learned = (
        f"The tree has a softmax of its own on each of {len(counts)} levels, of {', '.join(map(str, counts))} labels"
    )
    if left_out:
        return (
            f"{learned}. Its deepest level is left out: the {left_out} classes there learn only the labels above them."
        )
    return f"{learned}. The deepest is trained, too; method.deepest=false leaves it out, as the authors' code does."


class SemanticSoftmax(Taught, Supervised):
    """A softmax on each level of a tree of labels.

    The head learns the data's classes; a further layer, which is discarded at the end, learns the tree's other labels.

    Raises:
        DataError: The tree cannot be read, or lacks a class.
        ModelError: The classes have no names, an image may have several, the network has two heads, or the teacher knows other
            classes.
        WeightsError: There is no such teacher.
    """

    Settings = SemanticSoftmaxSettings
    plain = False

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(SemanticSoftmaxSettings, recipe.method)
        check_one_class(task)
        check_one_head(network)
        check_no_experts(network)
        names = self.context.class_names
        if not names:
            raise ModelError("A tree of labels needs the names of the classes.")
        tree = levels(read_tree(self.settings.tree), names, self.settings.tree, deepest=self.settings.deepest)
        others = [node for nodes in tree.nodes for node in nodes if node not in set(names)]
        column = {name: index for index, name in enumerate((*names, *others))}
        counts = [len(nodes) for nodes in tree.nodes]
        weights = level_weights([*counts, tree.left_out] if tree.left_out else counts, self.settings.heaviest)
        self.context.listener(Message(_said(counts, tree.left_out)))
        self.module = SemanticHead(network, len(others), seed=derive(recipe.seed, "semantic softmax"))
        device = next(network.parameters()).device
        self.levels = [
            Level([column[node] for node in nodes], [places[row] for places in tree.places], weights[row]).to(device)
            for row, nodes in enumerate(tree.nodes)
        ]
        self.taught_levels = [level for level in self.levels if bool((level.labels < len(names)).all())]
        if self.settings.teacher is not None:
            self.take_teacher(self.settings.teacher)
        if self.settings.teacher is not None and not self.taught_levels:
            raise ModelError(
                "Every level of the tree has labels that are no classes, so a teacher cannot answer; leave the teacher out."
            )

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the levels' weighted losses, the accuracy, and the accuracy over all levels."""
        logits = call(part.images, part.of_batch)
        classes = self.network.num_classes
        shares = class_shares(part.targets, classes)
        loss = torch.stack([level.weight * level.loss(logits, shares, self.smoothing) for level in self.levels]).sum()
        if self.settings.teacher is not None:
            taught = self.teacher.logits(part.images)
            losses = [semantic_distillation(level, logits, taught) for level in self.taught_levels]
            loss = loss + self.settings.distillation * torch.stack(losses).sum()
        counts = [level.right(logits.detach(), shares) for level in self.levels]
        right, valid = (torch.stack(values).sum() for values in zip(*counts, strict=True))
        return loss, {"accuracy": self.accuracy(logits[:, :classes], part.targets), "semantic_accuracy": right / valid}

    def state_dict(self) -> Mapping[str, Held]:
        """Return the teacher's fingerprint, if there is a teacher."""
        return {} if self.settings.teacher is None else super().state_dict()

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Check that the teacher is still the same, if there is a teacher."""
        if self.settings.teacher is not None:
            super().load_state_dict(saved)
        elif saved:
            raise ValueError("it is of a method with a teacher")
