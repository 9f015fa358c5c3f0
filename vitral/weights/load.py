"""Loading a published weights file as a model with its preprocessing."""

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
from vitral.models.families import build, changed, replace, variant_name
from vitral.models.model import Model, ModelConfig
from vitral.tasks.task import Task
from vitral.weights.containers import COUNTER, Container, Shape, assign, compare
from vitral.weights.dialect import UNTRAINED, Reading
from vitral.weights.layouts import Rule
from vitral.weights.recognize import Recognized, open_weights, recognize

READERS = 4  # threads
UNFITTING = "The names of classes 0 to {} beside the file are left out: its head has {} outputs."


@dataclass(frozen=True)
class LoadedWeights:
    """A model as published.

    Attributes:
        model: The network, in evaluation mode.
        preprocessing: The source's preprocessing of images.
        source: The file, and the name of the network in it.
        format: The library whose names the file uses.
        class_names: The class names in order, where the source has them.
        notes: what a user should know, one line each.
        task: what a label is.
        calibration: The calibration of the classifier that was written, as JSON values; None where there is none.
        assumed: what a user should know of the network that nothing says, one line each.
    """

    model: Model
    preprocessing: Preprocessing
    source: str
    format: str
    class_names: tuple[str, ...] | None
    notes: tuple[str, ...]
    task: Task
    calibration: object = None
    assumed: tuple[str, ...] = ()


def read_weights(
    path: str | Path,
    *,
    architecture: Mapping[str, Any] | None = None,
    image_size: tuple[int, int] | None = None,
    backbone: Model | None = None,
) -> LoadedWeights:
    """Read a weights file of any known library; library and architecture are recognised by names and shapes alone.

    The original's 21,843-class files have a head of zeros, since theirs was never released; a note says so.

    Args:
        path: the file, or an index of several.
        architecture: fields of the model's config that the file does not hold or holds wrongly, such as
            {"num_heads": 8} or {"experts": {"capacity_factor": 4.0}}.
        image_size: Height and width of images, pixels, for which a fixed table is computed that the file leaves out; a table in
            the file keeps its own size, for the model to interpolate.
        backbone: The network that the head of a file stands on which holds a head alone; at its size it becomes a part.

    Raises:
        WeightsError: it cannot be read or is not a weights file; missing, extra or wrongly shaped tensors are named.
        ModelError: `architecture` has an unknown field or an impossible value.
    """
    source = str(path)
    with open_weights(Path(path)) as container:
        recognized = recognize(container, architecture, None if backbone is None else backbone.config)
        reading = recognized.reading
        config = changed(reading.config, architecture or {})
        model = build(config, seed=None)
        if image_size is not None and set(model.fixed_tensors()) - {
            name for rule in reading.rules for name in rule.ours
        }:
            config = replace(config, image_size=image_size)
            model = build(config, seed=None)
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        shapes = recognized.stored.shapes
        named = {name: shapes.get(name, ()) for rule in reading.rules for name in rule.theirs}
        compare(named, shapes, source)  # before any value is read
        tensors = _read_all(recognized, container, wanted)
    if recognized.dialect.on_backbone and backbone is not None:
        backbone.resize(config.image_size)
        below = {f"backbone.{name}": value for name, value in backbone.state_dict().items()}
        # What a file holds of the backbone, too, is added to it.
        tensors |= {
            name: value + tensors[name] if name in tensors else value for name, value in below.items() if name in wanted
        }
    elif backbone is not None:
        raise WeightsError(f"'{source}' holds a whole network; leave out the backbone.")
    tensors |= {name: torch.zeros(wanted[name]) for name in reading.absent}
    tensors |= {name: torch.zeros((), dtype=torch.int64) for name in wanted if name.endswith(COUNTER)}
    tensors |= {name: value for name, value in model.fixed_tensors().items() if name not in tensors}
    assign(model, tensors, source)
    notes = list(reading.notes)
    if "head.weight" in tensors.keys() - set(reading.absent) and not bool(tensors["head.weight"].any()):
        notes.append(f"The file's head is all zeros: {UNTRAINED}")
    if image_size is None and reading.image_size not in (None, model.image_size):
        notes.append(_resized(model, reading))
    class_names = _fitting(reading, model)
    if class_names is None and reading.class_names and not reading.absent:
        notes.append(UNFITTING.format(len(reading.class_names) - 1, model.num_classes))
    label = variant_name(config)
    return LoadedWeights(
        model,
        reading.preprocessing.with_size(model.image_size),
        f"{source} ({label})" if label else source,
        recognized.dialect.name,
        class_names,
        tuple(notes),
        reading.task,
        reading.calibration,
        _assumed(reading, config, architecture or {}),
    )


def _assumed(reading: Reading, config: ModelConfig, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to say about fields of the config that neither the file nor the caller says."""
    open_fields = [name for name in reading.assumed if name not in given]
    notes = [reading.assumed[name] for name in open_fields if reading.assumed[name]]
    plain = {name: getattr(config, name) for name in open_fields if not reading.assumed[name]}
    if not plain:
        return tuple(notes)
    listed = ", ".join(f"{name}={'x'.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in plain.items())
    return (
        f"The file does not say all of its network; assumed: {listed}. Its library's config.json next to it would say; other "
        "values can be given when it is converted or loaded.",
        *notes,
    )


def _resized(model: Model, reading: Reading) -> str:
    """Make the network take images of the size that its source uses, and return what to say about it."""
    native, used = model.image_size, reading.image_size
    assert used is not None
    model.resize(used)
    return (
        f"Its positions are of images of {native[0]}x{native[1]} pixels and were resized to {used[0]}x{used[1]}, the size that "
        f"its source uses; image_size={native[0]} keeps them."
    )


def _fitting(reading: Reading, model: Model) -> tuple[str, ...] | None:
    """Return the class names if there are as many as logits: a config next to the file may be about another head."""
    names = reading.class_names
    return names if names is not None and reading.task.outputs(len(names)) == model.num_classes else None


def _read_all(recognized: Recognized, container: Container, wanted: Mapping[str, Shape]) -> dict[str, Tensor]:
    # Reading waits for the disk and transposing for the processor, so a few threads halve the time.
    readers = ThreadPoolExecutor(READERS)
    try:
        rules = recognized.reading.rules
        made = readers.map(lambda rule: _read(rule, recognized, container, wanted), rules)
        return dict(
            chain.from_iterable(zip(rule.ours, parts, strict=True) for rule, parts in zip(rules, made, strict=True))
        )
    finally:
        readers.shutdown(cancel_futures=True)  # after an error the rest need not be read


def _read(rule: Rule, recognized: Recognized, container: Container, wanted: Mapping[str, Shape]) -> list[Tensor]:
    if not rule.ours:
        return []
    parts = []
    for name in rule.theirs:
        location = recognized.locations[name]
        tensor = container.read(location.name)
        parts.append(tensor if location.index is None else tensor[location.index])
    shapes = [wanted.get(name) for name in rule.ours]
    try:
        tensors = rule.layout.read(parts)
    except (RuntimeError, IndexError, ValueError):
        tensors = []
    source = str(container.path)
    if [tuple(tensor.shape) for tensor in tensors] != shapes:
        theirs = ", ".join(f"{name} of {recognized.stored.shapes[name]}" for name in rule.theirs)
        raise WeightsError(
            f"'{source}' does not fit the model: {theirs} cannot become {' and '.join(map(str, shapes))}."
        )
    for name, tensor in zip(rule.ours, tensors, strict=True):
        if not math.isfinite(float(tensor.sum())):
            raise WeightsError(f"'{source}' holds values that are not finite, in '{name}'.")
    return tensors
