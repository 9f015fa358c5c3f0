"""Configs as JSON values: written, read back, and changed by what a user or a file says."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vitral.described import read_described, short
from vitral.errors import ModelError, did_you_mean
from vitral.models.families import FAMILIES, family, replace
from vitral.models.model import ModelConfig

REPEATED = ("depth", "depths", "stages", "blocks")  # how often a part of the network is repeated
MOST_LAYERS = 1000  # repetitions, as a number; a damaged description may say anything
MOST_FACTOR = 16.0  # repetitions, as a factor
PAIRS = ("image_size", "patch_size", "patch_stride")  # (height, width), or one number for both


def changed(config: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return a config with fields changed by JSON values, those of its parts (a stem, experts) each on their own.

    Raises:
        ModelError: There is no such field, or the values do not go together.
    """
    fields: dict[str, Any] = {}
    for name, value in changes.items():
        part = getattr(config, name, None)
        if isinstance(value, Mapping):
            if not dataclasses.is_dataclass(part):
                raise ModelError(f"This network has no {name} to change.")
            fields[name] = _changed_part(part, name, value)
        else:
            fields[name] = (value, value) if name in PAIRS and isinstance(value, int) else _tuple(value)
    try:
        return replace(config, **fields)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        listed = ", ".join(f"{name}={value!r}" for name, value in changes.items())
        raise ModelError(f"The architecture cannot be built with {listed}: {error}.") from error


def _changed_part(part: Any, name: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a stem or experts
    known = {field.name for field in dataclasses.fields(part)}
    for field in values:
        if field not in known:
            raise ModelError(f"'{name}' has no setting '{field}'.{did_you_mean(field, known)}")
    return dataclasses.replace(part, **{key: _tuple(value) for key, value in values.items()})


def _tuple(value: Any) -> Any:  # noqa: ANN401  # JSON values of any type
    return tuple(value) if isinstance(value, list) else value


def config_to_json(config: ModelConfig) -> dict[str, Any]:
    """Return a config as JSON values, the family's name included."""
    return {"family": family(config), **dataclasses.asdict(config)}


def config_from_json(values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return the config that `config_to_json` wrote.

    Raises:
        ModelError: An unknown family, an unknown or missing field, or an impossible value.
    """
    named = dict(values) if isinstance(values, Mapping) else {}
    name = named.pop("family", None)
    if not isinstance(name, str) or name not in FAMILIES:
        raise ModelError(f"The architecture family {name!r} is not known to this version.")
    _check_counts(named)
    try:
        return read_described(FAMILIES[name].config, named, "The architecture", ModelError)
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"The architecture cannot be built: {error}.") from error


def _check_counts(values: Mapping[str, Any]) -> None:
    for part in (values, *(value for value in values.values() if isinstance(value, Mapping))):
        for name in part.keys() & set(REPEATED):
            counts = part[name] if isinstance(part[name], list | tuple) else [part[name]]
            if any(map(_is_beyond, counts)):
                raise ModelError(f"The architecture's '{name}' of {short(part[name])} is more than any network has.")


def _is_beyond(count: Any) -> bool:  # noqa: ANN401  # a JSON value
    if not isinstance(count, int | float):
        return False  # refused for its type
    return count > (MOST_LAYERS if isinstance(count, int) else MOST_FACTOR)
