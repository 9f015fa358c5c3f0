"""Which plugins a classifier cannot do without: its folder says so, and is refused where they were not loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitral import plugins
from vitral.errors import PluginError

KEY = "plugins"


def required_plugins(network: str, task: str) -> dict[str, Any]:
    """Return the entry of a classifier's description that names the plugins it needs; nothing if it needs none.

    Args:
        network: the family of its network.
        task: its task's name.
    """
    parts: tuple[tuple[plugins.Kind, str], ...] = (("network", network), ("task", task))
    needed = [
        {"file": plugin.path.name, "sha256": plugin.digest, "kind": kind, "name": name}
        for kind, name in parts
        if (plugin := plugins.origin(kind, name)) is not None
    ]
    return {KEY: needed} if needed else {}


def check_plugins(description: Mapping[str, Any], path: Path) -> None:
    """Refuse a classifier whose plugins were not loaded; none is ever imported because a folder names it.

    Raises:
        PluginError: the first that is missing, by its file's name.
    """
    listed = description.get(KEY, ())
    for need in listed if isinstance(listed, list) else ():
        kind, name, file = (need.get(key) if isinstance(need, Mapping) else None for key in ("kind", "name", "file"))
        if kind in plugins.KINDS and name not in plugins.registered(kind):
            raise PluginError(
                f"'{path}' needs the plugin '{file}' for its {kind} '{name}': load that first, if you trust the file."
            )
