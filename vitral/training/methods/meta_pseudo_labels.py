"""Meta Pseudo Labels: a teacher that learns from how its student fares on labelled images (arXiv 2003.10580)."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from vitral import distributed
from vitral.errors import ModelError
from vitral.models.layers import BatchPart
from vitral.models.model import Images, Logits, Model
from vitral.objectives.classification import agreement
from vitral.objectives.pseudo_labels import consistency_loss, draw_labels, feedback_loss
from vitral.seeds import generator
from vitral.tasks.task import Targets, Task
from vitral.training.methods.method import Context
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.teachers import check_no_experts, check_one_class, check_one_head
from vitral.training.methods.views import ExtraSource, Part, View
from vitral.training.optimization.optimizers import autocast, build_optimizer, clip_by_global_norm
from vitral.training.optimization.state import Held, held
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe

SOURCE = "unlabelled"
STRONG = "big-vision-randaugment"  # it descends from the same code as the authors' policy


class StudentAndTeacher(nn.Module):
    """Two networks of one kind; its call is the student's."""

    def __init__(self, student: Model, teacher: Model) -> None:
        super().__init__()
        self.student, self.teacher = student, teacher

    def forward(self, images: Images, part: BatchPart) -> Logits:
        """Return the student's logits."""
        return self.student.outputs(images, part).logits


@dataclass(frozen=True)
class Remembered:
    """The part of a batch that the teacher's update needs, after the student's update.

    Attributes:
        images: The labelled images.
        targets: The labels.
        part: The images' place in the batch.
        before: The student's mean loss on the labelled images before its update.
        strong: The teacher's logits of the strong views; its gradient flows through them.
        drawn: The labels that the teacher drew from these logits.
        own: The teacher's own loss: labels, and consistency.
    """

    images: Images
    targets: Targets
    part: BatchPart
    before: Tensor
    strong: Logits
    drawn: Tensor
    own: Tensor


class MetaPseudoLabelsSettings(MethodSettings):
    """A teacher that learns from how its student fares, beside the labels (Meta Pseudo Labels, arXiv 2003.10580).

    Attributes:
        unlabelled: The images without labels, such as "unlabelled:FOLDER"; labels that they have are not read.
        ratio: The number of unlabelled images for each labelled image.
        magnitude: The magnitude of the RandAugment of their strong view.
        student_wait: The number of updates before the student learns; then its learning rate begins with the recipe's warm-up,
            and the curve spans the rest of the run.
        teacher_rate: The teacher's learning rate, as a multiple of the student's.
        uda_weight: The weight of the teacher's consistency between the weak and the strong view (UDA), after `uda_steps`.
        uda_temperature: The divisor of the weak view's logits.
        uda_threshold: The least probability at which an image counts for consistency.
        uda_steps: The number of updates over which the consistency's weight grows.
        baseline: The decay of the moving average that is subtracted from the student's progress.
    """

    mixes = False

    name: Literal["meta-pseudo-labels"] = "meta-pseudo-labels"
    unlabelled: str
    ratio: float = Field(default=7.0, gt=0)
    magnitude: float = Field(default=16.0, ge=0, le=30)
    student_wait: int = Field(default=3000, ge=0)
    teacher_rate: float = Field(default=1.0, gt=0)
    uda_weight: float = Field(default=8.0, ge=0)
    uda_temperature: float = Field(default=0.7, gt=0)
    uda_threshold: float = Field(default=0.6, ge=0, lt=1)
    uda_steps: int = Field(default=5000, ge=1)
    baseline: float = Field(default=0.99, ge=0, lt=1)


