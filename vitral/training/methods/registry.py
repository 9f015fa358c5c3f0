"""The methods by name: those of Vitral, and what `vitral.register("method", name, thing)` adds."""

from vitral import plugins
from vitral.errors import PluginError
from vitral.models.model import Model
from vitral.tasks.task import Task
from vitral.training.methods.distillation import Distillation
from vitral.training.methods.feature_distillation import FeatureDistillation
from vitral.training.methods.lejepa import LeJepa
from vitral.training.methods.masked_autoencoder import Rebuilding
from vitral.training.methods.masked_patches import MaskedPatches
from vitral.training.methods.meta_pseudo_labels import MetaPseudoLabels
from vitral.training.methods.method import Context, Method
from vitral.training.methods.noisy_student import NoisyStudent
from vitral.training.methods.procedural import Procedural
from vitral.training.methods.semantic_softmax import SemanticSoftmax
from vitral.training.methods.supervised import Supervised
from vitral.training.settings.recipe import Recipe

_METHODS: dict[str, type[Method]] = {
    "supervised": Supervised,
    "masked-patches": MaskedPatches,
    "procedural": Procedural,
    "distillation": Distillation,
    "feature-distillation": FeatureDistillation,
    "noisy-student": NoisyStudent,
    "meta-pseudo-labels": MetaPseudoLabels,
    "semantic-softmax": SemanticSoftmax,
    "masked-autoencoder": Rebuilding,
    "lejepa": LeJepa,
}


def _add(name: str, thing: object) -> None:
    """Add a plugin's method, whose section is known by then."""
    if not (isinstance(thing, type) and issubclass(thing, Method)):
        raise PluginError(f"The method '{name}' must be registered as a class of methods.")
    _METHODS[name] = thing


plugins.subscribe("method", _add)


def method_of(recipe: Recipe) -> type[Method]:
    """Return the method that a recipe names."""
    return _METHODS[recipe.method.name]


def build_method(network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> Method:
    """Return a recipe's method over a network that learns a task; `context` is what else the method may have to know.

    Raises:
        ModelError: the network cannot be trained so.
    """
    return method_of(recipe)(network, recipe, task, context)
