"""The section of a recipe for the method by which a network learns; each method has its own section."""

import importlib
from typing import Any, ClassVar

from vitral import plugins
from vitral.errors import PluginError, did_you_mean
from vitral.training.settings.sections import Section

MASKED = "masked-patches"
# The classes of Vitral's methods by name. A class and its settings are in the module of that name in `vitral.training.methods`,
# which is imported when a recipe names the method.
METHODS = {
    "supervised": "Supervised",
    MASKED: "MaskedPatches",
    "procedural": "Procedural",
    "distillation": "Distillation",
    "feature-distillation": "FeatureDistillation",
    "noisy-student": "NoisyStudent",
    "meta-pseudo-labels": "MetaPseudoLabels",
    "semantic-softmax": "SemanticSoftmax",
    "masked-autoencoder": "Rebuilding",
    "lejepa": "LeJepa",
    "mask-queries": "MaskQueries",
}


class MethodSettings(Section):
    """The settings of a method; each method derives its section of the recipe from this class, with a name of its own.

    Attributes:
        name: The method's name.
    """

    uses_labels: ClassVar[bool] = True
    mixes: ClassVar[bool] = True  # whether it can learn from images that are mixed
    learns_regions: ClassVar[bool] = False  # whether it can learn what is marked in images

    name: str


def _check_section(name: str, thing: object) -> None:
    """Refuse a plugin's method that has no section of its own."""
    section = getattr(thing, "Settings", None)
    if not (isinstance(section, type) and issubclass(section, MethodSettings)):
        raise PluginError(f"The method '{name}' must have its section of a recipe, a MethodSettings, as `Settings`.")
    if section.model_fields["name"].default != name or name in METHODS:
        raise PluginError(f"The method '{name}' must be called so in its section, and no other may be.")


plugins.subscribe("method", _check_section)


def method_names() -> tuple[str, ...]:
    """Return the names of all methods: Vitral's, then those of plugins."""
    return (*METHODS, *plugins.registered("method"))


def method_class(name: str) -> Any:  # noqa: ANN401  # a `Method`, which settings must not import
    """Return the class of a method."""
    if name not in METHODS:
        return plugins.registered("method")[name]
    return getattr(importlib.import_module(f"vitral.training.methods.{name.replace('-', '_')}"), METHODS[name])


def section_of(name: str) -> type[MethodSettings]:
    """Return the class of a method's section."""
    section: type[MethodSettings] = method_class(name).Settings
    return section


def method_settings(values: Any) -> MethodSettings:  # noqa: ANN401  # whatever a recipe holds there
    """Return the section that a tree of values stands for; supervised learning if they give no name.

    Raises:
        ValueError: There is no such method, or it refuses a value.
    """
    if isinstance(values, MethodSettings):
        return values
    if not isinstance(values, dict):
        raise ValueError("it is a section, not a value; set method.name")
    name, known = str(values.get("name", "supervised")), method_names()
    if name not in known:
        raise ValueError(f"there is no method '{name}', only {', '.join(known)}{did_you_mean(name, known)}")
    return section_of(name).model_validate(values)


def older_spelling(values: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe's values; a method that is spelled as an objective, as in earlier versions, moves to its own section."""
    objective = values.get("objective")
    if not isinstance(objective, dict) or not {"masked_share"} & objective.keys() and objective.get("name") != MASKED:
        return values
    rest = {key: value for key, value in objective.items() if key != "masked_share"}
    if rest.get("name") != MASKED:
        return values | {"objective": rest}  # a share that meant nothing
    share = {"share": objective["masked_share"]} if "masked_share" in objective else {}
    del rest["name"]
    return values | {"objective": rest, "method": {"name": MASKED, **share}}
