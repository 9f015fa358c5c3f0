"""`Recipe`: every setting of a training run, as a typed tree that is read from TOML and written back to it."""

import difflib
import functools
import operator
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import tomli_w
from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from vitral.advice import argument, function
from vitral.described import override
from vitral.errors import NEAR, ModelError, RecipeError, one_line
from vitral.images.augment import Augmentation
from vitral.models.catalog import variant
from vitral.models.families import FIELDS, configure, encoder_changes
from vitral.models.layers import Gelu
from vitral.models.position import PositionAt, PositionKind
from vitral.models.vit_config import Pooling
from vitral.paths import is_regular, nearest_path
from vitral.training.settings.headers import list_recipes, recipe_text
from vitral.training.settings.methods import MethodSettings, method_names, method_settings, older_spelling, section_of
from vitral.training.settings.schedule import ScheduleSettings
from vitral.training.settings.sections import (
    MAY_CHANGE,
    AdaptationSettings,
    AveragingSettings,
    CheckpointSettings,
    ComputeSettings,
    EvaluationSettings,
    ExpertsSettings,
    FaultSettings,
    HeadSettings,
    MixingSettings,
    ObjectiveSettings,
    OptimizerSettings,
    Precision,
    PreprocessingSettings,
    RegularizationSettings,
    Section,
    TaskName,
)

ROTARY = "rotary"  # a recipe's positions without an embedding
RENAMED = {  # since 0.2
    "bit-hyperrule-small-pictures": "bit-hyperrule-small-images",  # codespell:ignore pictures
    "bit-hyperrule-medium-pictures": "bit-hyperrule-medium-images",  # codespell:ignore pictures
}
DEFAULT_MODEL = "vit-ti16"
ANY_CLASSES = 2  # how many there are is known when the data are read
SHAPE = ("patch_size", "patch_stride", "position", "position_at", "pooling", "gelu", *FIELDS)  # of a recipe


