"""Messages in the terms of the command line: flags for arguments, and commands for functions."""

import ast
import shlex

from vitral.advice import Words

FLAGS = {"source": "--from", "overrides": "--set", "baselines": "--no-baselines"}  # not named like their argument
_NAMED = """
baselines budget classes classifier data data_changed engine head image_size label layer loss method model offline out overrides
overwrite precision quick recipe resume runs seed skip_bad_images source split starts sweep teacher time transfer write
"""
ARGUMENTS = frozenset(_NAMED.split())
_ALIKE = "calibrate check compare distill evaluate explain finetune predict pretrain quantize study tune"
COMMANDS = {name: name for name in _ALIKE.split()} | {"list_models": "models", "list_recipes": "recipes"}


def flag(name: str) -> str:
    """Return the flag of an argument."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def _flags(name: str, value: object) -> str:
    if value is None or isinstance(value, bool):
        return flag(name)
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{flag(name)} {shlex.quote(str(each))}" for each in values)


def _command_line(text: str) -> str:
    """Return the command line of a call in Python; its last argument by position, if any, is the data, after a study's name."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    words = [str(ast.literal_eval(each)) for each in node.args]
    data = {"data": words.pop()} if words else {}
    given = data | {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    flags = [_flags(name, value) for name, value in given.items()]
    return " ".join(["vitral", COMMANDS[node.func.attr], *map(shlex.quote, words), *flags])


WORDS = Words(argument=_flags, function=lambda name: f"'vitral {COMMANDS[name]}'", call=_command_line)
