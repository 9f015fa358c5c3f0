"""Dataclasses from the JSON values that describe them, each checked against its field's type, because no file is trusted.

And KEY=VALUE, the form of changed settings: a dotted key, and a value in TOML or JSON, or a bare word.
"""

import dataclasses
import json
import math
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from vitral.errors import VitralError, did_you_mean
from vitral.files import text_of

MOST = 1 << 31  # any integer is below this: a size, a count or a width
SHOWN = 60  # characters of a value in a message
# Marks a field that files of earlier versions may lack; its default is the behaviour of those versions.
LATER = {"later": True}

Described = TypeVar("Described")


def override(values: dict[str, Any], change: str, *, error: type[VitralError], example: str) -> None:
    """Apply a change to a tree of values.

    Args:
        values: The tree; missing sections are created.
        change: The change, such as "optimizer.lr=0.01", "precision=bf16", "experts.blocks=[1, 3]" or
            "representation_size=null".
        error: The type of error to raise for an invalid change.
        example: A change that the user could have meant, for the message.

    Raises:
        VitralError: An error of that type: there is no "=" or no key, or a section of the key is a value.
    """
    key, sign, text = change.partition("=")
    *sections, leaf = key.strip().split(".")
    if not sign or not leaf:
        raise error(f"'{change}' changes no setting; write KEY=VALUE, such as {example}.")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise error(f"'{key.strip()}' names no setting: '{section}' is a value, not a section.")
    values[leaf] = spelled(text)


def spelled(text: str) -> Any:  # noqa: ANN401  # any TOML or JSON value
    """Return a text's value in TOML or, if it is not TOML, in JSON; otherwise the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_described(
    kind: type[Described], values: object, what: str, error: type[VitralError] = VitralError
) -> Described:
    """Return the dataclass that JSON values describe; dataclasses among its fields are read in the same way.

    Args:
        kind: The dataclass. A field with the metadata `LATER` may be missing.
        values: The values by the fields' names; lists become tuples.
        what: The dataclass' name in messages, such as "The architecture".
        error: The type of error to raise.

    Raises:
        VitralError: An error of that type: not a mapping, an unknown or missing field, or a value of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise error(f"{what} is described by its fields, not by {short(values)}.")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise error(f"{what} has an unknown field {short(name)}.{did_you_mean(str(name), fields)}")
    required = [name for name, field in fields.items() if not field.metadata.get("later")]
    if missing := sorted(set(required) - values.keys()):
        raise error(f"{what} lacks the field '{missing[0]}'.")
    hints = get_type_hints(kind)
    return kind(**{name: _field(name, hints[name], value, what, error) for name, value in values.items()})


class Kept:
    """A dataclass that a classifier's folder may keep, as JSON values by the fields' names."""

    called: ClassVar[str]  # in messages

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]  # it is a dataclass

    @classmethod
    def from_json(cls, values: object) -> Self | None:
        """Return what `to_json` gave; None for a folder that says nothing of it, as those of earlier versions.

        Raises:
            VitralError: It is not of this form.
        """
        return None if values is None else read_described(cls, values, cls.called)


def mapping(value: object) -> dict[str, Any]:
    """Return a value of unknown origin where it is an object of JSON; else an empty one."""
    return value if isinstance(value, dict) else {}


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty object if the file is missing or damaged."""
    try:
        values = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return mapping(values)


def read_kept(kind: type[Described], path: Path) -> Described | None:
    """Return the dataclass that a file describes; None if the file is missing or damaged."""
    try:
        return read_described(kind, read_object(path), path.name)
    except VitralError:
        return None


def _field(name: str, hint: Any, value: Any, what: str, error: type[VitralError]) -> Any:  # noqa: ANN401  # JSON values
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    parts = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    if parts and isinstance(value, Mapping):
        fitting = (part for part in parts if value.keys() <= {field.name for field in dataclasses.fields(part)})
        return read_described(next(fitting, parts[0]), value, what, error)  # type: ignore[arg-type]
    plain = not parts
    if not (fits(hint, value) if plain else value is None and type(None) in kinds):
        raise error(f"{what}'s '{name}' cannot be {short(value)}.")
    return tuple(value) if isinstance(value, list) else value


def short(value: Any) -> str:  # noqa: ANN401  # a JSON value
    """Return a value shortened for a message."""
    text = repr(value)
    return text if len(text) < SHOWN else f"{text[:SHOWN]}…"


def fits(hint: Any, value: Any) -> bool:  # noqa: ANN401  # a type, and a JSON value
    """Tell whether a JSON value, its lists as lists or tuples, has a type.

    Numbers must be finite, integers below 2**31 in magnitude; an integer is a float too, and a boolean is neither.
    Text must be encodable in UTF-8. An unknown class is left to its own checks.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(argument, value) for argument in arguments)
    if origin is Literal:
        return any(value == known and type(value) is type(known) for known in arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(arguments[0], key) and fits(arguments[1], entry) for key, entry in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _is_sequence(arguments, value)
    return _is_plain(hint, value)


def _is_sequence(arguments: tuple[Any, ...], value: Any) -> bool:  # noqa: ANN401  # types, and a JSON value
    if not isinstance(value, list | tuple):
        return False
    if len(arguments) == 1 or arguments[-1] is Ellipsis:
        return all(fits(arguments[0], entry) for entry in value)
    return len(value) == len(arguments) and all(map(fits, arguments, value))


def _is_plain(hint: Any, value: Any) -> bool:  # noqa: ANN401  # a type, and a JSON value
    if hint is None or hint is type(None):
        return value is None
    if hint is bool:
        return isinstance(value, bool)
    if hint is str:
        return isinstance(value, str) and is_text(value)
    if hint in (int, float):
        known = isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
        return known and (abs(value) < MOST if isinstance(value, int) else math.isfinite(value))
    return True


def is_text(value: str) -> bool:
    """Tell whether a string can be encoded in UTF-8: JSON may contain unpaired surrogates, which cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)