class MetaPseudoLabels(Supervised):
    """A student that learns only labels that its teacher draws, and a teacher that learns which of them helped the student.

    At each update the teacher draws a hard label for the strong view of every unlabelled image, and the student learns these
    labels. The teacher then learns from the drop of the student's loss on labelled images, from the labels, and from UDA's
    consistency. Both networks start with the same weights. The student is delivered. The paper then fine-tunes it on the
    labelled images, which is a run of its own.

    Raises:
        ModelError: An image may have several classes, the network has two heads, the recipe uses SAM, or the student would wait
            until the end.
    """

    Settings: ClassVar[type[MethodSettings]] = MetaPseudoLabelsSettings
    plain = False
    module: StudentAndTeacher

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(MetaPseudoLabelsSettings, recipe.method)
        check_one_class(task)
        check_one_head(network)
        check_no_experts(network)
        if recipe.optimizer.sam_rho is not None:
            raise ModelError(
                "Meta Pseudo Labels has an update of its own, into which SAM does not fit; leave sam_rho out."
            )
        if recipe.steps is not None and recipe.steps <= self.settings.student_wait:
            raise ModelError(
                f"The student waits for {self.settings.student_wait:,} updates, and the run has {recipe.steps:,}, so that it "
                "would learn nothing; set method.student_wait below that, or make the run longer."
            )
        self.student, self.teacher = network, copy.deepcopy(network)
        self.module = StudentAndTeacher(self.student, self.teacher)
        self.updates, self.average_progress = torch.zeros((), dtype=torch.int64), torch.zeros(())
        self._remembered: list[Remembered] = []

    @classmethod
    def views(cls, recipe: Recipe) -> tuple[View, ...]:
        """Return the recipe's view of the labelled images, not mixed."""
        return (View(mixed=False),)

    @classmethod
    def sources(cls, recipe: Recipe) -> dict[str, ExtraSource]:
        """Return the images without labels: a weak view, by the recipe's augmentation, and a strong view."""
        settings = cast(MetaPseudoLabelsSettings, recipe.method)
        strong = {"policy": STRONG, "magnitude": settings.magnitude}
        views = (View(mixed=False), View(mixed=False, changes=strong))
        return {SOURCE: ExtraSource(settings.unlabelled, max(1, round(settings.ratio * recipe.batch_size)), views)}

    def optimizers(self) -> list[Optimizer]:
        """Return an optimizer for each network."""
        settings, student, teacher = self.recipe.optimizer, self.student, self.teacher
        self.student_optimizer = build_optimizer(student, student, settings)
        self.teacher_optimizer = build_optimizer(teacher, teacher, settings)
        for group in self.student_optimizer.param_groups:
            group["wait"] = self.settings.student_wait
        for group in self.teacher_optimizer.param_groups:
            group["scale"] *= self.settings.teacher_rate
        return [self.student_optimizer, self.teacher_optimizer]

    def apart(self) -> list[nn.Parameter]:
        """Return the teacher's parameters."""
        return list(self.teacher.parameters())

    @property
    def waits(self) -> bool:
        """Whether the student's last update had no learning rate, so that it did not move."""
        return not any(group["lr"] for group in self.student_optimizer.param_groups)

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the student's loss of the labels that the teacher draws; the teacher learns in `after_step`."""
        if self._remembered and part.of_batch.first <= self._remembered[-1].part.first:
            self._remembered.clear()  # of an update that was skipped
        others = part.extra[SOURCE]
        weak, strong = (view.images for view in others.views)
        both = BatchPart(part.of_batch.first + others.of_batch.first, part.of_batch.total + others.of_batch.total)
        labelled, plain, varied = self._taught(part.images, weak, strong)
        chances = generator(self.recipe.seed, "pseudo labels", int(self.updates)).random(others.of_batch.total)
        first = others.of_batch.first
        drawn = draw_labels(varied, torch.from_numpy(chances[first : first + len(strong)]))
        answers = call(torch.cat([strong, part.images]), both)
        unlabelled, own = answers[: len(strong)], answers[len(strong) :]
        self._remembered.append(
            Remembered(
                part.images,
                part.targets,
                part.of_batch,
                functional.cross_entropy(own.detach().float(), part.targets),
                varied,
                drawn,
                self._own_loss(labelled, plain, varied, part.targets),
            )
        )
        figures = {
            "accuracy": self.accuracy(own, part.targets),
            "teacher_accuracy": self.accuracy(labelled, part.targets),
            "agreement": agreement(unlabelled.detach(), varied.detach()),
        }
        # A teacher that gives no finite numbers spoils the update, which is then skipped and counted.
        spoilt = 0.0 * self._remembered[-1].own.detach()
        return functional.cross_entropy(unlabelled.float(), drawn) + spoilt, figures

    def _taught(self, labelled: Images, weak: Images, strong: Images) -> tuple[Logits, Logits, Logits]:
        """Return the teacher's logits of labelled images and of both views of the unlabelled images, by a single pass."""
        images = torch.cat([labelled, weak, strong])
        logits = self.teacher.outputs(images).logits
        first = len(labelled) + len(weak)
        return logits[: len(labelled)], logits[len(labelled) : first], logits[first:]

    def _own_loss(self, labelled: Logits, weak: Logits, strong: Logits, targets: Targets) -> Float[Tensor, ""]:
        """Return the teacher's loss of the labels, and of its consistency between the two views."""
        settings = self.settings
        growing = min(1.0, int(self.updates) / settings.uda_steps)
        consistency = consistency_loss(
            weak, strong, temperature=settings.uda_temperature, threshold=settings.uda_threshold
        )
        return self.loss_of(labelled, targets) + settings.uda_weight * growing * consistency

    def after_step(self, step: int) -> None:
        """Let the teacher learn from the effect of the student's update."""
        progress = torch.zeros(()) if self.waits else self._progress()
        teacher, settings = self.apart(), self.recipe.optimizer
        for remembered, share in zip(self._remembered, self._shares(), strict=True):
            feedback = feedback_loss(remembered.strong, remembered.drawn, progress.to(remembered.strong.device))
            (share * (feedback + remembered.own)).backward()  # type: ignore[no-untyped-call]
        self._remembered.clear()
        gradients = [parameter.grad for parameter in teacher if parameter.grad is not None]
        for gradient in gradients:
            gradient.copy_(distributed.total(gradient) / distributed.world())
        norm = clip_by_global_norm(teacher, settings.clip_norm)
        if bool(torch.isfinite(norm)):
            self.teacher_optimizer.step()
        self.updates += 1

    def _shares(self) -> list[float]:
        counts = [len(remembered.images) for remembered in self._remembered]
        return [count / sum(counts) for count in counts]

    @torch.no_grad()
    def _progress(self) -> Tensor:
        """Return the drop of the student's loss on the labelled images, minus the moving average of such drops.

        The average is updated before it is taken off, as in the released code.
        """
        gained = torch.zeros(())
        for remembered, share in zip(self._remembered, self._shares(), strict=True):
            with autocast(remembered.images.device, self.recipe.precision):
                now = self.student.outputs(remembered.images, remembered.part).logits
            after = functional.cross_entropy(now.float(), remembered.targets)
            gained += share * (remembered.before - after).cpu()
        gained = distributed.total(gained) / distributed.world()
        self.average_progress.lerp_(gained, 1 - self.settings.baseline)
        return gained - self.average_progress

    def state_dict(self) -> Mapping[str, Held]:
        """Return the number of updates, and the moving average of the student's progress."""
        return held({"updates": self.updates, "average_progress": self.average_progress})
