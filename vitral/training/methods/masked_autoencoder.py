"""Masked autoencoder: rebuild hidden patches, without labels (arXiv 2111.06377)."""

from collections.abc import Callable
from typing import Any, Literal, cast

from pydantic import Field, model_validator
from torch import Tensor

from vitral.models.model import Model
from vitral.objectives.masked_autoencoder import MaskedAutoencoder, rebuilding_loss
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.method import Context
from vitral.training.methods.self_supervised import SelfSupervised
from vitral.training.methods.views import Part
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


class MaskedAutoencoderSettings(MethodSettings):
    """Rebuild hidden patches from the visible ones (MAE, arXiv 2111.06377), which needs no labels.

    Attributes:
        share: The share of the patches that are hidden; the encoder never sees them.
        decoder_depth: The number of blocks of the decoder, which is discarded at the end.
        decoder_width: The width of the decoder's tokens.
        decoder_heads: The number of the decoder's attention heads.
        normalized: Whether each patch is rebuilt with a mean of 0 and a variance of 1.
    """

    uses_labels = False
    mixes = False

    name: Literal["masked-autoencoder"] = "masked-autoencoder"
    share: float = Field(default=0.75, gt=0, lt=1)
    decoder_depth: int = Field(default=8, ge=1, le=100)
    decoder_width: int = Field(default=512, ge=4, le=16384, multiple_of=4)
    decoder_heads: int = Field(default=16, ge=1)
    normalized: bool = True

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "MaskedAutoencoderSettings":
        if self.decoder_width % self.decoder_heads:
            raise ValueError(f"{self.decoder_heads} heads do not divide a width of {self.decoder_width}")
        return self


class Rebuilding(SelfSupervised):
    """The pixels of hidden patches; labels are not read."""

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
        """Return the mean squared difference of the hidden patches, and no further figures."""
        rebuilt, hidden = call(part.images, part.of_batch)
        normalized = self.settings.normalized
        return rebuilding_loss(rebuilt, part.images, hidden, patch=self.patch, normalized=normalized), {}
