"""Semantic softmax: learn the labels on every level of a tree, each with a softmax of its own."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from vitral.data.label_tree import levels, read_tree
from vitral.errors import ModelError
from vitral.models.model import Model
from vitral.objectives.semantic_softmax import (
    Level,
    SemanticHead,
    class_shares,
    level_weights,
    semantic_distillation,
)
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.method import Context
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.teachers import (
    Taught,
    Teacher,
    announce,
    check_no_experts,
    check_one_class,
    check_one_head,
    columns,
)
from vitral.training.methods.views import Part
from vitral.training.optimization.state import Held
from vitral.training.settings.methods import SemanticSoftmaxSettings
from vitral.training.settings.recipe import Recipe


class SemanticSoftmax(Taught, Supervised):
    """A softmax on each level of a tree of labels; of the data's classes the head learns, of the others a layer left behind.

    Raises:
        DataError: the tree cannot be read, or does not have a class.
        ModelError: nobody has named the classes; an image may have several; the network has two heads.
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
        tree = levels(read_tree(self.settings.tree), names, self.settings.tree)
        others = [node for nodes in tree.nodes for node in nodes if node not in set(names)]
        column = {name: index for index, name in enumerate((*names, *others))}
        weights = level_weights([len(nodes) for nodes in tree.nodes], self.settings.heaviest)
        self.module = SemanticHead(network, len(others), seed=derive(recipe.seed, "semantic softmax"))
        device = next(network.parameters()).device
        self.levels = [
            Level([column[node] for node in nodes], [places[row] for places in tree.places], weights[row]).to(device)
            for row, nodes in enumerate(tree.nodes)
        ]
        self.taught_levels = [level for level in self.levels if bool((level.labels < len(names)).all())]
        if self.settings.teacher is not None:
            self._take(self.settings.teacher, names)

    def _take(self, source: str, names: tuple[str, ...]) -> None:
        """Take a teacher.

        Raises:
            WeightsError: there is no such teacher.
            ModelError: it does not know the classes, or no level is of classes alone.
        """
        self.teacher = Teacher(source, self.network, self.context)
        self.columns = columns(self.teacher.classifier, names, source)
        announce(self.teacher, self.columns, self.context)
        if not self.taught_levels:
            raise ModelError(
                "No level of the tree is of classes alone, so a teacher has no answers to it; leave it out."
            )

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the levels' weighted losses, the share of right images, and that of all levels' answers."""
        logits = call(part.images, part.of_batch)
        classes = self.network.num_classes
        shares = class_shares(part.targets, classes)
        smoothing = self.recipe.regularization.label_smoothing
        loss = torch.stack([level.weight * level.loss(logits, shares, smoothing) for level in self.levels]).sum()
        if self.settings.teacher is not None:
            taught = self.teacher.logits(part.images)
            taught = taught if self.columns is None else taught[:, self.columns.to(taught.device)]
            told = [semantic_distillation(level, logits, taught) for level in self.taught_levels]
            loss = loss + self.settings.distillation * torch.stack(told).sum()
        counts = [level.right(logits.detach(), shares) for level in self.levels]
        right, valid = (torch.stack(values).sum() for values in zip(*counts, strict=True))
        accuracy = self.task.right(logits.detach()[:, :classes], part.targets).float().mean()
        return loss, {"accuracy": accuracy, "semantic_accuracy": right / valid}

    def state_dict(self) -> Mapping[str, Held]:
        """Return which teacher it is, where there is one."""
        return {} if self.settings.teacher is None else super().state_dict()

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Make sure that the teacher is still the same, where there is one."""
        if self.settings.teacher is not None:
            super().load_state_dict(saved)
        elif saved:
            raise ValueError("it is of a method with a teacher")