class Recipe(Section):
    """All settings that decide what a run learns; the same recipe, data and hardware give the same weights.

    The settings from `patch_size` to `heads`, and `head`, are for networks from random weights; None means the network's own.

    Attributes:
        name: The recipe's name.
        model: The network of a run from random weights; None if the network is given otherwise.
        image_size: The side of an image, pixels; None for the network's own.
        patch_size: The side of a patch, pixels.
        patch_stride: The distance between patches, pixels; None for the patch size.
        position: The position embedding, or "rotary" for DINOv3's rotations of queries and keys in every block.
        position_at: The place where the embedding is added: "input", "layers" or "layers-shared".
        pooling: The pooling: "token", "gap" or "map".
        gelu: The form of the GELU: "tanh", "exact" or "quick".
        depth: The number of blocks of a Vision Transformer's encoder.
        width: The width of a Vision Transformer's tokens.
        mlp_width: The width inside a Vision Transformer's MLP.
        heads: The number of attention heads; None keeps the width of the network's own heads if `width` changes.
        seed: The seed of weights, order, augmentation and dropout.
        steps: The number of updates; None to follow `epochs`.
        epochs: The number of passes over the data; None to follow `steps`.
        batch_size: The number of images in an update.
        fit_to_data: Whether a small dataset shortens the batch and lengthens the run; see `fit_length`. Off in published
            recipes, which stay as their source has them.
        sampling: How often images of a class are drawn: "instance-balanced" for every image equally often, "class-balanced" for
            every class equally often, "square-root" for between the two (arXiv 1910.09217); the latter draw at random.
        workers: The number of processes that prepare images; 0 prepares in the training process.
        precision: "auto", "bf16" or "fp32".
        optimizer: The optimizer and clipping.
        schedule: The learning rate over time.
        regularization: Dropout and its like.
        task: The meaning of a label, by a task's name; None for the data's own.
        method: The method by which the network learns.
        objective: The loss of labels.
        head: The head.
        experts: The experts of a V-MoE.
        augmentation: The augmentation of images; None for what suits the data.
        preprocessing: The preprocessing of images, if it differs from the network's own.
        mixing: The mixing of images in pairs.
        adaptation: The weights that learn.
        averaging: Polyak averaging.
        checkpoint: The times of saving.
        evaluation: The times of validation.
        faults: The faults that are tolerated.
        compute: The layout of the work.
    """

    name: str = "custom"
    model: str | None = None
    image_size: int | None = Field(default=None, ge=1)
    patch_size: int | None = Field(default=None, ge=1)
    patch_stride: int | None = Field(default=None, ge=1)
    position: PositionKind | Literal["rotary"] | None = None
    position_at: PositionAt | None = None
    pooling: Pooling | None = None
    gelu: Gelu | None = None
    depth: int | None = Field(default=None, ge=1)
    width: int | None = Field(default=None, ge=1)
    mlp_width: int | None = Field(default=None, ge=1)
    heads: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    steps: int | None = Field(default=None, ge=1, json_schema_extra=MAY_CHANGE)
    epochs: float | None = Field(default=None, gt=0)
    batch_size: int = Field(default=128, ge=1)
    fit_to_data: bool = False
    sampling: Literal["instance-balanced", "square-root", "class-balanced"] = "instance-balanced"
    workers: int = Field(default=1, ge=0, json_schema_extra=MAY_CHANGE)
    precision: Precision = "auto"
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    regularization: RegularizationSettings = RegularizationSettings()
    task: TaskName | None = None
    method: SerializeAsAny[MethodSettings] = Field(default_factory=lambda: method_settings({}))
    objective: ObjectiveSettings = ObjectiveSettings()
    head: HeadSettings = HeadSettings()
    experts: ExpertsSettings = ExpertsSettings()
    augmentation: Augmentation | None = None
    preprocessing: PreprocessingSettings = PreprocessingSettings()
    mixing: MixingSettings = MixingSettings()
    adaptation: AdaptationSettings = AdaptationSettings()
    averaging: AveragingSettings = AveragingSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    faults: FaultSettings = FaultSettings()
    compute: ComputeSettings = ComputeSettings()

    @model_validator(mode="before")
    @classmethod
    def _older_spelling(cls, values: Any) -> Any:  # noqa: ANN401  # whatever is to be a recipe
        return older_spelling(values) if isinstance(values, dict) else values

    @field_validator("method", mode="before")
    @classmethod
    def _section_of_the_method(cls, values: Any) -> MethodSettings:  # noqa: ANN401
        return method_settings(values)

    @model_validator(mode="after")
    def _one_length(self) -> "Recipe":
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give steps or epochs, not both")
        return self

    @model_validator(mode="after")
    def _no_idle_settings(self) -> "Recipe":
        """Refuse settings that would be silently ignored."""
        if not self.method.mixes and (self.mixing.mixup or self.mixing.cutmix):
            raise ValueError(f"the method '{self.method.name}' does not learn from mixed images; leave mixing out")
        objective = self.objective
        if (objective.binary_targets or objective.mean_over_classes) and objective.name != "sigmoid":
            raise ValueError("binary_targets and mean_over_classes belong to the sigmoid objective")
        if objective.needs_class_images and objective.name != "softmax":
            raise ValueError("class_weights and adjustments of logits belong to the softmax objective")
        if self.adaptation.frozen_blocks and self.adaptation.method != "full":
            raise ValueError(
                f"adaptation '{self.adaptation.method}' freezes all blocks anyway; leave frozen_blocks out"
            )
        if self.adaptation.keep_frozen and not self.adaptation.frozen_blocks:
            raise ValueError("keep_frozen belongs to frozen_blocks")
        if self.schedule.milestones and self.schedule.decay != "steps":
            raise ValueError("milestones belong to the decay 'steps'")
        return self

    @property
    def learns_by_softmax(self) -> bool:
        """Whether the loss is the softmax cross-entropy of the labels; its value for a guess is known."""
        return self.method.name == "supervised" and self.objective.name == "softmax"

    @property
    def leaves(self) -> dict[str, Any]:
        """Every setting as a JSON value, by its dotted key."""
        return dict(_leaves(self.model_dump(mode="json")))

    def summary(self) -> str:
        """Return the most important settings on a single line."""
        optimizer, schedule = self.optimizer, self.schedule
        return (
            f"{optimizer.name}, learning rate {optimizer.lr:g}, weight decay {optimizer.weight_decay:g}, "
            f"{schedule.decay} decay, batch {self.batch_size}"
        )

    def changed(self, overrides: Sequence[str]) -> "Recipe":
        """Return the recipe with changes such as "optimizer.lr=0.01" applied.

        Raises:
            RecipeError: An unknown key or an impossible value.
        """
        return change_recipe(_without_none(self._explicit()), overrides, self.name)

    def with_changes(self, changes: Mapping[str, object]) -> "Recipe":
        """Return the recipe with other values, by dotted keys; they are checked as in every recipe.

        Raises:
            RecipeError: An unknown key or an impossible value.
        """
        values = self._explicit()
        for key, value in changes.items():
            *sections, leaf = key.split(".")
            functools.reduce(operator.getitem, sections, values)[leaf] = value
        return build_recipe(values, self.name)

    def _explicit(self) -> dict[str, Any]:
        """Return the tree of values without defaults that follow from the optimizer's name, so that they follow a new name."""
        values = self.model_dump(mode="json")
        for name in {"momentum", "nesterov"} - self.optimizer.model_fields_set:
            del values["optimizer"][name]
        return values

    def to_toml(self) -> str:
        """Return the recipe as TOML, without the settings that are None."""
        return tomli_w.dumps(_without_none(self.model_dump(mode="json")))


