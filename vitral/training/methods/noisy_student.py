"""Noisy Student: learn the labels, and a teacher's answers to images without labels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from pydantic import Field
from torch import Tensor, nn

from vitral.classifier.load import load
from vitral.data.source import DataSet
from vitral.data.subset import Subset
from vitral.errors import DataError
from vitral.evaluation.evaluate import predict_probabilities
from vitral.events import Listener, Message
from vitral.images.augment import Augmentation
from vitral.models.layers import BatchPart
from vitral.models.model import Model, Outputs
from vitral.objectives.classification import agreement, balance_loss
from vitral.objectives.pseudo_labels import choose_balanced, soft_cross_entropy
from vitral.tasks.task import Task
from vitral.tasks.unlabelled import UNLABELLED
from vitral.training.methods.method import Context
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.teachers import Taught, check_one_class, check_one_head, columns, select_columns
from vitral.training.methods.views import ExtraSource, Part, View
from vitral.training.optimization.optimizers import training_device
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe

WHOLE = Augmentation(crop="none", flip=False)  # the teacher's view is not varied
SOURCE = "unlabelled"


class LabelledAndNot(nn.Module):
    """A network that sees labelled and unlabelled images in a single call."""

    def __init__(self, network: Model) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, images: Tensor, part: BatchPart, others: Tensor, other_part: BatchPart
    ) -> tuple[Outputs, Outputs]:
        """Return the network's outputs for both."""
        return self.network.outputs(images, part), self.network.outputs(others, other_part)


class NoisyStudentSettings(MethodSettings):
    """Learn the labels, and a teacher's answers to images without labels (Noisy Student, arXiv 1911.04252).

    Attributes:
        teacher: The teacher, as `vitral.load` takes it.
        unlabelled: The images without labels, such as "unlabelled:FOLDER"; labels that they have are not read.
        ratio: The number of unlabelled images for each labelled image, and the weight of their loss relative to the labels'
            loss; 14 and 28 in the paper, 1 and 3 in its code.
        confidence: The probability that an image's most probable class must exceed to be learned from.
        per_class: The number of images of each class that the teacher finds: images of rare classes are repeated, of frequent
            classes the surest are taken; 130,000 in the paper. None for the average number of a class.
    """

    name: Literal["noisy-student"] = "noisy-student"
    teacher: str
    unlabelled: str
    ratio: float = Field(default=3.0, gt=0)
    confidence: float = Field(default=0.3, ge=0, lt=1)
    per_class: int | None = Field(default=None, ge=1)


class NoisyStudent(Taught, Supervised):
    """The loss of the labels, and of the teacher's probabilities for unlabelled images.

    The student's noise is the recipe's: augmentation, dropout, stochastic depth. The teacher has no noise. It answers the whole
    image at every step, so its answers are always the same and need not be stored.

    Raises:
        WeightsError: There is no such teacher.
        ModelError: The teacher does not know the classes, or an image may have several.
    """

    Settings = NoisyStudentSettings
    plain = False

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(NoisyStudentSettings, recipe.method)
        check_one_class(task)
        check_one_head(network)
        self.module = LabelledAndNot(network)
        self.take_teacher(self.settings.teacher)

    @classmethod
    def sources(cls, recipe: Recipe) -> dict[str, ExtraSource]:
        """Return the images without labels: the teacher's view and the student's."""
        settings = cast(NoisyStudentSettings, recipe.method)
        views = (View(WHOLE, mixed=False), View(mixed=False))
        return {SOURCE: ExtraSource(settings.unlabelled, max(1, round(settings.ratio * recipe.batch_size)), views)}

    @classmethod
    def further(cls, recipe: Recipe, data: DataSet, class_names: Sequence[str], listener: Listener) -> DataSet:
        """Return the images that the teacher is sure of, the same number of each class.

        Raises:
            DataError: There are no such images, or the source is endless.
        """
        settings = cast(NoisyStudentSettings, recipe.method)
        source = data.splits["train"]
        if source.endless:
            raise DataError(f"{data.name} is endless, so no teacher can answer all of it; name a folder of images.")
        teacher = load(settings.teacher, tuned=False, listener=listener).to(training_device())
        listener(Message(f"The teacher answers {len(source):,} images without labels."))
        probabilities, _ = predict_probabilities(teacher, source, task=UNLABELLED, listener=listener)
        which = columns(teacher, tuple(class_names), settings.teacher)
        known = select_columns(probabilities, which).numpy()
        indices = choose_balanced(known, confidence=settings.confidence, per_class=settings.per_class, seed=recipe.seed)
        if not len(indices):
            raise DataError(
                f"The teacher is sure of none of the {len(source):,} images of {data.name} above {settings.confidence:g}; "
                "lower method.confidence, or take a better teacher."
            )
        found = len(set(known[indices].argmax(axis=1).tolist()))
        listener(
            Message(
                f"The student learns from {len(set(indices.tolist())):,} of them, of which the teacher is more than "
                f"{settings.confidence:g} sure, in {found} of {len(class_names) or known.shape[1]} classes; with repeated "
                f"images that is {len(indices):,}."
            )
        )
        return replace(data, splits={**data.splits, "train": Subset(source, indices)})

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, the accuracy on labelled images, and the share of the others on which student and teacher agree."""
        others = part.extra[SOURCE]
        whole, varied = others.views
        taught = self.teacher.logits(whole.images)
        labelled, unlabelled = call(part.images, part.of_batch, varied.images, others.of_batch)
        loss = self.loss_of(labelled.logits, part.targets)
        loss = loss + self.settings.ratio * soft_cross_entropy(unlabelled.logits, taught)
        for outputs in (labelled, unlabelled):
            if outputs.auxiliary:
                loss = loss + balance_loss(outputs.auxiliary)
        accuracy = self.accuracy(labelled.logits, part.targets)
        return loss, {"accuracy": accuracy, "agreement": agreement(unlabelled.logits.detach(), taught)}
