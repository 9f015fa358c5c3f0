"""Supervised classification: learn the labels."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from vitral.errors import ModelError
from vitral.models.layers import BatchPart
from vitral.models.model import Model, Outputs
from vitral.objectives.classification import balance_loss, sigmoid_cross_entropy, softmax_cross_entropy
from vitral.objectives.unequal import balanced_weights, log_prior
from vitral.tasks.task import OWN_LOSS, Targets, Task
from vitral.training.methods.method import Context, Method
from vitral.training.methods.views import Part
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


class TrainingOutputs(nn.Module):
    """A network whose call gives all its training outputs."""

    def __init__(self, network: Model) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, part: BatchPart | None = None) -> Outputs:
        """Return the network's outputs for a batch of images, or a part of a batch."""
        return self.network.outputs(images, part)


class SupervisedSettings(MethodSettings):
    """Learn the labels by the loss of the section `objective`."""

    learns_regions: ClassVar[bool] = True

    name: Literal["supervised"] = "supervised"


class Supervised(Method):
    """The recipe's loss of the labels, and the balance loss of experts; both heads of a distilled network learn the labels.

    Raises:
        ModelError: The loss depends on the classes' numbers of images, and an image has not exactly one class, or they are
            not known.
    """

    Settings: ClassVar[type[MethodSettings]] = SupervisedSettings
    plain = True

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.module = TrainingOutputs(network)
        settings = recipe.regularization
        self.smoothing = settings.label_smoothing
        self.weights, self.offsets = self._by_class_images()

    def _by_class_images(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the classes' weights in the loss, and what is added to the logits in it; None for none."""
        objective, images = self.recipe.objective, self.context.class_images
        if not objective.needs_class_images:
            return None, None
        if not images:
            raise ModelError(
                "objective.class_weights and adjustments of logits need a known number of images that have one class each; "
                f"these {self.task.labelled} or are drawn without end. Leave the settings out."
            )
        weights = balanced_weights(images) if objective.class_weights == "balanced" else None
        tau = objective.logit_adjustment
        return weights, tau * log_prior(images) if tau else None

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss, and the accuracy by the task's rule."""
        outputs: Outputs = call(part.images, part.of_batch)
        logits = self.task.at_targets(outputs.logits, part.targets)
        loss = self.loss_of(logits, part.targets)
        if outputs.distillation_logits is not None:
            loss = (loss + self.loss_of(outputs.distillation_logits, part.targets)) / 2
        if outputs.auxiliary:
            loss = loss + balance_loss(outputs.auxiliary)
        return loss, self.task.figures(logits, part.targets)

    def accuracy(self, logits: Float[Tensor, "batch classes"], targets: Targets) -> Tensor:
        """Return the share of right answers by the task's rule."""
        return self.task.right(logits.detach(), targets).float().mean()

    def loss_of(self, logits: Any, targets: Targets) -> Tensor:  # noqa: ANN401  # (batch, classes), or a head of regions'
        """Return the loss of a head."""
        objective, smoothing = self.recipe.objective, self.smoothing
        if objective.name == OWN_LOSS:
            return self.task.loss(logits, targets, label_smoothing=smoothing)
        if objective.name == "sigmoid":
            loss = sigmoid_cross_entropy(
                logits, targets, label_smoothing=smoothing, binary_targets=objective.binary_targets
            )
            return loss / logits.shape[1] if objective.mean_over_classes else loss
        if self.offsets is not None:
            logits = logits.float() + self.offsets.to(logits.device)
        weights = None if self.weights is None else self.weights.to(logits.device)
        return softmax_cross_entropy(logits, targets, label_smoothing=smoothing, weights=weights)
