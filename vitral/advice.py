"""What to do about something, named in a message as Python spells it, so that a front end can say it in its own words.

A message written below the command line says "go on with it by `resume=True`, or choose another `out`", and names a
function as `evaluate()`. That is what a user of Python types; `respelled` finds the names again, and the command line
alone knows which flags and commands they are.
"""

import ast
import re
from collections.abc import Callable

# Two words in backticks that can be told from all else: a name with or without a value, and a name with empty brackets.
NAMED = re.compile(r"`(?P<name>[a-z][a-z_]*)(?:(?P<call>\(\))|=(?P<value>[^`]*))?`")


def argument(name: str, value: object = None) -> str:
    """Return an argument as a message names it, with a value where one is proposed."""
    if value is None:
        return f"`{name}`"
    literal = repr(value).replace("`", r"\x60")
    return f"`{name}={literal}`"


def function(name: str) -> str:
    """Return a function as a message names it."""
    return f"`{name}()`"


def respelled(
    text: str, *, argument: Callable[[str, object], str | None], function: Callable[[str], str | None]
) -> str:
    """Return a message with its arguments and functions in other words.

    Args:
        text: the message.
        argument: gives the words for an argument and its value, None where none is proposed; None if there are none.
        function: gives the words for a function; None if there are none.
    """

    def reword(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        try:
            words = (
                function(name) if match["call"] else argument(name, None if value is None else ast.literal_eval(value))
            )
        except (ValueError, SyntaxError):  # no argument of ours
            words = None
        return match[0] if words is None else words

    return NAMED.sub(reword, text)
