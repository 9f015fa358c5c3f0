"""Messages in the terms of the command line: flags for arguments, and commands for functions."""

import shlex

from vitral.advice import respelled

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


def spoken(text: str) -> str:
    """Return a message with flags and commands instead of arguments and functions."""
    return respelled(text, argument=_flags, function=_command, call=_command_line)


def _flags(name: str, value: object) -> str | None:
    if name not in ARGUMENTS:
        return None
    if value is None or isinstance(value, bool):
        return flag(name)
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{flag(name)} {shlex.quote(str(each))}" for each in values)


def _command(name: str) -> str | None:
    return f"'vitral {COMMANDS[name]}'" if name in COMMANDS else None


def _command_line(name: str, positional: list[object], named: dict[str, object]) -> str | None:
    """Return the command line of a call; its last argument by position, if it has one, is the data, after a study's name."""
    words, data = positional[:-1], positional[-1:]
    given = {**({"data": data[0]} if data else {}), **named}
    flags = [_flags(each, value) for each, value in given.items()]
    if name not in COMMANDS or len(words) != (name == "study") or None in flags:
        return None
    return " ".join(["vitral", COMMANDS[name], *(shlex.quote(str(word)) for word in words), *filter(None, flags)])
