"""Masked patch prediction: the colours of hidden patches, without labels (paper section 4.6 and appendix B.1.2)."""

from collections.abc import Callable
from typing import Any, Literal, cast

from pydantic import Field
from torch import Tensor

from vitral.models.model import Model
from vitral.objectives.masked_patches import MaskedPatchPrediction, masked_patch_loss, mean_colours
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.method import Context
from vitral.training.methods.self_supervised import SelfSupervised
from vitral.training.methods.views import Part
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


class MaskedPatchesSettings(MethodSettings):
    """Learn the colours of hidden patches (paper appendix B.1.2), which needs no labels.

    Attributes:
        share: The share of the patches that are hidden.
    """

    uses_labels = False
    mixes = False

    name: Literal["masked-patches"] = "masked-patches"
    share: float = Field(default=0.5, gt=0, lt=1)


class MaskedPatches(SelfSupervised):
    """The colours of hidden patches; labels are not read."""

    Settings = MaskedPatchesSettings

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        share = cast(MaskedPatchesSettings, recipe.method).share
        self.module = MaskedPatchPrediction(network, share=share, seed=derive(recipe.seed, "masked patches"))
        self.patch: tuple[int, int] = network.config.patch_size

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss, and the share of corrupted patches with the right colour."""
        logits, corrupted = call(part.images, part.of_batch)
        loss, right = masked_patch_loss(logits, corrupted, mean_colours(part.pixels, self.patch))
        return loss, {"accuracy": right}
