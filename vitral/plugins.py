"""Plugins: networks, methods, tasks, data sources, augmentations and optimizers from a user's own file.

A plugin is a Python file that calls `register`. The rooms that find a kind of thing by name look here for registered things.
Nothing is imported because a folder or a checkpoint names it: the user names the plugins, and without them gets an error.
"""

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal, get_args

from vitral.errors import PluginError, one_line, refuse_shortage
from vitral.paths import refuse_endless

Kind = Literal["network", "method", "task", "data", "augmentation", "optimizer"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin: its file, the SHA-256 of its content, and kind and name of each thing that it registered."""

    path: Path
    digest: str
    registered: tuple[tuple[Kind, str], ...]


_things: dict[Kind, dict[str, Any]] = {kind: {} for kind in KINDS}
_listeners: dict[Kind, list[Callable[[str, Any], None]]] = {kind: [] for kind in KINDS}
_loaded: dict[Path, Plugin] = {}
_noted: ContextVar[list[tuple[Kind, str]] | None] = ContextVar("noted", default=None)


def register(kind: Kind, name: str, thing: Any, /) -> None:  # noqa: ANN401  # a class or a function, by kind
    """Register a thing under a name, for recipes and commands.

    Args:
        kind: The kind of thing. "network": a pair of a `vitral.models.model.Model` class and the config of the named variant.
            "method": a subclass of `vitral.training.methods.method.Method`. "task": an instance of a class of
            `vitral.tasks`. "data": a function from the text after "NAME:" in the data's name to a `DataSet`.
            "augmentation": a function from an image, uint8 (height, width, 3), and a NumPy generator to an image of the same
            shape, for a policy in the recipe. "optimizer": a function from parameter groups and the recipe's
            `OptimizerSettings` to a torch optimizer.
        name: The name, which must be free.
        thing: The thing, as `kind` describes it.

    Raises:
        PluginError: There is no such kind, or the name is taken.
    """
    if kind not in KINDS:
        raise PluginError(f"'{kind}' cannot be registered; the kinds are {', '.join(KINDS)}.")
    if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise PluginError(f"A {kind} cannot be called {name!r}: use letters, digits, hyphens, underscores and dots.")
    if name in _things[kind]:
        raise PluginError(f"Another {kind} is registered as '{name}' already; choose another name.")
    for listener in _listeners[kind]:
        listener(name, thing)
    _things[kind][name] = thing
    if (noted := _noted.get()) is not None:
        noted.append((kind, name))


def registered(kind: Kind) -> Mapping[str, Any]:
    """Return the registered things of a kind, by name."""
    return MappingProxyType(_things[kind])


def subscribe(kind: Kind, listener: Callable[[str, Any], None]) -> None:
    """Call a function with name and thing for everything of a kind, beginning with what is registered already.

    The function raises a `PluginError` for a thing that cannot be used.
    """
    for name, thing in _things[kind].items():
        listener(name, thing)
    _listeners[kind].append(listener)


def load_plugin(path: str | Path) -> Plugin:
    """Run a plugin's file, once in a process.

    Raises:
        PluginError: The file cannot be read, fails, or registers nothing.
    """
    file = Path(path).resolve()
    if file in _loaded:
        return _loaded[file]
    refuse_endless(file, PluginError)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PluginError(f"The plugin '{path}' cannot be read: {error.strerror}.") from error
    noted: list[tuple[Kind, str]] = []
    token = _noted.set(noted)
    try:
        _run(file)
    except (PluginError, KeyboardInterrupt):
        raise
    except BaseException as error:  # it may call sys.exit, too
        refuse_shortage(error, f"to load the plugin '{path}'")
        raise PluginError(
            f"The plugin '{path}' fails: {type(error).__name__}: {one_line(error)}{_line(error, file)}."
        ) from error
    finally:
        _noted.reset(token)
    if not noted:
        raise PluginError(f"The plugin '{path}' registers nothing; let it call vitral.register(kind, name, thing).")
    plugin = Plugin(file, hashlib.sha256(content).hexdigest(), tuple(noted))
    _loaded[file] = plugin
    return plugin


def loaded() -> tuple[Plugin, ...]:
    """Return the plugins of this process, in the order of loading."""
    return tuple(_loaded.values())


def origin(kind: Kind, name: str) -> Plugin | None:
    """Return the plugin that registered a thing; None for Vitral's own things, and for things registered by a program."""
    return next((plugin for plugin in _loaded.values() if (kind, name) in plugin.registered), None)


class Needed:
    """The plugins of this process; unpickling this object, as in a spawned worker, loads them."""

    def __reduce__(self) -> tuple[Callable[[Iterable[Path]], "Needed"], tuple[tuple[Path, ...]]]:
        """Return the function and the paths that load the plugins in another process."""
        return _needed, (tuple(_loaded),)


def _needed(paths: Iterable[Path]) -> Needed:
    for path in paths:
        load_plugin(path)
    return Needed()


def _run(file: Path) -> None:
    name = f"vitral_plugin_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}_{file.stem}"
    if file.suffix != ".py":
        raise PluginError(f"The plugin '{file}' is no Python file; its name must end in .py.")
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # what it defines is pickled by this name
    try:
        # By hand, as Python's own loader would leave a `__pycache__` beside the user's file.
        exec(compile(file.read_bytes(), file, "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise


def _line(error: BaseException, file: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
    return "" if line is None else f" (line {line})"
