"""The methods by name: those of Vitral, and what a user registers."""

from vitral.errors import RecipeError
from vitral.models.model import Model
from vitral.tasks.task import Task
from vitral.training.methods.masked_patches import MaskedPatches
from vitral.training.methods.method import Method
from vitral.training.methods.supervised import Supervised
from vitral.training.settings.methods import SECTIONS
from vitral.training.settings.recipe import Recipe

_METHODS: dict[str, type[Method]] = {"supervised": Supervised, "masked-patches": MaskedPatches}


def register(method: type[Method]) -> type[Method]:
    """Make a method known by the default name of its section, so that a recipe may say `method.name`; a class decorator.

    Raises:
        RecipeError: another method has that name.
    """
    name = method.Settings.model_fields["name"].default
    if _METHODS.setdefault(name, method) is not method:
        raise RecipeError(f"There is already a method '{name}'; give yours another name.")
    SECTIONS[name] = method.Settings
    return method


def method_of(recipe: Recipe) -> type[Method]:
    """Return the method that a recipe names."""
    return _METHODS[recipe.method.name]


def build_method(network: Model, recipe: Recipe, task: Task) -> Method:
    """Return a recipe's method over a network that learns a task.

    Raises:
        ModelError: the network cannot be trained so.
    """
    return method_of(recipe)(network, recipe, task)
