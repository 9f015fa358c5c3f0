"""What a torch file holds, read without running any code: tensors in dicts, and stand-ins for everything else.

Training scripts keep more than weights: NumPy's scalars, settings, paths, an optimizer's state. torch's weights-only reader
refuses a file for each of these. Here it is given an empty object of ours in place of whatever a file names, so that nothing
which a file names is imported, made or called.
"""

import builtins
import pickle
import re
import sys
import threading
import warnings
from _compat_pickle import IMPORT_MAPPING
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor

from vitral.errors import WeightsError

NAMED = 8  # entries that an error names
SHOWN = 60  # characters of each
# In the names of a training script's entries that hold no network, or, as Lightning's, the one beside its averages.
STATES = re.compile("optim(?!al|um|i[sz]ed)|sched|scaler|rng|^current_model_state$")
PARAMETER = re.compile(r"\.(weight|bias)$")  # the name of what has to be a tensor
DEEPEST = 4  # dots in the names of a torch file's dicts within one another
# Modules of the standard library whose objects scripts keep beside the weights; of any other of its modules, none.
PLAIN = (
    *("argparse", "collections", "datetime", "decimal", "enum", "functools", "logging"),
    *("pathlib", "re", "time", "types", "typing", "uuid"),
)
# What NumPy's scalars and arrays are pickled by.
NUMPY = tuple(
    f"numpy.{name}"
    for name in (
        "dtype",
        "ndarray",
        *(f"{core}.multiarray.{made}" for core in ("core", "_core") for made in ("scalar", "_reconstruct")),
    )
)


_STAND_INS = threading.Lock()  # torch has one list of what may be named, for all threads


class _Left(list[object]):
    """Stands for an object beside the weights: nothing of it is made, and its class is neither imported nor called.

    It is a list, because the reader adds the items of one that is a list, or a deque, to it. Its attributes are kept as data.
    """

    attributes: Mapping[str, Any] = MappingProxyType({})

    __hash__ = object.__hash__  # type: ignore[assignment]  # an enumeration may be a key

    def __new__(cls, *_: object) -> Self:
        return super().__new__(cls)

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.attributes = state


def unpickled(path: Path, *, zipped: bool) -> Any:  # noqa: ANN401  # what torch.save was given
    """Return a torch file's content by the weights-only reader; objects beside the tensors become empty ones of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about kinds of tensors that we refuse
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
        except pickle.UnpicklingError:
            names = torch.serialization.get_unsafe_globals_in_checkpoint(path) if zipped else NUMPY
            with _STAND_INS, torch.serialization.safe_globals([(_stand_in(name), name) for name in names]):
                return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)


def _stand_in(name: str) -> Callable[..., object]:
    """Return what is called in place of a class or function that a file names.

    Raises:
        WeightsError: it is one of the standard library's that makes no plain value, nor a bound method: only code has such.
    """
    module, _, last = name.rpartition(".")
    module = IMPORT_MAPPING.get(module, module) or "builtins"  # torch writes the names of Python 2
    root = module.split(".")[0]
    kind = getattr(builtins, last, None)
    plain = kind is getattr or isinstance(kind, type) if root == "builtins" else root in PLAIN
    if not plain and root in (*sys.stdlib_module_names, *sys.builtin_module_names):
        raise WeightsError(f"it names {name}")
    if last == "defaultdict":
        return lambda *_: {}
    if last.endswith(("Dict", "CfgNode")):
        return OrderedDict  # the only dict with attributes that the reader fills
    return type(last, (_Left,), {"__module__": module})


def named_tensors(content: object, path: Path) -> dict[str, Tensor]:
    """Return the tensors in a file's dicts of dicts, each by all its names joined by dots; not those of an optimizer.

    Raises:
        WeightsError: in a weight's place stands something else, such as a NumPy array.
    """
    found = dict(_named(content, "", set()))
    for name, value in found.items():
        if isinstance(value, _Left):
            raise WeightsError(f"'{path}': '{name}' is an object of {_kind(value)}, not a tensor; save tensors alone.")
    return found


def _named(content: object, before: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if not isinstance(content, dict) or id(content) in seen:  # a pickled dict may hold itself
        return
    seen.add(id(content))
    for name, value in content.items():
        if isinstance(value, Tensor) or (isinstance(value, _Left) and PARAMETER.search(str(name))):
            yield f"{before}{name}", value
        elif isinstance(name, str) and before.count(".") < DEEPEST and (before or not STATES.search(name)):
            yield from _named(value, f"{before}{name}.", seen)


def said_beside(content: object) -> dict[str, Any]:
    """Return a file's outermost entries by name, in an object's place, such as a script's arguments, its attributes."""
    entries = content.items() if isinstance(content, dict) else ()
    return {str(name): value.attributes if isinstance(value, _Left) else value for name, value in entries}


def _kind(left: _Left) -> str:
    kind = type(left)
    return f"{kind.__module__}.{kind.__name__}"


def what_it_is(content: object) -> str:
    """Return why a file holds no weights, as part of a sentence."""
    entries = content if isinstance(content, dict) else {"": content}
    entries = {" ".join(str(name).split())[:SHOWN]: value for name, value in entries.items()}
    for name, value in entries.items():
        if isinstance(value, _Left):
            where = f"its entry '{name}'" if name else "it"
            return f"{where} is an object of {_kind(value)}, which only that code reads; save its state_dict()"
    listed = ", ".join(list(entries)[:NAMED])
    return f"its entries ({listed}) hold no named tensors" if listed else "it holds something other than named tensors"
