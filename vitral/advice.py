"""Advice in messages, written as in Python, so that a front end can translate it into its own terms.

A message written below the command line reads "resume it by `resume=True`, or choose another `out`". It names a function as
`evaluate()`, and a whole call as `vitral.finetune('photos', time='8h')`. A user of Python types these as they are; `respelled`
finds them, and only the command line knows their flags and commands.
"""

import ast
import re
from collections.abc import Callable

# The forms in backticks: a name with or without a value, a name with empty brackets, and a call of ours with its arguments.
NAMED = re.compile(
    r"`(?:vitral\.(?P<called>[a-z_]+)\((?P<given>[^`]*)\)|(?P<name>[a-z][a-z_]*)(?:(?P<call>\(\))|=(?P<value>[^`]*))?)`"
)
BACKTICK = r"\x60"  # inside a literal


def argument(name: str, value: object = None) -> str:
    """Return an argument as messages name it, with a proposed value if there is one."""
    if value is None:
        return f"`{name}`"
    return f"`{name}={repr(value).replace('`', BACKTICK)}`"


def function(name: str) -> str:
    """Return a function as messages name it."""
    return f"`{name}()`"


def call(text: str) -> str:
    """Return a call as messages name it, from its text in Python."""
    return f"`{text.replace('`', BACKTICK)}`"


def respelled(
    text: str,
    *,
    argument: Callable[[str, object], str | None],
    function: Callable[[str], str | None],
    call: Callable[[str, list[object], dict[str, object]], str | None],
) -> str:
    """Return a message with its arguments, functions and calls translated.

    Args:
        text: The message.
        argument: A function that translates an argument and its proposed value, or None; it returns None if it cannot.
        function: A function that translates a function's name; it returns None if it cannot.
        call: A function that translates a function with its arguments, by position and by name; it returns None if it cannot.
    """

    def reword(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        try:
            if match["called"]:
                words = call(match["called"], *_arguments(match["given"]))
            elif match["call"]:
                words = function(name)
            else:
                words = argument(name, None if value is None else ast.literal_eval(value))
        except (ValueError, SyntaxError):  # not an argument of ours
            words = None
        return match[0] if words is None else words

    return NAMED.sub(reword, text)


def _arguments(given: str) -> tuple[list[object], dict[str, object]]:
    """Return the literals between a call's brackets, by position and by name.

    Raises:
        ValueError, SyntaxError: The text is something else.
    """
    node = ast.parse(f"call({given})", mode="eval").body
    if not isinstance(node, ast.Call):
        raise ValueError(given)
    named = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    return [ast.literal_eval(each) for each in node.args], named
