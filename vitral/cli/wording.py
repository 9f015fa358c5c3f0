"""Messages in the terms of the command line: flags for arguments, and commands for functions."""

import ast
import shlex

from vitral.advice import Words

NEGATIVE = {"skip_bad_images": "--strict"}  # flags that say False
FLAGS = {"source": "--from", "overrides": "--set", "baselines": "--no-baselines"}  # not named like their argument


def flag(name: str) -> str:
    """Return the flag of an argument."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def command_of_function(name: str) -> str:
    """Return the command that does what a function does: `list_models` is "models", all others have the function's name."""
    return name.removeprefix("list_")


def _flags(name: str, value: object) -> str:
    if value is False and name in NEGATIVE:
        return NEGATIVE[name]
    if value is None or isinstance(value, bool):
        return flag(name)
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{flag(name)} {shlex.quote(str(each))}" for each in values)


def _command_line(text: str) -> str:
    """Return the command line of a call in Python."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    words = [str(ast.literal_eval(each)) for each in node.args]
    given = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    flags = [_flags(name, value) for name, value in given.items()]
    return " ".join(["vitral", command_of_function(node.func.attr), *map(shlex.quote, words), *flags])


WORDS = Words(argument=_flags, function=lambda name: f"'vitral {command_of_function(name)}'", call=_command_line)
