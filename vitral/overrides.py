"""KEY=VALUE, the form of changed settings: a dotted key, and a value in TOML or JSON, or a bare word."""

import json
import tomllib
from typing import Any

from vitral.errors import VitralError


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
