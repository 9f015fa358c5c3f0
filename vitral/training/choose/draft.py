"""A request with its recipe read: what the choices begin from."""

from dataclasses import dataclass

from vitral.advice import argument
from vitral.errors import RecipeError
from vitral.models.catalog import list_models
from vitral.tasks.task import Task
from vitral.training.plan import ChosenStart, Plan
from vitral.training.request import Request
from vitral.training.settings.recipe import ANY_CLASSES, DEFAULT_MODEL, SHAPE, Recipe, load_recipe, network_config

SWEPT = "finetune-paper"  # the recipe of a sweep that names none: the paper's own
PRETRAINING = "pretrain"  # of a pre-training that names none
SCRATCH = "scratch"  # of a fine-tuning from random weights that names none
ADAPTED = "finetune"  # with which the choice for trained weights begins
VIEWS = "augmentation"  # how the recipe's keys begin that set how images vary
# Keys of a recipe, by their beginnings: who sets one of them wants a network from scratch, or another method.
NETWORK_KEYS = ("model", *SHAPE, "head.", "experts.", "method")


@dataclass(frozen=True)
class Draft:
    """What the choices begin from.

    Attributes:
        request: What the command was given.
        source: Where the weights come from: the request's, or what was chosen; None for random weights.
        recipe: The recipe with the request's changes; where `automatic`, the one from which the choice begins, as it stands.
        automatic: Whether no recipe was named and the weights are trained ones, so that the recipe is chosen.
        recipe_named: Whether a recipe was named, which then means what it says.
        views: The request's changes of how images vary, where the recipe leaves that to the data; laid over what suits them.
        chosen: The start that was chosen, where none was named; None before that.
    """

    request: Request
    source: str | None
    recipe: Recipe
    automatic: bool
    recipe_named: bool
    views: tuple[str, ...] = ()
    chosen: ChosenStart | None = None

    @property
    def in_full(self) -> Recipe:
        """The recipe with all of the request's changes, before anything is chosen."""
        return self.recipe.changed(self.request.changes) if self.automatic else self.recipe

    @property
    def from_recipe(self) -> bool:
        """Whether the recipe names the network, which begins from random weights."""
        return self.recipe.model is not None and self.source in (None, self.recipe.model)

    @property
    def from_name(self) -> bool:
        """Whether the network begins from random weights, and was requested by its name."""
        return not self.from_recipe and self.source in list_models()

    @property
    def begins_freely(self) -> bool:
        """Whether nothing in the request means a network, so that a start may be chosen."""
        unnamed = self.source is None and self.chosen is None and not self.recipe_named
        keys = self.request.overridden
        return self.request.kind == "fine-tune" and unnamed and not any(key.startswith(NETWORK_KEYS) for key in keys)

    @property
    def needs_network(self) -> bool:
        """Whether the network is to be chosen: neither weights nor a network nor a recipe that has one were named."""
        return self.source is None and not self.from_recipe

    @property
    def size_set(self) -> bool:
        """Whether the request sets the images' size."""
        return "image_size" in self.request.overridden


def draft_of(request: Request, chosen: ChosenStart | None = None) -> Draft:
    """Return a request with its recipe, read once, every value that the request sets checked.

    `chosen` is the start that was chosen; None where one was named, or before that.

    Raises:
        RecipeError: No such recipe, an unknown key or an impossible value, or a shape of a network that comes trained.
        ModelError: The recipe names a network that cannot be made so.
    """
    changes = request.changes
    named = request.recipe or (SWEPT if request.sweep else None)
    source = request.source or (chosen.name if chosen is not None else "") or None
    automatic = request.kind == "fine-tune" and named is None and source is not None and source not in list_models()
    default = PRETRAINING if request.kind == "pre-train" else ADAPTED if automatic else SCRATCH
    recipe = load_recipe(named or default, changes)
    if request.kind == "pre-train":
        recipe = recipe.with_changes({"model": request.model or recipe.model or DEFAULT_MODEL})
    views = tuple(change for change in changes if change.lstrip().startswith(VIEWS))
    if views and load_recipe(named or default).augmentation is not None:
        views = ()
    begin = load_recipe(ADAPTED) if automatic else recipe
    draft = Draft(request, source, begin, automatic, named is not None, views, chosen)
    if draft.from_recipe:
        network_config(recipe, ANY_CLASSES)
    elif source is not None and not draft.from_name:
        _check_shape(draft, recipe)
    return draft


def _check_shape(draft: Draft, recipe: Recipe) -> None:
    """Refuse what would be passed over in silence: a shape of a network that has one."""
    overridden = draft.request.overridden
    if keys := [key for key in SHAPE if key in overridden and getattr(recipe, key) is not None]:
        raise RecipeError(
            f"'{draft.source}' is trained in its own shape, so '{keys[0]}' cannot be set; leave it out, or begin from random "
            f"weights with a model's name, such as {argument('source', DEFAULT_MODEL)}."
        )


def why_no_first(request: Request, plan: Plan, task: Task) -> str:
    """Return why a run has no first classifier before it trains; empty if it has one."""
    method = plan.recipe.method
    if request.kind != "fine-tune" or plan.exactly:
        return "a recipe was named, and what it trains is delivered"
    if not request.baselines:
        return f"no simple classifier is fitted with {argument('baselines', False)}"
    if not task.closed_form or not method.uses_labels:
        return "there is one only where every image has one class, and the network is trained on those"
    return ""
