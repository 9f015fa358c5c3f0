"""What a recipe minimises: classification, or masked patch prediction; a module to call and a loss of what it gives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vitral.models.model import Model, Outputs
from vitral.models.stochastic_depth import BatchPart
from vitral.objectives.balance import balance_loss
from vitral.objectives.classification import sigmoid_cross_entropy, softmax_cross_entropy
from vitral.objectives.masked_patches import MaskedPatchPrediction, masked_patch_loss, mean_colours
from vitral.seeds import derive
from vitral.tasks.task import OWN_LOSS, Targets, Task
from vitral.training.parallel import TrainingOutputs
from vitral.training.settings.recipe import Recipe


@dataclass(frozen=True)
class Part:
    """Some images of a batch, ready for the network.

    Attributes:
        images: normalised.
        of_batch: which examples of the whole batch these are.
        pixels: the same before that, values 0 to 255.
        targets: the labels as their task encodes them, or shares of the classes where images were mixed.
    """

    images: Float[Tensor, "batch 3 height width"]
    of_batch: BatchPart
    pixels: UInt8[Tensor, "batch 3 height width"]
    targets: Targets


class Objective(Protocol):
    """A loss with the module that it trains."""

    @property
    def module(self) -> nn.Module:
        """What is trained: the network, or a module around it."""
        ...

    def __call__(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, Tensor]:
        """Return the mean loss of a part of a batch, and the share of it that is right, both scalars."""
        ...


class Classification:
    """The recipe's loss of the labels, with what balances experts; both heads of a distilled network learn from the labels."""

    def __init__(self, network: Model, recipe: Recipe, task: Task) -> None:
        self.module = TrainingOutputs(network)
        self.recipe, self.task = recipe, task

    def __call__(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the share of images that the task finds right."""
        outputs: Outputs = call(part.images, part.of_batch)
        loss = self.loss(outputs.logits, part.targets)
        if outputs.distillation_logits is not None:
            loss = (loss + self.loss(outputs.distillation_logits, part.targets)) / 2
        if outputs.auxiliary:
            loss = loss + balance_loss(outputs.auxiliary)
        return loss, self.task.right(outputs.logits.detach(), part.targets).float().mean()

    def loss(self, logits: Float[Tensor, "batch classes"], targets: Targets) -> Tensor:
        """Return the loss of one head."""
        objective, smoothing = self.recipe.objective, self.recipe.regularization.label_smoothing
        if objective.name == OWN_LOSS:
            return self.task.loss(logits, targets, label_smoothing=smoothing)
        if objective.name == "sigmoid":
            loss = sigmoid_cross_entropy(
                logits, targets, label_smoothing=smoothing, binary_targets=objective.binary_targets
            )
            return loss / logits.shape[1] if objective.mean_over_classes else loss
        return softmax_cross_entropy(logits, targets, label_smoothing=smoothing)


class MaskedPatches:
    """The colours of hidden patches; labels are not looked at."""

    def __init__(self, network: Model, recipe: Recipe) -> None:
        seed = derive(recipe.seed, "masked patches")
        self.module = MaskedPatchPrediction(network, share=recipe.objective.masked_share, seed=seed)
        self.patch: tuple[int, int] = network.config.patch_size

    def __call__(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the share of corrupted patches whose colour is right."""
        logits, corrupted = call(part.images, part.of_batch)
        return masked_patch_loss(logits, corrupted, mean_colours(part.pixels, self.patch))


def build_objective(network: Model, recipe: Recipe, task: Task) -> Objective:
    """Return a recipe's objective over a network that learns a task.

    Raises:
        ModelError: the network cannot be trained so.
    """
    masked = recipe.objective.name == "masked-patches"
    return MaskedPatches(network, recipe) if masked else Classification(network, recipe, task)


def masked_accuracy(objective: Objective, part: Part) -> float:
    """Return the share of corrupted patches whose colour is right, without learning from them."""
    with torch.no_grad():
        _, right = objective(objective.module, part)
    return float(right)
