"""Where in a file its network stands: below which beginning of the tensors' names, and what else there is beside it.

Training scripts put a network into an entry of a dict, an attribute of a module, a wrapper of torch's, or several of these, and
call them what they like. So the tensors' names are searched as a tree, for places below which a dialect's names are whole.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from vitral.errors import WeightsError
from vitral.weights.containers import COUNTER, Container, Shape

# Beginnings in the files of Flax: an optimizer's state, an image tower next to a text tower. What stands outside is known.
FLAX = ("opt/target/", "params/img/", "params/")
SCANNED = "Transformer/encoderblock/"
# In some of BiT's files TensorFlow numbers all layers consecutively: standardized_conv2d_7, group_norm_12.
NUMBERED = re.compile(r"(standardized_conv2d|group_norm|conv2d)_\d+(?=/)")
# Wrappers of torch's, which may stand around any part of a network.
WRAPPED = re.compile(r"(?<![^.])(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# DINOv2 trains its blocks in chunks, in which they keep their numbers: blocks.1.7 is block 7.
CHUNKS = re.compile(r"(?<![^.])blocks\.\d+\.(?=\d+\.(?:norm[12]|attn|mlp|ls[12])\.)")
NOTHING = re.compile(r"(?!)")
DEEPEST = 7  # parts of a beginning
SHARE = 10  # a network has at least one of so many of a file's tensors
AVERAGED = re.compile(r"(?<![a-z])(?:ema|swa|averaged?)(?![a-z])")  # in the name of averaged weights
LOSSES = re.compile(r"loss|criterion|metric")  # in the names of what no answer is computed with


@dataclass(frozen=True)
class TensorLocation:
    """Where a tensor is: its name in the file, and its index along the depth where all blocks are stored as one."""

    name: str
    index: int | None = None


Locations = Mapping[str, TensorLocation]
Shapes = Mapping[str, Shape]


def plain_names(stored: Shapes) -> tuple[dict[str, TensorLocation], dict[str, Shape]]:
    """Return where the tensors are and their shapes, by their names without Flax's beginnings and torch's wrappers."""
    prefix = ""
    while more := next((more for more in FLAX if any(name.startswith(prefix + more) for name in stored)), ""):
        prefix += more
    locations: dict[str, TensorLocation] = {}
    shapes: dict[str, Shape] = {}
    chunks = CHUNKS if len({CHUNKS.sub("blocks.", name) for name in stored}) == len(stored) else NOTHING
    for name, shape in stored.items():
        plain = chunks.sub("blocks.", NUMBERED.sub(r"\1", WRAPPED.sub("", name.removeprefix(prefix))))
        if not name.startswith(prefix) or plain.startswith("opt/") or plain.endswith(COUNTER):
            continue  # the optimizer's state, the other tower, or a counter
        if plain.startswith(SCANNED) and shape:
            part = plain.removeprefix(SCANNED)
            for index in range(shape[0]):
                locations[f"Transformer/encoderblock_{index}/{part}"] = TensorLocation(name, index)
                shapes[f"Transformer/encoderblock_{index}/{part}"] = shape[1:]
        else:
            locations[plain], shapes[plain] = TensorLocation(name), shape
    return locations, shapes


def below(prefix: str, shapes: Shapes) -> dict[str, Shape]:
    """Return the shapes of the tensors whose names begin so, by the rest of the name."""
    return {name.removeprefix(prefix): shape for name, shape in shapes.items() if name.startswith(prefix)}


def places(shapes: Shapes, is_network: Callable[[str, Shapes], bool]) -> list[str]:
    """Return the beginnings of names below which a whole network stands, the shortest first."""
    found, level = [], [""]
    for _ in range(DEEPEST):
        parts: list[str] = []
        for prefix in level:
            inside = below(prefix, shapes)
            if is_network(prefix, inside):
                found.append(prefix)
                continue
            counts = Counter(name.partition(".")[0] for name in inside if "." in name)
            parts += [f"{prefix}{first}." for first, count in counts.items() if count * SHARE >= len(shapes)]
        level = parts
    return found


def meant(found: list[str], shapes: Shapes, container: Container, locations: Locations) -> str:
    """Return which of several places is meant: that of averaged weights, as their sources evaluate with them.

    Raises:
        WeightsError: the names do not tell, and the tensors differ.
    """
    averaged = [place for place in found if AVERAGED.search(place.lower())]
    if len(averaged) == 1:
        return averaged[0]
    first, *others = found
    if all(_same(first, other, shapes, container, locations) for other in others):
        return first
    listed = " and ".join(f"'{place}'" for place in found)
    raise WeightsError(
        f"'{container.path}' holds several networks, below {listed}: which one is meant their names do not tell; save "
        "that one in a file of its own."
    )


def _same(one: str, other: str, shapes: Shapes, container: Container, locations: Locations) -> bool:
    names = below(one, shapes)
    return names == below(other, shapes) and all(
        torch.equal(*(container.read(locations[place + name].name) for place in (one, other))) for name in names
    )


def beside(place: str, found: list[str], shapes: Shapes) -> dict[str, Shape]:
    """Return the shapes of the tensors beside a network that may have to do with its answers, by name.

    What stands nearer to another network, as the head in the same entry does, belongs to that.
    """
    others = tuple(found) if place else ("",)
    return {
        name: shape
        for name, shape in shapes.items()
        if shape
        and not name.startswith(others)
        and not LOSSES.search(name.lower())
        and _shared(name, place) == max(_shared(name, other) for other in found)
    }


def _shared(name: str, place: str) -> int:
    """Return how many parts of a name and of a place are the same, from the first on."""
    return len(os.path.commonprefix([name.split("."), place.split(".")]))
