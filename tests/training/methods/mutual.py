"""A method of one's own in one file: two networks, two optimizers, an averaged teacher and an unlabelled source.

The labelled images teach both networks. Of every unlabelled image the teacher, an average of the first network, sees one view
and says what it is, and both networks learn that from another view (as in Mean Teacher, arXiv 1703.01780, and in Deep Mutual
Learning, arXiv 1706.00384). The teacher is what is delivered.

`main` trains by it as one of any number of processes; the changes are those of `ranks_run.py`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.optim import SGD, Optimizer

from tests.processes import ranks_run
from vitral import plugins
from vitral.images.augment import Augmentation
from vitral.inference.torch_predictor import evaluating
from vitral.models.families import build
from vitral.models.layers import BatchPart
from vitral.models.model import Model
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.method import Context, Method
from vitral.training.methods.views import ExtraSource, Part, View
from vitral.training.optimization.averaging import Average
from vitral.training.optimization.optimizers import build_optimizer
from vitral.training.optimization.state import Held, held
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe

WEAK, STRONG = Augmentation(crop="none", shift=0.1), Augmentation(crop="none", shift=0.3, erasing=0.5)


class MutualSettings(MethodSettings):
    """The section of a recipe: `[method]`, `name = "mutual"`.

    Attributes:
        unlabelled: data whose labels are not read.
        unlabelled_batch: of them a step.
        weight: of the loss on them.
        teacher: what stays of the teacher at a step.
    """

    name: Literal["mutual"] = "mutual"
    unlabelled: str = "digits"
    unlabelled_batch: int = Field(default=8, ge=1)
    weight: float = Field(default=0.5, ge=0)
    teacher: float = Field(default=0.9, gt=0, lt=1)


class Pair(nn.Module):
    """Two networks that see the same images."""

    def __init__(self, one: Model, other: Model) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(
        self, images: Tensor, part: BatchPart, unlabelled: Tensor, unlabelled_part: BatchPart
    ) -> list[tuple[Tensor, Tensor]]:
        """Return each network's logits of the labelled images and of the others."""
        return [
            (network.outputs(images, part).logits, network.outputs(unlabelled, unlabelled_part).logits)
            for network in (self.one, self.other)
        ]


class Mutual(Method):
    """Two networks that learn from labels and from a teacher."""

    Settings = MutualSettings
    module: Pair

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(MutualSettings, recipe.method)
        other = build(network.config, seed=derive(recipe.seed, "the other network")).train()
        self.module = Pair(network, other.to(next(network.parameters()).device))
        self.clock = torch.zeros(())

    @classmethod
    def sources(cls, recipe: Recipe) -> dict[str, ExtraSource]:
        settings = cast(MutualSettings, recipe.method)
        views = (View(WEAK, mixed=False), View(STRONG, mixed=False))
        return {"unlabelled": ExtraSource(settings.unlabelled, settings.unlabelled_batch, views)}

    def optimizers(self) -> list[Optimizer]:
        self.teacher = Average(self.module.one, self.settings.teacher)
        adam = build_optimizer(self.module.one, self.network, self.recipe.optimizer)
        return [adam, SGD([{"params": list(self.module.other.parameters()), "scale": 10.0}], lr=0.1, momentum=0.9)]

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        unlabelled = part.extra["unlabelled"]
        weak, strong = unlabelled.views
        with torch.no_grad(), evaluating(self.module.one):
            taught = functional_call(self.module.one, self.teacher.tensors, (weak.images,)).softmax(dim=1)
        answers = call(part.images, part.of_batch, strong.images, unlabelled.of_batch)
        losses = [
            functional.cross_entropy(own, part.targets) + self.settings.weight * functional.cross_entropy(said, taught)
            for own, said in answers
        ]
        (first, _), (second, _) = answers
        agreement = (first.argmax(dim=1) == second.argmax(dim=1)).float().mean()
        right = self.task.right(first.detach(), part.targets).float().mean()
        return torch.stack(losses).sum(), {"accuracy": right, "agreement": agreement}

    def after_step(self, step: int) -> None:
        self.teacher.update(step)
        self.clock.lerp_(torch.tensor(float(step % 7)), 0.1)  # a state that is not a parameter

    def state_dict(self) -> Mapping[str, Held]:
        teacher = {f"teacher/{name}": state for name, state in self.teacher.state_dict().items()}
        return teacher | held({"clock": self.clock})

    def deliver(self) -> None:
        self.teacher.put()


plugins.register("method", "mutual", Mutual)


def main(folder: Path, changes: dict[str, Any]) -> int:
    """Train by it, or go on training."""
    return ranks_run.main(folder, changes)
