"""Procedural warm-up: learn the grammar of nested brackets before the first image."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Bool, Int64
from pydantic import Field
from torch import Tensor

from vitral.models.model import Model
from vitral.objectives.masked_patches import masked_patch_loss
from vitral.objectives.procedural import ProceduralWarmup, draw_words
from vitral.seeds import derive, generator
from vitral.tasks.task import Task
from vitral.training.methods.method import Context
from vitral.training.methods.self_supervised import SelfSupervised
from vitral.training.methods.views import Part
from vitral.training.optimization.state import Held, held
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


class ProceduralSettings(MethodSettings):
    """Learn which symbols are hidden in sequences of nested brackets (arXiv 2511.13945), which needs no images.

    Attributes:
        kinds: The number of kinds of brackets (k).
        share: The share of the symbols that are hidden.
    """

    uses_labels = False
    mixes = False

    name: Literal["procedural"] = "procedural"
    kinds: int = Field(default=64, ge=1, le=100_000)
    share: float = Field(default=0.5, gt=0, lt=1)


class Procedural(SelfSupervised):
    """Words in the place of patches; images are not read, so that the data "blank" suffice.

    Only the network's blocks learn; the patch embedding and the head keep their random weights.
    """

    Settings = ProceduralSettings
    module: ProceduralWarmup

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(ProceduralSettings, recipe.method)
        self.module = ProceduralWarmup(
            network, kinds=self.settings.kinds, share=self.settings.share, seed=derive(recipe.seed, "procedural")
        )
        self.updates = torch.zeros((), dtype=torch.int64)

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss of the hidden symbols, and the share of right symbols; a function of update and place."""
        first, device = part.of_batch.first, part.images.device
        drawn = [self._drawn(place) for place in range(first, first + len(part.images))]
        words, hidden = (torch.from_numpy(np.stack(values)).to(device) for values in zip(*drawn, strict=True))
        loss, right = masked_patch_loss(call(words, hidden, part.of_batch), hidden, words)
        return loss, {"accuracy": right}

    def _drawn(self, place: int) -> tuple[Int64[np.ndarray, " symbols"], Bool[np.ndarray, " symbols"]]:
        """Return the word of a place of the batch, and which of its symbols are hidden."""
        rng, length = generator(self.recipe.seed, "words", int(self.updates), place), self.module.length
        hides = max(1, round(self.settings.share * length))
        return draw_words(1, length, self.settings.kinds, rng)[0], rng.permutation(length) < hides

    def after_step(self, step: int) -> None:
        """Count the updates."""
        self.updates += 1

    def state_dict(self) -> Mapping[str, Held]:
        """Return the number of updates."""
        return held({"updates": self.updates})
