"""Procedural warm-up: learn the grammar of nested brackets before the first image."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.events import Listener
from vitral.models.model import Model
from vitral.objectives.procedural import ProceduralWarmup, draw_words, hidden_symbols_loss
from vitral.seeds import derive, generator
from vitral.tasks.task import Task
from vitral.training.methods.head import fit_head
from vitral.training.methods.method import Context, Method
from vitral.training.methods.views import Part
from vitral.training.optimization.state import Held, held
from vitral.training.settings.methods import ProceduralSettings
from vitral.training.settings.recipe import Recipe


class Procedural(Method):
    """Words in the place of patches; images are not looked at, and "blank" has none to read.

    What the network learns so are its blocks; the patches' embedding and the head stay as they were drawn.
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

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Return that it does not."""
        return False

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss of the hidden symbols, and the share that is right; a function of update and place alone."""
        first, device = part.of_batch.first, part.images.device
        drawn = [self._drawn(place) for place in range(first, first + len(part.images))]
        words, hidden = (torch.from_numpy(np.stack(values)).to(device) for values in zip(*drawn, strict=True))
        loss, right = hidden_symbols_loss(call(words, hidden, part.of_batch), words, hidden)
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

    @classmethod
    def complete(cls, recipe: Recipe, classifier: Classifier, train: Source, listener: Listener) -> None:
        """Fit the head that nothing has trained."""
        fit_head(classifier, train, listener)
