"""Distillation: learn from another classifier's answers, beside the labels (DeiT) or instead of them (function matching)."""

from collections.abc import Callable
from typing import Any, ClassVar, cast

from torch import Tensor

from vitral.data.source import DataSet
from vitral.errors import ModelError
from vitral.events import Listener
from vitral.models.model import Model, Outputs
from vitral.objectives.balance import balance_loss
from vitral.objectives.distillation import agreement, hard_loss, soft_loss
from vitral.tasks.task import Task
from vitral.training.methods.answers import with_answers
from vitral.training.methods.method import Context
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.teachers import Taught, Teacher, announce, check_one_class, chosen, columns
from vitral.training.methods.views import Part
from vitral.training.settings.methods import DistillationSettings, MethodSettings
from vitral.training.settings.recipe import Recipe


class Distillation(Taught, Supervised):
    """The loss of the labels, and a share of the loss of the teacher's answers to the same views, mixed as they are.

    Of a network with a distillation token the class token's head learns from the labels alone, the other from the teacher
    alone; of any other network the one head learns from both (DeiT, section 4).

    Raises:
        WeightsError: there is no such teacher.
        ModelError: the teacher does not know the classes; an image may have several; or a head would learn nothing.
    """

    Settings: ClassVar[type[MethodSettings]] = DistillationSettings

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(DistillationSettings, recipe.method)
        check_one_class(task)
        if self.settings.weight == 1 and getattr(network.config, "distilled", False):
            raise ModelError(
                "With a weight of 1 the class token's head of a distilled network would learn nothing; set method.weight below "
                "1, or take a network without a distillation token."
            )
        self.teacher = Teacher(self.settings.teacher, network, self.context)
        self.columns = columns(self.teacher.classifier, self.context.class_names, self.settings.teacher)
        announce(self.teacher, self.columns, self.context)

    @classmethod
    def labelled(cls, recipe: Recipe, data: DataSet, listener: Listener) -> DataSet:
        """Return images without labels with the teacher's answers as labels, where it alone is learned from."""
        settings = cast(DistillationSettings, recipe.method)
        return with_answers(data, settings.teacher, listener) if settings.weight == 1 else data

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss, the share of images that the task finds right, and that of which the teacher says the same."""
        outputs: Outputs = call(part.images, part.of_batch)
        taught = chosen(self.teacher.logits(part.images), self.columns)
        answers = outputs.logits if outputs.distillation_logits is None else outputs.distillation_logits
        weight = self.settings.weight
        loss = weight * self.loss_of_answers(answers, taught)
        if weight < 1:
            loss = loss + (1 - weight) * self.loss_of(outputs.logits, part.targets)
        if outputs.auxiliary:
            loss = loss + balance_loss(outputs.auxiliary)
        right = self.task.right(outputs.logits.detach(), part.targets).float().mean()
        return loss, {"accuracy": right, "agreement": agreement(answers.detach(), taught)}

    def loss_of_answers(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the loss of the teacher's answers."""
        if self.settings.answers == "hard":
            return hard_loss(student, teacher)
        return soft_loss(student, teacher, self.settings.temperature)
