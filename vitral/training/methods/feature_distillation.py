"""Feature distillation: learn the features and the answers of another network, from images without labels."""

from collections.abc import Callable
from typing import Any, Literal, cast

from pydantic import Field
from torch import Tensor

from vitral.data.source import DataSet
from vitral.events import Listener
from vitral.models.model import Model
from vitral.objectives.classification import agreement, balance_loss, soft_loss
from vitral.objectives.feature_distillation import FeatureStudent, patches_loss, pooled_loss
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.method import Context
from vitral.training.methods.self_supervised import SelfSupervised
from vitral.training.methods.teachers import Taught, Teacher, check_one_class, check_one_head, patch_width, with_answers
from vitral.training.methods.views import Part
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


class FeatureDistillationSettings(MethodSettings):
    """Learn another network's features and answers, which needs no labels.

    Attributes:
        teacher: The teacher, as `vitral.load` takes it.
        features: The weight of the features in the loss: pooled features by their angle, patches by their distance.
        answers: The weight of the answers in the loss, the divergence of function matching; 0 for a teacher without a head,
            or if its classes do not matter.
        temperature: The divisor of both networks' logits.
    """

    uses_labels = False

    name: Literal["feature-distillation"] = "feature-distillation"
    teacher: str
    features: float = Field(default=1.0, gt=0)
    answers: float = Field(default=1.0, ge=0)
    temperature: float = Field(default=1.0, gt=0)


class FeatureDistillation(Taught, SelfSupervised):
    """A teacher's pooled features and patch features, each through a linear map, and its answers; no label is read.

    Raises:
        WeightsError: There is no such teacher.
        ModelError: The teacher does not know the classes, a network cannot pool, or it has a second head.
    """

    Settings = FeatureDistillationSettings

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(FeatureDistillationSettings, recipe.method)
        check_one_head(network)
        if self.settings.answers:
            check_one_class(task)
            self.take_teacher(self.settings.teacher)
        else:
            self.teacher = Teacher(self.settings.teacher, network, self.context)
            self.teacher.announce()
        teacher = self.teacher
        self.module = FeatureStudent(
            network,
            patch_width(network),
            teacher_pooled=teacher.network.num_features,
            teacher_patches=patch_width(teacher.network),
            seed=derive(recipe.seed, "feature distillation"),
        )

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Tell whether the network learns the teacher's answers."""
        return cast(FeatureDistillationSettings, recipe.method).answers > 0

    @classmethod
    def labelled(cls, recipe: Recipe, data: DataSet, listener: Listener) -> DataSet:
        """Return the data; images without labels get the teacher's answers as labels, so that accuracy can be measured."""
        settings = cast(FeatureDistillationSettings, recipe.method)
        return with_answers(data, settings.teacher, listener) if settings.answers else data

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss, its parts, and the share of images on which student and teacher agree."""
        logits, pooled, maps, auxiliary = call(part.images, part.of_batch)
        answers, features, teacher_maps = self.teacher.everything(part.images)
        angle, distance = pooled_loss(pooled, features), patches_loss(maps, teacher_maps)
        loss = self.settings.features * (angle + distance)
        figures = {"angle": angle, "distance": distance}
        if self.settings.answers:
            loss = loss + self.settings.answers * soft_loss(logits, answers, self.settings.temperature)
            figures["agreement"] = agreement(logits.detach(), answers)
        if auxiliary:
            loss = loss + balance_loss(auxiliary)
        return loss, figures
