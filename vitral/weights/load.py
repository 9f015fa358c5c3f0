"""From a published weights file to a network with its preprocessing."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vitral.errors import WeightsError
from vitral.images.preprocessing import ORIGINAL, Preprocessing
from vitral.models.catalog import build, variant_name
from vitral.models.model import Model
from vitral.weights.containers import Container, Shape, assign, compare, open_container
from vitral.weights.names.vit import Rule, rules
from vitral.weights.recognize import Recognized, recognize


@dataclass(frozen=True)
class LoadedWeights:
    """A network as published.

    Attributes:
        model: in evaluation mode.
        preprocessing: the source's own.
        source: the file and what it holds.
        notes: what a user should know, one line each.
    """

    model: Model
    preprocessing: Preprocessing
    source: str
    notes: tuple[str, ...]


def read_weights(path: str | Path) -> LoadedWeights:
    """Read a weights file of the original or of big_vision; names and shapes alone tell the architecture.

    The original's 21,843-class files carry a head of zeros, which was never released; a note says so.

    Raises:
        WeightsError: it cannot be read or holds something else; tensors that are missing, extra or of another shape are
            named.
    """
    source = str(path)
    with open_container(path) as container:
        found = recognize(container.shapes, source)
        table = rules(found.config, found.generation, found.position, class_row=found.class_row, head=found.head)
        model = build(found.config, seed=None)
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        _check(table, wanted, found, source)
        tensors = {rule.ours: _read(rule, found, container) for rule in table}
    if not found.head:
        tensors |= {name: torch.zeros(wanted[name]) for name in ("head.weight", "head.bias")}
    for name, tensor in tensors.items():
        if not math.isfinite(float(tensor.sum())):
            raise WeightsError(f"'{source}' holds values that are no finite numbers, in '{name}'.")
    assign(model, tensors, source)
    notes = list(found.notes)
    if found.head and not bool(tensors["head.weight"].any()):
        notes.append("The file's head is all zeros: its predictions mean nothing until it is fine-tuned.")
    label = variant_name(found.config)
    described = f"{source} ({label})" if label else source
    return LoadedWeights(model, ORIGINAL.with_size(model.image_size), described, tuple(notes))


def _check(table: list[Rule], wanted: dict[str, Shape], found: Recognized, source: str) -> None:
    """Compare every shape before a single value is read."""
    expected = {name for rule in table for name in rule.theirs}
    compare({name: found.shapes.get(name, ()) for name in expected}, found.shapes, source)
    for rule in table:
        parts = [torch.empty(found.shapes[name], device="meta") for name in rule.theirs]
        try:
            shape = tuple(rule.read(parts).shape)
        except (RuntimeError, IndexError):
            shape = ()
        if shape != wanted[rule.ours]:
            shapes = ", ".join(f"{name} of {found.shapes[name]}" for name in rule.theirs)
            raise WeightsError(f"'{source}' does not fit the network: {shapes} cannot become {wanted[rule.ours]}.")


def _read(rule: Rule, found: Recognized, container: Container) -> Tensor:
    parts = []
    for name in rule.theirs:
        place = found.places[name]
        tensor = container.read(place.name)
        parts.append(tensor if place.index is None else tensor[place.index])
    return rule.read(parts)
