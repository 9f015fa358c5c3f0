"""Masked autoencoder: rebuild hidden patches, without labels (arXiv 2111.06377)."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.events import Listener
from vitral.models.model import Model
from vitral.objectives.masked_autoencoder import MaskedAutoencoder, rebuilding_loss
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.head import fit_head
from vitral.training.methods.method import Context, Method
from vitral.training.methods.views import Part
from vitral.training.settings.methods import MaskedAutoencoderSettings
from vitral.training.settings.recipe import Recipe


class Rebuilding(Method):
    """The pixels of hidden patches; labels are not looked at."""

    Settings = MaskedAutoencoderSettings
    draws_by_image = True

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(MaskedAutoencoderSettings, recipe.method)
        self.module = MaskedAutoencoder(
            network,
            share=self.settings.share,
            depth=self.settings.decoder_depth,
            width=self.settings.decoder_width,
            heads=self.settings.decoder_heads,
            seed=derive(recipe.seed, "masked autoencoder"),
        )
        self.patch: tuple[int, int] = network.config.patch_size

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean squared difference of the hidden patches; it has no figures of its own."""
        rebuilt, hidden = call(part.images, part.of_batch)
        normalized = self.settings.normalized
        return rebuilding_loss(rebuilt, part.images, hidden, patch=self.patch, normalized=normalized), {}

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Return that it does not."""
        return False

    @classmethod
    def complete(cls, recipe: Recipe, classifier: Classifier, train: Source, listener: Listener) -> None:
        """Fit the head that nothing has trained."""
        fit_head(classifier, train, listener)
