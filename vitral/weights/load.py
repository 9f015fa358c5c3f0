"""From a published weights file to a network with its preprocessing."""

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.errors import WeightsError
from vitral.images.preprocessing import Preprocessing
from vitral.models.codec import changed
from vitral.models.families import build, replace
from vitral.models.model import Model
from vitral.models.naming import variant_name
from vitral.tasks.task import Task
from vitral.weights.containers import COUNTER, Container, Shape, assign, compare
from vitral.weights.dialect import Reading
from vitral.weights.layouts import Rule
from vitral.weights.recognize import Recognized, open_weights, recognize

READERS = 4  # threads


@dataclass(frozen=True)
class LoadedWeights:
    """A network as published.

    Attributes:
        model: in evaluation mode.
        preprocessing: the source's own.
        source: the file and what it holds.
        format: the library whose names it has.
        class_names: in order, where the source says them.
        notes: what a user should know, one line each.
        task: what a label is.
    """

    model: Model
    preprocessing: Preprocessing
    source: str
    format: str
    class_names: tuple[str, ...] | None
    notes: tuple[str, ...]
    task: Task


def read_weights(
    path: str | Path,
    *,
    architecture: Mapping[str, Any] | None = None,
    image_size: tuple[int, int] | None = None,
) -> LoadedWeights:
    """Read a weights file of any library that is known; names and shapes alone tell which and what architecture.

    The original's 21,843-class files carry a head of zeros, which was never released; a note says so.

    Args:
        path: of the file, or of an index of several.
        architecture: fields of the network's config that the file cannot say or says wrongly, such as
            {"num_heads": 8} or {"experts": {"capacity_factor": 4.0}}.
        image_size: height and width, pixels, to compute a fixed table for where the file leaves it out; a table that it
            holds keeps its own size, for the network to interpolate.

    Raises:
        WeightsError: it cannot be read or holds something else; tensors that are missing, extra or of another shape are
            named.
        ModelError: `architecture` has an unknown field or an impossible value.
    """
    source = str(path)
    with open_weights(Path(path)) as container:
        found = recognize(container)
        reading = found.reading
        config = changed(reading.config, architecture or {})
        model = build(config, seed=None)
        if image_size is not None and set(model.fixed_tensors()) - {
            name for rule in reading.rules for name in rule.ours
        }:
            config = replace(config, image_size=image_size)
            model = build(config, seed=None)
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        _check_names(found, source)
        tensors = _read_all(found, container, wanted)
    tensors |= {name: torch.zeros(wanted[name]) for name in reading.absent}
    tensors |= {name: torch.zeros((), dtype=torch.int64) for name in wanted if name.endswith(COUNTER)}
    tensors |= {name: value for name, value in model.fixed_tensors().items() if name not in tensors}
    assign(model, tensors, source)
    notes = list(reading.notes)
    if not reading.absent and not bool(tensors["head.weight"].any()):
        notes.append("The file's head is all zeros: its predictions mean nothing until it is fine-tuned.")
    label = variant_name(config)
    return LoadedWeights(
        model,
        reading.preprocessing.with_size(model.image_size),
        f"{source} ({label})" if label else source,
        found.dialect.name,
        _fitting(reading, model),
        tuple(notes),
        reading.task,
    )


def _fitting(reading: Reading, model: Model) -> tuple[str, ...] | None:
    """Return the class names if they are as many as the logits: a neighbour's file may be about another head."""
    names = reading.class_names
    return names if names is not None and reading.task.outputs(len(names)) == model.num_classes else None


def _check_names(found: Recognized, source: str) -> None:
    """Compare the names before a single value is read."""
    shapes = found.stored.shapes
    expected = {name for rule in found.reading.rules for name in rule.theirs}
    compare({name: shapes.get(name, ()) for name in expected}, shapes, source)


def _read_all(found: Recognized, container: Container, wanted: Mapping[str, Shape]) -> dict[str, Tensor]:
    # Reading and transposing wait for different things, so a few threads at once halve the time.
    readers = ThreadPoolExecutor(READERS)
    try:
        rules = found.reading.rules
        made = readers.map(lambda rule: _read(rule, found, container, wanted), rules)
        return dict(
            chain.from_iterable(zip(rule.ours, parts, strict=True) for rule, parts in zip(rules, made, strict=True))
        )
    finally:
        readers.shutdown(cancel_futures=True)  # after an error the rest is not worth reading


def _read(rule: Rule, found: Recognized, container: Container, wanted: Mapping[str, Shape]) -> list[Tensor]:
    parts = []
    for name in rule.theirs:
        place = found.places[name]
        tensor = container.read(place.name)
        parts.append(tensor if place.index is None else tensor[place.index])
    goal = [wanted.get(name) for name in rule.ours]
    try:
        made = rule.layout.read(parts)
    except (RuntimeError, IndexError, ValueError):
        made = []
    source = str(container.path)
    if [tuple(tensor.shape) for tensor in made] != goal:
        theirs = ", ".join(f"{name} of {found.stored.shapes[name]}" for name in rule.theirs)
        raise WeightsError(
            f"'{source}' does not fit the network: {theirs} cannot become {' and '.join(map(str, goal))}."
        )
    for name, tensor in zip(rule.ours, made, strict=True):
        if not math.isfinite(float(tensor.sum())):
            raise WeightsError(f"'{source}' holds values that are no finite numbers, in '{name}'.")
    return made
