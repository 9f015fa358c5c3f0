"""KEY=VALUE, as commands take changes of settings: a dotted key, and a value as TOML or JSON spells it, or a bare word."""

import json
import tomllib
from typing import Any

from vitral.errors import VitralError


def override(values: dict[str, Any], change: str, *, error: type[VitralError], example: str) -> None:
    """Set in a tree of values what a change says.

    Args:
        values: what is changed; sections that it lacks are made.
        change: such as "optimizer.lr=0.01", "precision=bf16", "experts.blocks=[1, 3]" or "representation_size=null".
        error: what a change that cannot be made raises.
        example: a change that the user could have meant.

    Raises:
        VitralError: of the kind `error`: there is no "=" or no key, or a value stands where the key has a section.
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


def spelled(text: str) -> Any:  # noqa: ANN401  # whatever TOML and JSON can spell
    """Return the value that a text spells in TOML or, where that has no word for it, in JSON; else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
