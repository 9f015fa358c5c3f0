"""The network that a run begins with."""

from typing import Any

from vitral.errors import ModelError
from vitral.models.catalog import variant
from vitral.models.create import FIELDS, configure, encoder_changes
from vitral.training.settings.recipe import ROTARY, Recipe

DEFAULT_MODEL = "vit-ti16"
ANY_CLASSES = 2  # how many there are is known when the data are read
SHAPE = ("patch_size", "patch_stride", "position", "position_at", "pooling", *FIELDS)  # of a recipe


def network_config(recipe: Recipe, num_classes: int) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return the config of the network that a recipe trains from random weights.

    Raises:
        ModelError: the recipe names no model, or sets something that the model's family does not have.
    """
    name = recipe.model or DEFAULT_MODEL
    config = variant(name)
    rates = recipe.regularization
    values = {
        "num_classes": num_classes,
        "head_bias": recipe.objective.head_bias,
        "dropout": rates.dropout,
        "attention_dropout": rates.attention_dropout,
        "stochastic_depth": rates.stochastic_depth,
        "image_size": recipe.image_size,
    }
    changes: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    changes |= shape_changes(recipe, name)
    if recipe.head.representation:
        changes["representation_size"] = changes.get("dim", getattr(config, "dim", None))
    if recipe.experts.upcycle is not None:
        raise ModelError(f"experts.upcycle is for a network that comes trained, and {name} begins from random weights.")
    numbers = {} if recipe.experts.number is None else {"num_experts": recipe.experts.number}
    if wanted := {**numbers, **routing(recipe)}:
        if getattr(config, "experts", None) is None:
            raise ModelError(f"The recipe '{recipe.name}' sets experts, and {recipe.model} has none.")
        changes["experts"] = wanted
    return configure(name, changes)


def shape_changes(recipe: Recipe, name: str) -> dict[str, Any]:
    """Return what a recipe changes of a variant's shape, by its config's fields; empty where it changes nothing.

    Raises:
        ModelError: the variant is of a family without such a shape, or its width cannot be shared out to its heads.
    """
    changes = {key: value for key in SHAPE if (value := getattr(recipe, key)) is not None}
    if changes.get("position") == ROTARY:
        changes |= {"position": "none", "rotary": "dinov3"}
    encoder = {key: changes.pop(key) for key in FIELDS if key in changes}
    return changes | encoder_changes(name, encoder)


def routing(recipe: Recipe) -> dict[str, float]:
    """Return what a recipe changes of how a network's experts work, by the names that `ExpertsConfig` has for it."""
    return recipe.experts.model_dump(exclude={"number", "upcycle"}, exclude_none=True)
