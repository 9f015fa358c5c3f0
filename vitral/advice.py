"""Advice in messages, written as in Python, so that a front end can translate it into its own terms.

A message written below the command line says "resume it by `resume=True`, or choose another `out`", and names a function
as `evaluate()`. That is what a user of Python types; `respelled` finds these names, and only the command line knows
their flags and commands.
"""

import ast
import re
from collections.abc import Callable

# The two forms in backticks: a name with or without a value, and a name with empty brackets.
NAMED = re.compile(r"`(?P<name>[a-z][a-z_]*)(?:(?P<call>\(\))|=(?P<value>[^`]*))?`")


def argument(name: str, value: object = None) -> str:
    """Return an argument as messages name it, with a proposed value if there is one."""
    if value is None:
        return f"`{name}`"
    literal = repr(value).replace("`", r"\x60")
    return f"`{name}={literal}`"


def function(name: str) -> str:
    """Return a function as messages name it."""
    return f"`{name}()`"


def respelled(
    text: str, *, argument: Callable[[str, object], str | None], function: Callable[[str], str | None]
) -> str:
    """Return a message with its arguments and functions translated.

    Args:
        text: the message.
        argument: translates an argument and its proposed value, or None; returns None if it has no translation.
        function: translates a function; returns None if it has no translation.
    """

    def reword(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        try:
            words = (
                function(name) if match["call"] else argument(name, None if value is None else ast.literal_eval(value))
            )
        except (ValueError, SyntaxError):  # not an argument of ours
            words = None
        return match[0] if words is None else words

    return NAMED.sub(reword, text)
