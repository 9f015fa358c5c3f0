"""Distillation: learn from another classifier's answers, beside the labels (DeiT) or instead of them (function matching)."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

from pydantic import Field, model_validator
from torch import Tensor

from vitral.data.source import DataSet
from vitral.errors import ModelError
from vitral.events import Listener
from vitral.models.model import Model, Outputs
from vitral.objectives.classification import agreement, balance_loss, hard_loss, soft_loss
from vitral.tasks.task import Task
from vitral.training.methods.method import Context
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.teachers import Taught, check_one_class, with_answers
from vitral.training.methods.views import Part
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


class DistillationSettings(MethodSettings):
    """Learn from another classifier's answers to the same images, beside the labels or instead of them.

    Attributes:
        teacher: The teacher, as `vitral.load` takes it: a run or classifier folder, a weights file, published weights by name.
        answers: "hard" for the teacher's most probable class, "soft" for all its probabilities.
        temperature: The divisor of both networks' logits if answers are soft: 3 in DeiT's paper, 1 to 10 in function matching.
        weight: The teacher's share of the loss; the labels have the rest. It is 0.5 in DeiT's hard distillation and 0.1 in its
            soft distillation; 1 learns from the teacher only, which is function matching.
    """

    name: Literal["distillation"] = "distillation"
    teacher: str
    answers: Literal["hard", "soft"] = "hard"
    temperature: float = Field(default=1.0, gt=0)
    weight: float = Field(default=0.5, gt=0, le=1)

    @model_validator(mode="after")
    def _no_idle_settings(self) -> "DistillationSettings":
        if self.answers == "hard" and self.temperature != 1:
            raise ValueError("temperature belongs to soft answers")
        return self


class Distillation(Taught, Supervised):
    """The loss of the labels, and a share of the loss of the teacher's answers to the same views, mixed as they are.

    If the network has a distillation token, the class token's head learns from the labels only and the other head from the
    teacher only; the single head of any other network learns from both (DeiT, section 4).

    Raises:
        WeightsError: There is no such teacher.
        ModelError: The teacher does not know the classes, an image may have several, or a head would learn nothing.
    """

    Settings: ClassVar[type[MethodSettings]] = DistillationSettings

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(DistillationSettings, recipe.method)
        check_one_class(task)
        if self.settings.weight == 1 and getattr(network.config, "distilled", False):
            raise ModelError(
                "With a weight of 1 the class token's head of a distilled network would learn nothing. Set method.weight below "
                "1, or take a network without a distillation token."
            )
        self.take_teacher(self.settings.teacher)

    @classmethod
    def labelled(cls, recipe: Recipe, data: DataSet, listener: Listener) -> DataSet:
        """Return the data; if only the teacher counts, images without labels get its answers as labels."""
        settings = cast(DistillationSettings, recipe.method)
        return with_answers(data, settings.teacher, listener) if settings.weight == 1 else data

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss, the accuracy, and the share of images on which student and teacher agree."""
        outputs: Outputs = call(part.images, part.of_batch)
        taught = self.teacher.logits(part.images)
        answers = outputs.logits if outputs.distillation_logits is None else outputs.distillation_logits
        settings, weight = self.settings, self.settings.weight
        if settings.answers == "hard":
            loss = weight * hard_loss(answers, taught)
        else:
            loss = weight * soft_loss(answers, taught, settings.temperature)
        if weight < 1:
            loss = loss + (1 - weight) * self.loss_of(outputs.logits, part.targets)
        if outputs.auxiliary:
            loss = loss + balance_loss(outputs.auxiliary)
        accuracy = self.accuracy(outputs.logits, part.targets)
        return loss, {"accuracy": accuracy, "agreement": agreement(answers.detach(), taught)}
