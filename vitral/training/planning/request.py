"""What a training command asks for, and the recipe that it asks for with it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from vitral import plugins
from vitral.advice import argument
from vitral.data.classes import Reading, check_reading
from vitral.data.open import parts_of_name
from vitral.errors import RecipeError, TrainingError
from vitral.models.catalog import list_models
from vitral.overrides import spelled
from vitral.training.planning.attempts import Attempt, says_one
from vitral.training.planning.durations import asked_seconds, written
from vitral.training.planning.network import ANY_CLASSES, DEFAULT_MODEL, SHAPE, network_config
from vitral.training.planning.starts import ChosenStart
from vitral.training.settings.recipe import Recipe, load_recipe

Kind = Literal["fine-tune", "pre-train"]
FUNCTIONS = {"fine-tune": "finetune", "pre-train": "pretrain"}

PAPERS = "finetune-paper"  # the recipe of a sweep that names none: the paper's own
PRETRAINING, SCRATCH = "pretrain", "scratch"  # of a run from random weights that names none
PATHS, DATA_NAMES = ("method.teacher", "method.tree"), ("method.unlabelled", "evaluation.data")  # of a recipe's keys
VIEWS = "augmentation"  # how the recipe's keys begin that say how images vary
# Keys of a recipe, by their beginnings: who says one of them means a network from scratch, or another way to learn.
NETWORK_KEYS = ("model", *SHAPE, "head.", "experts.", "method")
ADAPTED = "finetune"  # with which the automatic choice for trained weights begins


@dataclass(frozen=True)
class Asked:
    """What a training command was given; see `finetune` and `pretrain`.

    Attributes:
        kind: "fine-tune" or "pre-train".
        data: the data's name, path or address.
        source: what the weights come from.
        model: the network to pre-train.
        recipe: a recipe's name or file.
        overrides: changes to it.
        image_size: pixels.
        budget_seconds: the time budget.
        seed: of every random choice.
        classes: of nested folders, which one names the class.
        skip_bad_images: whether to train without unreadable images.
        sweep: whether to try learning rates.
        baselines: whether to fit simple classifiers first.
        quick: whether to stop after the first of them.
        where: the folder in which the command was given, to which its paths are relative.
        plugins: the files that were loaded.
    """

    kind: str
    data: str | None = None
    source: str | None = None
    model: str | None = None
    recipe: str | None = None
    overrides: tuple[str, ...] = ()
    image_size: int | None = None
    budget_seconds: float | None = None
    seed: int | None = None
    classes: Reading | None = None
    skip_bad_images: bool = False
    sweep: bool = False
    baselines: bool = True
    quick: bool = False
    where: str = ""
    plugins: tuple[str, ...] = ()

    def required_data(self) -> str:
        """Return the data's name.

        Raises:
            TrainingError: none was given, and no run says it.
        """
        if self.data is None:
            raise TrainingError(
                f"Which data? Name a folder, file, address or built-in set with {argument('data')}, or for "
                f"{argument('resume', True)} the {argument('out')} of a run that began."
            )
        return self.data

    def call(self) -> str:
        """Return what one would type in Python to ask for this."""
        given: dict[str, object] = {
            "source": self.source,
            "model": self.model,
            "classes": self.classes,
            "recipe": self.recipe,
            "overrides": list(self.overrides) or None,
            "image_size": self.image_size,
            "time": None if self.budget_seconds is None else written(self.budget_seconds),
            "seed": self.seed,
            "skip_bad_images": self.skip_bad_images or None,
            "sweep": self.sweep or None,
            "baselines": None if self.baselines or self.kind == "pre-train" else False,
            "quick": self.quick or None,
        }
        words = [] if self.data is None else [repr(self.data)]
        words += [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return f"vitral.{FUNCTIONS[self.kind]}({', '.join(words)})"


def ask(
    kind: Kind,
    data: str | Path | None,
    *,
    source: str | Path | None = None,
    model: str | None = None,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    image_size: int | None = None,
    time: str | float | None = None,
    budget_seconds: float | None = None,
    seed: int | None = None,
    classes: Reading | None = None,
    skip_bad_images: bool = False,
    sweep: bool = False,
    baselines: bool = True,
    quick: bool = False,
) -> Asked:
    """Return what is asked for here and now; see `finetune` and `pretrain` for the arguments.

    Raises:
        RecipeError: the time is no duration, or was said twice; `quick` was said with what it would leave out.
        DataError: `classes` is no way of reading folders.
    """
    if quick:
        _check_quick(recipe=None if recipe is None else str(recipe), sweep=sweep or None, baselines=baselines and None)
    return Asked(
        kind=kind,
        data=None if data is None else str(data),
        source=None if source is None else str(source),
        model=model,
        recipe=None if recipe is None else str(recipe),
        overrides=tuple(map(_anchored, overrides)),
        image_size=image_size,
        budget_seconds=asked_seconds(time, budget_seconds),
        seed=seed,
        classes=check_reading(classes),
        skip_bad_images=skip_bad_images,
        sweep=sweep,
        baselines=baselines,
        quick=quick,
        where=str(Path.cwd()),
        plugins=tuple(str(plugin.path) for plugin in plugins.loaded()),
    )


def _anchored(change: str) -> str:
    """Return a change to a recipe with its path in full: a run that goes on may do so from another folder."""
    key, equals, value = change.partition("=")
    if key.strip() in PATHS and value and Path(value).exists():
        return f"{key}{equals}{Path(value).resolve()}"
    if key.strip() in DATA_NAMES and value:
        before, path, after = parts_of_name(value)
        return f"{key}{equals}{before}{Path(path).resolve()}{after}" if path and Path(path).exists() else change
    return change


def _leaves(key: str, text: str) -> Iterator[tuple[str, str]]:
    """Give a setting as it was said, or where it is a section as a table those in it, each with its dotted key."""
    value = spelled(text)
    if not isinstance(value, dict):
        yield key, text
        return
    for name, inner in value.items():
        yield from _leaves(f"{key}.{name}", json.dumps(inner) if isinstance(inner, dict) else str(inner))


def _check_quick(**said: object) -> None:
    for name, value in said.items():
        if value is not None:
            quick, other = argument("quick", True), argument(name, value)
            raise RecipeError(f"{quick} stops after the first simple classifier, so {other} cannot go with it.")


@dataclass(frozen=True)
class Request:
    """What is asked for, with the recipe read.

    Attributes:
        asked: what the command was given.
        source: what the weights come from: as asked, or what the run that continues began with; None for random weights.
        recipe: the recipe with everything that was said of it; where `automatic`, the one that the choice begins from, as it
            stands.
        automatic: whether no recipe was named and the weights are trained ones, so that `resolve` chooses.
        said: the changes to the recipe that the command says, the last of a key holding.
        recipe_named: whether the command or the run that continues named a recipe, which then means what it says.
        several: whether several ways to learn may be tried, since nothing that was said means one.
        settled: whether the recipe is that of a run which goes on, as it was resolved for the data that this began with.
        views_said: what was said of how images vary, where the recipe leaves that to the data; it is laid over what suits them.
        begun: those that the run which continues tries; empty where it began with none.
        start: what was chosen to begin with, and why, where no start was named; None before that.
    """

    asked: Asked
    source: str | None
    recipe: Recipe
    automatic: bool
    said: tuple[str, ...]
    recipe_named: bool = True
    several: bool = False
    settled: bool = False
    views_said: tuple[str, ...] = ()
    begun: tuple[Attempt, ...] = ()
    start: ChosenStart | None = None

    @property
    def in_full(self) -> Recipe:
        """The recipe with everything that was said of it, before anything is chosen."""
        return self.recipe.changed(self.said) if self.automatic else self.recipe

    @property
    def told(self) -> dict[str, str]:
        """What was said of the recipe, by key; of a section said as a table, each of its keys."""
        pairs = (change.partition("=") for change in self.said)
        return {key: value for name, _, text in pairs for key, value in _leaves(name.strip(), text)}

    @property
    def from_recipe(self) -> bool:
        """Whether the recipe names the network, which begins from random weights."""
        return self.recipe.model is not None and self.source in (None, self.recipe.model)

    @property
    def begins_freely(self) -> bool:
        """Whether nothing that was said, and no run that continues, means a network, so that a start may be chosen."""
        open_to_any = self.asked.kind == "fine-tune" and not self.recipe_named and self.start is None
        return open_to_any and self.source is None and not any(key.startswith(NETWORK_KEYS) for key in self.told)

    @property
    def from_name(self) -> bool:
        """Whether the network begins from random weights, and was asked for by its name."""
        return not self.from_recipe and self.source in list_models()


def read_request(
    asked: Asked,
    *,
    kept: Path | None = None,
    kept_start: str | None = None,
    begun: tuple[Attempt, ...] = (),
    start: ChosenStart | None = None,
) -> Request:
    """Return a request with its recipe, read once, every value that was said of it checked.

    Args:
        asked: what the command was given, completed by what a run that continues was asked first.
        kept: the recipe of that run.
        kept_start: what that run began with.
        begun: the ways to learn that it tries.
        start: what was chosen to begin with, for that run or for this one.

    Raises:
        RecipeError: no such recipe, an unknown key or an impossible value, or a shape of a network that comes trained.
        ModelError: the recipe names a network that cannot be made so.
    """
    pairs = (("image_size", asked.image_size), ("seed", asked.seed))
    said = (*asked.overrides, *(f"{key}={value}" for key, value in pairs if value is not None))
    named = asked.recipe or (PAPERS if asked.sweep else None) or kept
    source = asked.source or kept_start or (start.name if start is not None else "") or None
    automatic = asked.kind == "fine-tune" and named is None and source is not None and source not in list_models()
    default = PRETRAINING if asked.kind == "pre-train" else ADAPTED if automatic else SCRATCH
    recipe = load_recipe(named or default, said)
    if asked.kind == "pre-train":
        recipe = recipe.with_changes({"model": asked.model or recipe.model or DEFAULT_MODEL})
    request = Request(asked, source, load_recipe(ADAPTED) if automatic else recipe, automatic, said, named is not None)
    views_said = tuple(change for change in said if change.lstrip().startswith(VIEWS))
    if views_said and load_recipe(named or default).augmentation is not None:
        views_said = ()
    settled = named is not None and named == kept
    several = bool(begun) or (automatic and asked.baselines and not says_one(request.told))
    request = replace(request, several=several, settled=settled, views_said=views_said, begun=begun, start=start)
    if request.from_recipe:
        network_config(recipe, ANY_CLASSES)
    elif source is not None and not request.from_name:
        _check_shape(request, recipe)
    return request


def _check_shape(request: Request, recipe: Recipe) -> None:
    """Refuse what would be passed over in silence: a shape of a network that has one."""
    if said := [key for key in SHAPE if key in request.told and getattr(recipe, key) is not None]:
        raise RecipeError(
            f"'{request.source}' is trained in its own shape, so '{said[0]}' cannot be set; leave it out, or begin from random "
            f"weights with a model's name, such as {argument('source', DEFAULT_MODEL)}."
        )
