"""Feature distillation: learn the features and the answers of another network, from images without labels."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet, Source
from vitral.events import Listener
from vitral.models.model import Model
from vitral.objectives.balance import balance_loss
from vitral.objectives.distillation import agreement, soft_loss
from vitral.objectives.feature_distillation import FeatureStudent, patches_loss, pooled_loss
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.answers import with_answers
from vitral.training.methods.head import fit_head
from vitral.training.methods.method import Context
from vitral.training.methods.teachers import (
    Taught,
    Teacher,
    announce,
    check_one_class,
    check_one_head,
    chosen,
    columns,
    patch_width,
)
from vitral.training.methods.views import Part
from vitral.training.settings.methods import FeatureDistillationSettings
from vitral.training.settings.recipe import Recipe


class FeatureDistillation(Taught):
    """A teacher's pooled features and those of its patches, each through one linear map, and its answers; no label is read.

    Raises:
        WeightsError: there is no such teacher.
        ModelError: the teacher does not know the classes, a network does not say how it pools, or has a second head.
    """

    Settings = FeatureDistillationSettings

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(FeatureDistillationSettings, recipe.method)
        check_one_head(network)
        self.teacher = Teacher(self.settings.teacher, network, self.context)
        self.columns = None
        if self.settings.answers:
            check_one_class(task)
            check_one_class(self.teacher.classifier.task)
            self.columns = columns(self.teacher.classifier, self.context.class_names, self.settings.teacher)
        announce(self.teacher, self.columns, self.context)
        self.module = FeatureStudent(
            network,
            patch_width(network),
            teacher_pooled=self.teacher.network.num_features,
            teacher_patches=patch_width(self.teacher.network),
            seed=derive(recipe.seed, "feature distillation"),
        )

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Tell whether the teacher's answers are learned."""
        return cast(FeatureDistillationSettings, recipe.method).answers > 0

    @classmethod
    def labelled(cls, recipe: Recipe, data: DataSet, listener: Listener) -> DataSet:
        """Return images without labels with the teacher's answers as labels, by which training is followed."""
        settings = cast(FeatureDistillationSettings, recipe.method)
        return with_answers(data, settings.teacher, listener) if settings.answers else data

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss, its parts, and the share of images of which teacher and student say the same."""
        logits, pooled, maps, auxiliary = call(part.images, part.of_batch)
        answers, features, theirs = self.teacher.everything(part.images)
        angle, distance = pooled_loss(pooled, features), patches_loss(maps, theirs)
        loss = self.settings.features * (angle + distance)
        figures = {"angle": angle, "distance": distance}
        if self.settings.answers:
            taught = chosen(answers, self.columns)
            loss = loss + self.settings.answers * soft_loss(logits, taught, self.settings.temperature)
            figures["agreement"] = agreement(logits.detach(), taught)
        if auxiliary:
            loss = loss + balance_loss(auxiliary)
        return loss, figures

    @classmethod
    def complete(cls, recipe: Recipe, classifier: Classifier, train: Source, listener: Listener) -> None:
        """Fit the head where nothing has trained it."""
        if not cls.trains_head(recipe):
            fit_head(classifier, train, listener)
