"""What a command asks for, checked before a single image is read: a slip of the hand must not cost the reading of the data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.errors import ModelError
from vitral.models.catalog import list_models, replace, variant
from vitral.training.planning.network import network_config
from vitral.training.settings.recipe import Recipe, load_recipe

ANY_CLASSES = 2  # how many there are is known when the data are read


def check_finetuning(
    source: str | Path | None,
    *,
    recipe: str | Path | None,
    overrides: Sequence[str],
    image_size: int | None,
    seed: int | None,
    defaults: Sequence[str],
) -> Classifier | None:
    """Return the classifier that training starts from, loaded; None if it starts from a network that is made later.

    Args:
        source: what `finetune` takes, or what the run that goes on began with.
        recipe: likewise.
        overrides: likewise.
        image_size: likewise.
        seed: likewise.
        defaults: the models of which one is taken if there is neither a source nor a recipe that names a model.

    Raises:
        RecipeError: no such recipe, an unknown key or an impossible value.
        WeightsError: the source cannot be loaded.
        ModelError: the network cannot be made so, or cannot take the size.
    """
    named = source is not None and str(source) not in list_models()
    settings = asked_recipe(recipe or ("finetune" if named else "scratch"), overrides, image_size=image_size, seed=seed)
    if settings.model is not None and (source is None or str(source) == settings.model):
        network_config(settings, ANY_CLASSES)
        return None
    if source is None:
        _check_size([variant(name) for name in defaults], settings.image_size)
        return None
    start = load(source)
    _check_size([start.model.config], settings.image_size)
    return start


def asked_recipe(recipe: str | Path, overrides: Sequence[str], *, image_size: int | None, seed: int | None) -> Recipe:
    """Return a recipe with everything that the command says of it, each value checked.

    Raises:
        RecipeError: no such recipe, an unknown key or an impossible value.
    """
    said = {"image_size": image_size, "seed": seed}
    return load_recipe(recipe, [*overrides, *(f"{key}={value}" for key, value in said.items() if value is not None)])


def _check_size(configs: Sequence[Any], size: int | None) -> None:
    """Refuse a size that no network of several can take."""
    refusals = []
    for config in configs:
        try:
            replace(config, image_size=config.image_size if size is None else (size, size))
            return
        except ModelError as error:
            refusals.append(error)
    raise refusals[-1]
