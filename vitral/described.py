"""Whether a value from a JSON file has the type of a dataclass's field: no file is trusted."""

import math
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

MOST = 1 << 31  # any integer is below this: a size, a count or a width


def fits(hint: Any, value: Any) -> bool:  # noqa: ANN401  # a type, and a JSON value
    """Tell whether a JSON value, its lists as lists or tuples, has a type.

    Numbers must be finite, integers below 2**31 in magnitude; an integer is a float too, and a boolean is neither.
    Text must be encodable in UTF-8. A class that is not known here is left to its own checks.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(one, value) for one in arguments)
    if origin is Literal:
        return any(value == known and type(value) is type(known) for known in arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(arguments[0], key) and fits(arguments[1], one) for key, one in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _is_sequence(arguments, value)
    return _is_plain(hint, value)


def _is_sequence(arguments: tuple[Any, ...], value: Any) -> bool:  # noqa: ANN401  # types, and a JSON value
    if not isinstance(value, list | tuple):
        return False
    if len(arguments) == 1 or arguments[-1] is Ellipsis:
        return all(fits(arguments[0], one) for one in value)
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
