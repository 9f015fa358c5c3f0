"""The section of a recipe that says how a network learns: each method has its own, told apart by its name."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from vitral import plugins
from vitral.errors import PluginError, did_you_mean
from vitral.training.settings.sections import Section


class MethodSettings(Section):
    """What can be set of a method; a method from elsewhere derives its own section from this one, with a name of its own.

    Attributes:
        name: of the method.
    """

    uses_labels: ClassVar[bool] = True  # otherwise there are none to mix

    name: str


class SupervisedSettings(MethodSettings):
    """Learn the labels by the loss of the section `objective`."""

    name: Literal["supervised"] = "supervised"


class MaskedPatchesSettings(MethodSettings):
    """Learn the colours of hidden patches (paper appendix B.1.2), which needs no labels.

    Attributes:
        share: of the patches that are hidden.
    """

    uses_labels = False

    name: Literal["masked-patches"] = "masked-patches"
    share: float = Field(default=0.5, gt=0, lt=1)


SECTIONS: dict[str, type[MethodSettings]] = {
    "supervised": SupervisedSettings,
    "masked-patches": MaskedPatchesSettings,
}


def _add(name: str, thing: object) -> None:
    """Add the section of a plugin's method."""
    section = getattr(thing, "Settings", None)
    if not (isinstance(section, type) and issubclass(section, MethodSettings)):
        raise PluginError(f"The method '{name}' must have its section of a recipe, a MethodSettings, as `Settings`.")
    if section.model_fields["name"].default != name or name in SECTIONS:
        raise PluginError(f"The method '{name}' must be called so in its section, and no other may be.")
    SECTIONS[name] = section


plugins.subscribe("method", _add)


def method_settings(values: Any) -> MethodSettings:  # noqa: ANN401  # whatever a recipe holds there
    """Return the section that a tree of values stands for; supervised learning where no name is given.

    Raises:
        ValueError: no such method, or what it refuses.
    """
    if isinstance(values, MethodSettings):
        return values
    if not isinstance(values, dict):
        raise ValueError("it is a section, not a value; set method.name")
    name = str(values.get("name", "supervised"))
    if name not in SECTIONS:
        raise ValueError(f"there is no method '{name}', only {', '.join(SECTIONS)}{did_you_mean(name, SECTIONS)}")
    return SECTIONS[name].model_validate(values)


def older_spelling(values: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe's values with a method that is spelled as an objective, as earlier versions did, in its own section."""
    objective = values.get("objective")
    if not isinstance(objective, dict) or not {"masked_share"} & objective.keys() and objective.get("name") != MASKED:
        return values
    kept = {key: value for key, value in objective.items() if key != "masked_share"}
    if kept.get("name") != MASKED:
        return values | {"objective": kept}  # a share that meant nothing
    share = {"share": objective["masked_share"]} if "masked_share" in objective else {}
    del kept["name"]
    return values | {"objective": kept, "method": {"name": MASKED, **share}}


MASKED = "masked-patches"