def load_recipe(source: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Return a recipe with changes applied.

    Args:
        source: The name of a recipe that comes with Vitral, or the path of a TOML file.
        overrides: Changes such as "optimizer.lr=0.01" or "precision=fp32"; values are TOML, or bare words.

    Raises:
        RecipeError: No such recipe, a file that is not TOML, an unknown key (with the nearest key) or an impossible value.
    """
    source = RENAMED.get(str(source), source)
    text = _read(source)
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOML's own error, huge numbers, and endless nesting
        raise RecipeError(f"The recipe '{source}' is not valid TOML: {one_line(error)}.") from error
    values.setdefault("name", Path(str(source)).stem)
    return change_recipe(values, overrides, str(source))


def change_recipe(values: dict[str, Any], overrides: Sequence[str], source: str) -> Recipe:
    """Return the recipe of a tree of values with changes applied; see `build_recipe`."""
    for unit, other in (("steps", "epochs"), ("epochs", "steps")):
        if any(change.startswith(f"{unit}=") for change in overrides):
            values.pop(other, None)  # the user's length replaces the recipe's, in whatever unit
    if any(change.startswith(("steps=", "epochs=", "schedule.")) for change in overrides):
        values.get("schedule", {}).pop("bends", None)  # they belong to the old length
    for change in overrides:
        _apply(values, change)
    return build_recipe(values, source)


def build_recipe(values: dict[str, Any], source: str) -> Recipe:
    """Return the recipe of a tree of values.

    Raises:
        RecipeError: An unknown key or an impossible value.
    """
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise RecipeError(_explain(error, source)) from error


def first_difference(recipe: Recipe, other: Recipe) -> str | None:
    """Return the first key, dotted, in which two recipes differ so that they would not learn the same."""
    others, free = other.leaves, may_change()
    return next((key for key, value in recipe.leaves.items() if value != others.get(key) and key not in free), None)


def may_change(section: type[Section] = Recipe, prefix: str = "") -> frozenset[str]:
    """Return the keys, dotted, of the settings that may change when a run is resumed: those marked with `MAY_CHANGE`."""
    keys: set[str] = set()
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys |= may_change(field.annotation, f"{prefix}{name}.")
        elif field.json_schema_extra == MAY_CHANGE:
            keys.add(f"{prefix}{name}")
    return frozenset(keys)


def _read(source: str | Path) -> str:
    path = Path(source)
    name = str(source)
    if is_regular(path):
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"The recipe '{path}' cannot be read: {error}.") from error
    known = list_recipes()
    if name in known:
        return recipe_text(name)
    hint = nearest_path(name, known)
    raise RecipeError(
        f"There is no recipe file and no recipe '{name}'.{hint} {function('list_recipes')} lists Vitral's recipes."
    )


def _apply(values: dict[str, Any], change: str) -> None:
    key, _, text = change.partition("=")
    if text == "none" and not _none_is_a_word(key.strip()):
        change = f"{key}=null"
    override(values, change, error=RecipeError, example="optimizer.lr=0.01")


def _none_is_a_word(key: str) -> bool:
    """Tell whether "none" is a word of a setting, such as a policy's name, or no embedding as a `position`."""
    if Recipe().leaves.get(key, "") is not None:
        return True
    field = Recipe.model_fields.get(key)
    return field is not None and any("none" in get_args(kind) for kind in get_args(field.annotation))


def _explain(error: ValidationError, source: str) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join(path)
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        if owners := _owners(key):
            names = " or ".join(f"'{name}'" for name in owners)
            return (
                f"'{key}' belongs to the method {names}, and the recipe '{source}' has another; name it, as with "
                f"{argument('overrides', [f'method.name={owners[0]}'])}."
            )
        below = [leaf for leaf, _ in _leaves(first["input"])] if isinstance(first["input"], dict) else []
        return f"The recipe '{source}' has an unknown key '{key}'.{_nearest_key('.'.join([key, *below[:1]]))}"
    inside = [name for name in _known_keys() if name.startswith(f"{key}.")]
    if inside and not isinstance(first["input"], dict | Section):
        return f"'{key}' is a section of a recipe, not a value; set one of its keys: {', '.join(inside)}."
    if first["type"] == "missing":
        return f"The recipe '{source}' lacks '{key}'; set it."
    message = first["msg"].removeprefix("Value error, ")
    given = "" if isinstance(first["input"], dict) else f" ({first['input']!r:.60})"
    return f"The recipe '{source}' has an impossible '{key or 'length'}'{given}: {message}."


def _owners(key: str) -> list[str]:
    """Return the methods that a key of the section `method` is a setting of."""
    section, _, name = key.partition(".")
    return [method for method in method_names() if section == "method" and name in section_of(method).model_fields]


def _known_keys() -> list[str]:
    """Return every key of a recipe, dotted."""
    recipe = [key for key in Recipe().leaves if key != "augmentation"]
    methods = {f"method.{name}" for section in map(section_of, method_names()) for name in section.model_fields}
    augmentation = {f"augmentation.{name}" for name in Augmentation.__dataclass_fields__}
    return [*recipe, *sorted({*methods, *augmentation} - {*recipe})]


def _nearest_key(key: str) -> str:
    """Return `` Did you mean 'optimizer.lr'?`` for an unknown key: whole keys, so that users can type the hint as it is."""
    known = _known_keys()
    leaf = key.rpartition(".")[2]
    spelled = {name: [name] for name in known} | {name.partition(".")[0]: [name.partition(".")[0]] for name in known}
    for last in {name.rpartition(".")[2] for name in known}:  # keys of several sections may end alike
        spelled[last] = [name for name in known if name.rpartition(".")[2] == last]
    nearest = [leaf] if leaf in spelled else []
    for tried in (key, leaf):
        nearest = nearest or difflib.get_close_matches(tried, sorted(spelled), n=1, cutoff=NEAR)
    return f" Did you mean {' or '.join(repr(name) for name in spelled[nearest[0]])}?" if nearest else ""


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _without_none(tree: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in tree.items()
        if value is not None
    }


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
    if missing := [key for key in changes if not hasattr(variant(name), key)]:
        unset = argument("overrides", [f"{missing[0]}=none"])
        raise ModelError(f"{name} has no '{missing[0]}' to set; leave it out, or take back the recipe's with {unset}.")
    return changes | encoder_changes(name, encoder)


def routing(recipe: Recipe) -> dict[str, float]:
    """Return what a recipe changes of how a network's experts work, by the names that `ExpertsConfig` has for it."""
    return recipe.experts.model_dump(exclude={"number", "upcycle"}, exclude_none=True)
