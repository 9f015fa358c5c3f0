"""Checkpoints: written at once, verified when read, pruned; the newest whole one is what a run goes on from.

checkpoints/step-00000500/
  tensors.safetensors   network, average and optimizer
  state.json            step, length, best figure, length of the log, and the SHA-256 of the tensors
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from vitral.errors import TrainingError
from vitral.events import Listener, Message
from vitral.files import new_folder, remove_partial, sha256, sync_file, write_through
from vitral.models.model import Model

PATTERN = "step-*"
TENSORS, STATE = "tensors.safetensors", "state.json"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class State:
    """Where a run stands, besides its tensors.

    Attributes:
        step: updates made.
        total_steps: updates in all, as planned now; a time budget may have shortened it.
        best_step: the update after which validation was best; None before the first.
        best_accuracy: validation accuracy there, 0 to 1.
        log_bytes: length of metrics.jsonl.
        seconds: time trained, over all of the run's processes.
    """

    step: int
    total_steps: int
    best_step: int | None = None
    best_accuracy: float | None = None
    log_bytes: int = 0
    seconds: float = 0.0


def save_checkpoint(folder: Path, state: State, tensors: dict[str, Tensor], *, keep: int) -> Path:
    """Write a checkpoint at once and delete those that are no longer needed: all but the newest `keep` and the best.

    Raises:
        StorageError: it cannot be written; the older ones are untouched.
    """
    path = folder / f"step-{state.step:08d}"
    with new_folder(path) as partial:
        save_file(tensors, partial / TENSORS)
        sync_file(partial / TENSORS)
        description = {"version": FORMAT_VERSION, "sha256": sha256(partial / TENSORS), **asdict(state)}
        write_through(partial / STATE, json.dumps(description, indent=2).encode())
    for old in checkpoints(folder)[:-keep]:
        if old != folder / f"step-{state.best_step or 0:08d}":
            shutil.rmtree(old, ignore_errors=True)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders by step."""
    return sorted(path for path in folder.glob(PATTERN) if path.is_dir())


def load_newest(folder: Path, listener: Listener) -> tuple[State, dict[str, Tensor]] | None:
    """Return the newest checkpoint that is whole; None if there never was one.

    A torn or damaged one is told to the listener, and the one before it is taken.

    Raises:
        TrainingError: there are checkpoints, and none is whole.
    """
    if not folder.is_dir():
        return None
    remove_partial(folder)
    found = checkpoints(folder)
    for path in reversed(found):
        try:
            loaded = load_checkpoint(path)
        except TrainingError as error:
            listener(Message(f"{error} Going back to the checkpoint before it.", warning=True))
            continue
        if path != found[-1]:
            listener(Message(f"Going on from '{path}' in place of the damaged '{found[-1].name}'.", warning=True))
        return loaded
    if found:
        raise TrainingError(
            f"None of the {len(found)} checkpoints in '{folder}' is whole; start the run anew elsewhere."
        )
    return None


def load_checkpoint(path: Path) -> tuple[State, dict[str, Tensor]]:
    """Return one checkpoint, verified by its checksum.

    Raises:
        TrainingError: it is torn or damaged.
    """
    try:
        description: dict[str, Any] = json.loads((path / STATE).read_text())
        version, digest = description.pop("version"), description.pop("sha256")
        state = State(**description)
        if version != FORMAT_VERSION or f"step-{state.step:08d}" != path.name:
            raise ValueError("it is of another version or was renamed")
        if sha256(path / TENSORS) != digest:
            raise ValueError("its tensors do not match their checksum")
        return state, load_file(path / TENSORS)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise TrainingError(f"The checkpoint '{path}' is damaged ({' '.join(str(error).split())}).") from error


def pack(model: Model, average: Model | None, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return copies of every tensor that a run needs to go on, by name."""
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    if average is not None:
        tensors |= {f"average/{name}": tensor for name, tensor in average.state_dict().items()}
    names = _parameter_names(model)
    for parameter, name in names.items():
        for key, value in optimizer.state[parameter].items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{name}/{key}"] = value
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def unpack(tensors: dict[str, Tensor], model: Model, average: Model | None, optimizer: Optimizer) -> None:
    """Put the tensors of a checkpoint back in place.

    Raises:
        TrainingError: they are of another network.
    """
    try:
        model.load_state_dict(_below(tensors, "model/"))
        if average is not None:
            average.load_state_dict(_below(tensors, "average/"))
    except RuntimeError as error:
        raise TrainingError(
            "The checkpoint is of another network; resume with the recipe that began the run."
        ) from error
    by_name = {name: parameter for parameter, name in _parameter_names(model).items()}
    for path, tensor in _below(tensors, "optimizer/").items():
        name, _, key = path.rpartition("/")
        parameter = by_name[name]
        optimizer.state[parameter][key] = tensor.to(parameter.device)


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _parameter_names(model: Model) -> dict[torch.nn.Parameter, str]:
    return {parameter: name for name, parameter in model.named_parameters()}
