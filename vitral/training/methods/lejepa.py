"""LeJEPA: views that agree and features that are an isotropic Gaussian, without labels or a teacher (arXiv 2511.08544)."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.events import Listener
from vitral.models.model import Model
from vitral.objectives.latent_views import LatentViews, agreement_loss, draw_directions, gaussian_loss
from vitral.seeds import derive
from vitral.tasks.task import Task
from vitral.training.methods.head import fit_head
from vitral.training.methods.method import Context, Method
from vitral.training.methods.views import Part, View
from vitral.training.settings.methods import LeJepaSettings
from vitral.training.settings.recipe import Recipe


class LeJepa(Method):
    """Agreement of an image's views, and a Gaussian of all features; labels are not looked at."""

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
        """Return as many views as the recipe says, all varied as it says."""
        return (View(mixed=False),) * cast(LeJepaSettings, recipe.method).views

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss and its two parts."""
        # Drawn first, when torch's generator stands alike in every process.
        directions = draw_directions(self.settings.dimensions, self.settings.directions)
        projections = call(tuple(view.images for view in part.views), part.of_batch)
        agreed, gaussian = agreement_loss(projections), gaussian_loss(projections, directions)
        weight = self.settings.weight
        return (1 - weight) * agreed + weight * gaussian, {"agreement": agreed, "gaussian": gaussian}

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Return that it does not."""
        return False

    @classmethod
    def complete(cls, recipe: Recipe, classifier: Classifier, train: Source, listener: Listener) -> None:
        """Fit the head that nothing has trained."""
        fit_head(classifier, train, listener)
