"""LeJEPA: views that agree and features that are an isotropic Gaussian, without labels or a teacher (arXiv 2511.08544)."""

from collections.abc import Callable
from typing import Any, Literal, cast

from pydantic import Field
from torch import Tensor

from vitral.models.model import Model
from vitral.objectives.latent_views import LatentViews, agreement_loss, draw_directions, gaussian_loss
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.method import Context
from vitral.training.methods.self_supervised import SelfSupervised
from vitral.training.methods.views import Part, View
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


class LeJepaSettings(MethodSettings):
    """Make views of an image agree and all features an isotropic Gaussian (LeJEPA, arXiv 2511.08544), which needs no labels.

    Attributes:
        views: The number of views of every image.
        weight: The weight of the Gaussian's part of the loss (lambda); the agreement has the rest.
        dimensions: The width of a projection.
        hidden: The width of the projector's two hidden layers.
        directions: The number of directions along which projections are compared with a Gaussian; drawn again at every step.
    """

    uses_labels = False
    mixes = False

    name: Literal["lejepa"] = "lejepa"
    views: int = Field(default=4, ge=2, le=32)
    weight: float = Field(default=0.02, gt=0, lt=1)
    dimensions: int = Field(default=16, ge=1, le=16384)
    hidden: int = Field(default=2048, ge=1, le=65536)
    directions: int = Field(default=256, ge=1, le=65536)


class LeJepa(SelfSupervised):
    """Agreement of an image's views, and a Gaussian of all features; labels are not read."""

    Settings = LeJepaSettings

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.settings = cast(LeJepaSettings, recipe.method)
        self.module = LatentViews(
            network,
            hidden=self.settings.hidden,
            dimensions=self.settings.dimensions,
            seed=derive(recipe.seed, "projector"),
        )

    @classmethod
    def views(cls, recipe: Recipe) -> tuple[View, ...]:
        """Return the recipe's number of views, all with its augmentation."""
        return (View(mixed=False),) * cast(LeJepaSettings, recipe.method).views

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss and its two parts."""
        # Drawn first, while torch's generator has the same state in every process.
        directions = draw_directions(self.settings.dimensions, self.settings.directions)
        projections = call(tuple(view.images for view in part.views), part.of_batch)
        agreed, gaussian = agreement_loss(projections), gaussian_loss(projections, directions)
        weight = self.settings.weight
        return (1 - weight) * agreed + weight * gaussian, {"agreement": agreed, "gaussian": gaussian}
