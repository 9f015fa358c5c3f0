"""Masked patch prediction: the colours of hidden patches, without labels (paper section 4.6 and appendix B.1.2)."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.events import Listener
from vitral.models.model import Model
from vitral.objectives.masked_patches import MaskedPatchPrediction, masked_patch_loss, mean_colours
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.head import fit_head
from vitral.training.methods.method import Context, Method
from vitral.training.methods.views import Part
from vitral.training.settings.methods import MaskedPatchesSettings
from vitral.training.settings.recipe import Recipe


class MaskedPatches(Method):
    """The colours of hidden patches; labels are not looked at."""

    Settings = MaskedPatchesSettings

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        share = cast(MaskedPatchesSettings, recipe.method).share
        self.module = MaskedPatchPrediction(network, share=share, seed=derive(recipe.seed, "masked patches"))
        self.patch: tuple[int, int] = network.config.patch_size

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss and the share of corrupted patches whose colour is right."""
        logits, corrupted = call(part.images, part.of_batch)
        loss, right = masked_patch_loss(logits, corrupted, mean_colours(part.pixels, self.patch))
        return loss, {"accuracy": right}

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Return that it does not."""
        return False

    @classmethod
    def complete(cls, recipe: Recipe, classifier: Classifier, train: Source, listener: Listener) -> None:
        """Fit the head that nothing has trained."""
        fit_head(classifier, train, listener)
