"""Configs as JSON values: written, read back, and changed by what a user or a file says."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from vitral.described import fits
from vitral.errors import ModelError, did_you_mean
from vitral.models.families import FAMILIES, family, replace
from vitral.models.model import ModelConfig

REPEATED = ("depth", "depths", "stages", "blocks")  # how often a part of the network is made
MOST_LAYERS, MOST_FACTOR = 1000, 16.0  # of those, a number and a factor; a damaged description may say anything
SHOWN = 60  # letters of a value that a message repeats
PAIRS = ("image_size", "patch_size", "patch_stride")  # (height, width), or one number for both


def changed(config: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return a config with fields changed by JSON values, those of its parts (a stem, experts) each on their own.

    Raises:
        ModelError: there is no such field, or the values do not go together.
    """
    made: dict[str, Any] = {}
    for name, value in changes.items():
        part = getattr(config, name, None)
        if isinstance(value, Mapping):
            if not dataclasses.is_dataclass(part):
                raise ModelError(f"This network has no {name} to change.")
            made[name] = _changed_part(part, name, value)
        else:
            made[name] = (value, value) if name in PAIRS and isinstance(value, int) else _tuple(value)
    try:
        return replace(config, **made)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        listed = ", ".join(f"{name}={value!r}" for name, value in changes.items())
        raise ModelError(f"The architecture cannot be built with {listed}: {error}.") from error


def _changed_part(part: Any, name: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a stem or experts
    known = {field.name for field in dataclasses.fields(part)}
    for field in values:
        if field not in known:
            raise ModelError(f"'{name}' has no setting '{field}'.{did_you_mean(field, known)}")
    return dataclasses.replace(
        part, **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )


def _tuple(value: Any) -> Any:  # noqa: ANN401  # JSON values of any type
    return tuple(value) if isinstance(value, list) else value


def config_to_json(config: ModelConfig) -> dict[str, Any]:
    """Return a config as JSON values, the family's name included."""
    return {"family": family(config), **dataclasses.asdict(config)}


def config_from_json(values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return the config that `config_to_json` wrote.

    Raises:
        ModelError: an unknown family, an unknown or missing field, or an impossible value.
    """
    named = dict(values) if isinstance(values, Mapping) else {}
    name = named.pop("family", None)
    if not isinstance(name, str) or name not in FAMILIES:
        raise ModelError(f"The architecture family {name!r} is not known to this version.")
    try:
        return _from_json(FAMILIES[name].config, named)
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"The architecture cannot be built: {error}.") from error


def _from_json(kind: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a config or a part of one
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in values:
        if name not in fields:
            raise ModelError(f"The architecture has an unknown field '{name}'.{did_you_mean(name, fields)}")
    required = [name for name, field in fields.items() if not field.metadata.get("later")]
    if missing := sorted(set(required) - values.keys()):
        raise ModelError(f"The architecture lacks the field '{missing[0]}'.")
    hints = get_type_hints(kind)
    return kind(**{name: _value(name, hints[name], value) for name, value in values.items()})


def _value(name: str, hint: Any, value: Any) -> Any:  # noqa: ANN401  # JSON values of any type
    parts = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    part = next((part for part in parts if dataclasses.is_dataclass(part)), None)
    if part is not None and isinstance(value, Mapping):
        return _from_json(part, value)
    plain = all(not dataclasses.is_dataclass(part) for part in parts)
    if not (fits(hint, value) if plain else value is None and type(None) in parts):
        raise ModelError(f"The architecture's '{name}' cannot be {_short(value)}.")
    counts = value if isinstance(value, list | tuple) else [value]
    if name in REPEATED and any(count > (MOST_LAYERS if isinstance(count, int) else MOST_FACTOR) for count in counts):
        raise ModelError(f"The architecture's '{name}' of {_short(value)} is more than any network has.")
    return _tuple(value)


def _short(value: Any) -> str:  # noqa: ANN401  # JSON values of any type
    text = repr(value)
    return text if len(text) < SHOWN else f"{text[:SHOWN]}…"
