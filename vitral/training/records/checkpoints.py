"""Checkpoints: written at once and beside the training, verified when read, pruned; a run goes on from the newest whole one.

checkpoints/step-00000500/
  tensors-00000-00000.safetensors   weights, average and optimizer; the numbers are the writing process's and the file's
  state.json                        step, length, best figure, length of the log, skipped batches; each file's SHA-256
checkpoints/last, checkpoints/best  links to two of them
"""

import contextlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from vitral import distributed
from vitral.described import fits
from vitral.errors import StorageError, TrainingError, VitralError
from vitral.events import Listener, Message
from vitral.files import TEMPORARY_PREFIX, new_folder, remove_partial, sha256, storage_errors, sync_file, write_through
from vitral.models.experts import Rows, shared_rows
from vitral.training.optimization.averaging import Average
from vitral.weights.containers import write_safetensors

CHECKPOINTS = "checkpoints"
PATTERN, STEP = "step-*", re.compile(r"step-(\d{8,})")
TENSORS, STATE = "tensors-00000-00000.safetensors", "state.json"
FORMAT_VERSION = 2
FILE_BYTES = 1 << 30  # beyond which tensors go into another file


@dataclass(frozen=True)
class State:
    """Where a run stands, besides its tensors.

    Attributes:
        step: updates made, skipped batches included.
        total_steps: updates in all, as planned now; a time budget may have shortened it.
        best_step: the update after which validation was best; None before the first.
        best_accuracy: the validation figure there.
        log_bytes: length of metrics.jsonl.
        seconds: time trained, over all of the run's processes.
        validated: the last update after which the network was validated.
        skipped: the steps whose batches gave no finite loss.
        bend_step: the update after which a time budget last changed the length; 0 where the recipe's schedule holds.
        bend_share: how much of its schedule the run had gone through by then, 0 to 1.
        next_validation: the update after which a time budget planned the next validation; 0 where the recipe says it.
        bends: every change of the length by a time budget: after which update, and to how many in all.
    """

    step: int
    total_steps: int
    best_step: int | None = None
    best_accuracy: float | None = None
    log_bytes: int = 0
    seconds: float = 0.0
    validated: int = 0
    skipped: tuple[int, ...] = ()
    bend_step: int = 0
    bend_share: float = 0.0
    next_validation: int = 0
    bends: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Piece:
    """What one process holds of a tensor: all of it, or some of its rows.

    Attributes:
        tensor: the rows.
        first: the number of the first of them.
        rows: how many rows the whole has; None where this is the whole.
    """

    tensor: Tensor
    first: int = 0
    rows: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is whole; its tensors are read when they are asked for.

    Attributes:
        path: its folder.
        state: where the run stood.
        parts: for each tensor the files that hold it, with the number of the first row in each; in order.
    """

    path: Path
    state: State
    parts: Mapping[str, list[tuple[str, int]]] = field(repr=False)

    def tensor(self, name: str) -> Tensor:
        """Return one tensor, put together again from its parts."""
        found = []
        for file, _ in self.parts[name]:
            with safe_open(self.path / file, framework="pt") as opened:
                found.append(opened.get_tensor(name))
        return found[0] if len(found) == 1 else torch.cat(found)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors."""
        return {name: self.tensor(name) for name in self.parts}


class Writer:
    """Writes checkpoints in a thread, one at a time, while training goes on.

    Args:
        folder: where the checkpoints lie.
        keep: how many of the newest are kept, besides the best.
        archive_steps: those of every so many updates are kept for good.
        shared: whether every process writes its own part; else the main process writes all.
    """

    def __init__(self, folder: Path, *, keep: int, archive_steps: int | None, shared: bool) -> None:
        self.folder, self.keep, self.archive_steps = folder, keep, archive_steps
        # A group of its own: the thread's messages must not meet those of the training.
        self.peers: dist.ProcessGroup | None = None
        if shared and distributed.world() > 1:
            self.peers = cast(dist.ProcessGroup, dist.new_group(backend="gloo"))
        self.writes = self.peers is not None or distributed.is_main()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, state: State, pieces: dict[str, Piece]) -> None:
        """Begin to write a checkpoint; waits for the one before it.

        Raises:
            StorageError: the one before could not be written.
        """
        self.wait()
        if self.writes:
            self._thread = threading.Thread(target=self._write, args=(state, pieces), name="checkpoint")
            self._thread.start()

    def wait(self) -> None:
        """Wait until everything is on the disk.

        Raises:
            StorageError: it could not be written; the older checkpoints are untouched.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write(self, state: State, pieces: dict[str, Piece]) -> None:
        try:
            save_checkpoint(
                self.folder, state, pieces, keep=self.keep, archive_steps=self.archive_steps, peers=self.peers
            )
        except BaseException as error:  # raised again in the training's own thread
            self._error = error


def save_checkpoint(
    folder: Path,
    state: State,
    pieces: Mapping[str, Piece],
    *,
    keep: int,
    archive_steps: int | None = None,
    peers: dist.ProcessGroup | None = None,
) -> Path:
    """Write a checkpoint at once and delete those that are no longer needed.

    All but the newest `keep`, the best, and those of every `archive_steps` updates are deleted.

    Raises:
        StorageError: it cannot be written; the older ones are untouched.
    """
    path = folder / f"step-{state.step:08d}"
    if peers is not None and distributed.rank() > 0:
        partial = distributed.gather("", peers)[0]
        _agree(_write_tensors(Path(partial), pieces), peers)
        return path
    if os.path.lexists(path) and not path.is_dir():  # no checkpoint, whatever put it there
        with storage_errors(path):
            os.replace(path, path.with_name(f"{path.name}.stray"))
    with new_folder(path) as partial_folder:
        if peers is not None:
            distributed.gather(str(partial_folder), peers)
        written = _write_tensors(partial_folder, pieces)
        files, parts = _merge(_agree(written, peers) if peers is not None else [written])
        description = {"version": FORMAT_VERSION, **asdict(state), "files": files, "parts": parts}
        write_through(partial_folder / STATE, json.dumps(description, indent=1).encode())
    _prune(folder, state, keep, archive_steps)
    _link(folder / "last", path.name)
    if state.best_step is not None and (folder / f"step-{state.best_step:08d}").is_dir():
        _link(folder / "best", f"step-{state.best_step:08d}")
    return path


Written = tuple[dict[str, str], dict[str, tuple[str, int]]]  # each file's checksum; each tensor's file and first row


def _write_tensors(folder: Path, pieces: Mapping[str, Piece]) -> Written:
    files: dict[str, str] = {}
    parts: dict[str, tuple[str, int]] = {}
    for number, names in enumerate(_filled(pieces)):
        name = f"tensors-{distributed.rank():05d}-{number:05d}.safetensors"
        write_safetensors({tensor: pieces[tensor].tensor for tensor in names}, folder / name)
        sync_file(folder / name)
        files[name] = sha256(folder / name)
        parts |= {tensor: (name, pieces[tensor].first) for tensor in names}
    return files, parts


def _filled(pieces: Mapping[str, Piece]) -> Iterator[list[str]]:
    names: list[str] = []
    size = 0
    for name, piece in pieces.items():
        if names and size + piece.tensor.nbytes > FILE_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += piece.tensor.nbytes
    yield names


def _agree(written: Written, peers: dist.ProcessGroup) -> list[Written]:
    return distributed.gather(written, peers)


def _merge(written: list[Written]) -> tuple[dict[str, str], dict[str, list[tuple[str, int]]]]:
    files: dict[str, str] = {}
    parts: dict[str, list[tuple[str, int]]] = {}
    for theirs, placed in written:
        files |= theirs
        for name, place in placed.items():
            parts.setdefault(name, []).append(place)
    return files, {name: sorted(places, key=lambda place: place[1]) for name, places in parts.items()}


def _prune(folder: Path, state: State, keep: int, archive_steps: int | None) -> None:
    for old in checkpoints(folder)[:-keep]:
        step = int(old.name.removeprefix("step-"))
        if step != state.best_step and not (archive_steps and step % archive_steps == 0):
            shutil.rmtree(old, ignore_errors=True)


def _link(link: Path, target: str) -> None:
    partial = link.parent / f"{TEMPORARY_PREFIX}{link.name}"
    with contextlib.suppress(OSError):  # a convenience, which some file systems do not have
        partial.unlink(missing_ok=True)
        partial.symlink_to(target)
        os.replace(partial, link)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders by step."""
    return sorted(path for path in folder.glob(PATTERN) if STEP.fullmatch(path.name) and path.is_dir())


def newest_state(folder: Path) -> State | None:
    """Return where a run stands by its newest checkpoint whose state can be read; None if there is none."""
    for path in reversed(checkpoints(folder)):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            return _state(json.loads((path / STATE).read_text()))
    return None


def _state(description: dict[str, Any]) -> State:
    """Return the state that a checkpoint's description holds.

    Raises:
        ValueError: an entry is of the wrong type.
        KeyError: one is missing.
    """
    hints = get_type_hints(State)
    values = {name: description[name] for name in hints if name in description}
    if wrong := next((name for name, value in values.items() if not fits(hints[name], value)), None):
        raise ValueError(f"'{wrong}' is of the wrong type")
    values["skipped"] = tuple(values["skipped"])
    values["bends"] = tuple((int(step), int(total)) for step, total in values.get("bends", ()))
    return State(**values)


def load_newest(folder: Path, listener: Listener) -> Checkpoint | None:
    """Return the newest checkpoint that is whole; None if there never was one.

    A torn or damaged one is told to the listener, and the one before it is taken. Of several processes the main one looks
    and the others take the same.

    Raises:
        TrainingError: there are checkpoints, and none is whole.
    """
    if distributed.world() == 1:
        return _load_newest(folder, listener)
    found: Checkpoint | VitralError | None = None
    if distributed.is_main():
        try:
            found = _load_newest(folder, listener)
        except VitralError as error:
            found = error
    found = distributed.broadcast(found)
    if isinstance(found, VitralError):
        raise found
    return found


def _load_newest(folder: Path, listener: Listener) -> Checkpoint | None:
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


def load_checkpoint(path: Path) -> Checkpoint:
    """Return one checkpoint, every file of it verified by its checksum.

    Raises:
        TrainingError: it is torn or damaged.
    """
    try:
        description: dict[str, Any] = json.loads((path / STATE).read_text())
        version, files, parts = (description[key] for key in ("version", "files", "parts"))
        if not fits(dict[str, str], files) or not fits(dict[str, list[tuple[str, int]]], parts):
            raise ValueError(f"{STATE} says its files in another form")
        state = _state(description)
        if version != FORMAT_VERSION or f"step-{state.step:08d}" != path.name:
            raise ValueError("it is of another version or was renamed")
        for name, digest in files.items():
            if sha256(path / Path(name).name) != digest:
                raise ValueError(f"{name} does not match its checksum")
        checkpoint = Checkpoint(
            path, state, {name: [(file, row) for file, row in places] for name, places in parts.items()}
        )
        _check_parts(checkpoint, files)
        return checkpoint
    except PermissionError as error:
        raise StorageError(f"The checkpoint '{path}' cannot be read: no permission; mend that, and go on.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise TrainingError(f"The checkpoint '{path}' is damaged ({' '.join(str(error).split())}).") from error


def _check_parts(checkpoint: Checkpoint, files: Mapping[str, str]) -> None:
    held: dict[str, set[str]] = {}
    for name in files:
        with safe_open(checkpoint.path / Path(name).name, framework="pt") as opened:
            held[name] = set(opened.keys())
    for tensor, places in checkpoint.parts.items():
        if not all(tensor in held[file] for file, _ in places):
            raise ValueError(f"'{tensor}' is not where {STATE} says")


def pack(model: nn.Module, average: Average | None, optimizer: Optimizer) -> dict[str, Piece]:
    """Return copies of every tensor that a run needs to go on, by name: of each what this process holds and should write."""
    placed = {name: (tensor, tensor) for name, tensor in _prefixed("model/", model.state_dict(keep_vars=True))}
    parameters = dict(model.named_parameters())
    if average is not None:
        placed |= {f"average/{name}": (tensor, parameters[name]) for name, tensor in average.tensors.items()}
    for name, parameter in parameters.items():
        for key, value in optimizer.state[parameter].items() if parameter in optimizer.state else ():
            if isinstance(value, Tensor):
                placed[f"optimizer/{name}/{key}"] = (value, parameter)
    shared = shared_rows(model)
    pieces = {name: _piece(tensor, like, shared.get(like)) for name, (tensor, like) in placed.items()}
    return {name: piece for name, piece in pieces.items() if piece is not None}


def unpack(checkpoint: Checkpoint, model: nn.Module, average: Average | None, optimizer: Optimizer) -> None:
    """Put the tensors of a checkpoint back in place, whatever number of processes wrote them.

    Raises:
        TrainingError: they are of another network.
    """
    state = model.state_dict(keep_vars=True)
    parameters = dict(model.named_parameters())
    wanted = {f"model/{name}": (tensor, tensor) for name, tensor in state.items()}
    if average is not None:
        wanted |= {f"average/{name}": (tensor, parameters[name]) for name, tensor in average.tensors.items()}
    has = {name for name in checkpoint.parts if not name.startswith("optimizer/")}
    if has != set(wanted):
        name = min(has ^ set(wanted))
        raise TrainingError(
            f"The checkpoint '{checkpoint.path}' is of another network: '{name}' is in only one of the two."
        )
    shared = shared_rows(model)
    with torch.no_grad():
        for name, (tensor, like) in wanted.items():
            saved = checkpoint.tensor(name)
            _fill(tensor, saved, rows_held(like, saved.shape, shared.get(like)), name)
        for path in checkpoint.parts:
            if path.startswith("optimizer/"):
                name, _, key = path.removeprefix("optimizer/").rpartition("/")
                saved, parameter = checkpoint.tensor(path), parameters[name]
                rows = rows_held(parameter, saved.shape, shared.get(parameter))
                optimizer.state[parameter][key] = _state_tensor(saved, parameter, rows)


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    yield from ((prefix + name, tensor) for name, tensor in tensors.items())


def rows_held(like: Tensor, shape: torch.Size, shared: Rows | None) -> tuple[int, int] | None:
    """Return the first row and the end of the rows that this process holds of a tensor of `shape`; None for all.

    Args:
        like: the parameter that the tensor belongs to, which may be a `DTensor`.
        shape: of the whole tensor.
        shared: the rows of the parameter that expert parallelism left here; None for all.
    """
    if isinstance(like, DTensor) and shape == like.shape:
        sharded = next((axis for axis, placed in enumerate(like.placements) if placed.is_shard()), None)
        if sharded is None:
            return None
        each = -(-shape[0] // like.device_mesh.size(sharded))
        first = min(like.device_mesh.get_local_rank(sharded) * each, shape[0])
        return first, min(first + each, shape[0])
    if shared is None or not shape or shape[0] != shared.total:
        return None
    return shared.first, shared.end


def _piece(tensor: Tensor, like: Tensor, shared: Rows | None) -> Piece | None:
    """Return this process's piece; None where another one writes it."""
    if isinstance(tensor, DTensor):
        rows = rows_held(like, tensor.shape, shared)
        mesh = tensor.device_mesh
        copies = [axis for axis, placed in enumerate(tensor.placements) if not placed.is_shard()]
        local = tensor.to_local()
        if any(mesh.get_local_rank(axis) for axis in copies) or (rows is not None and rows[0] == rows[1]):
            return None
        first, whole = (rows[0], tensor.shape[0]) if rows is not None else (0, None)
    elif shared is not None and tensor.ndim and tensor.shape[0] == shared.end - shared.first:
        local, first, whole = tensor, shared.first, shared.total
    elif distributed.is_main():
        local, first, whole = tensor, 0, None
    else:
        return None
    return Piece(local.detach().cpu().contiguous().clone(), first, whole)


def _fill(tensor: Tensor, saved: Tensor, rows: tuple[int, int] | None, name: str) -> None:
    target = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    source = saved if rows is None else saved[rows[0] : rows[1]]
    if target.shape != source.shape:
        raise TrainingError(
            f"The checkpoint is of another network: '{name}' is {tuple(saved.shape)} there; resume with the run's own recipe."
        )
    target.copy_(source)


def _state_tensor(saved: Tensor, parameter: Tensor, rows: tuple[int, int] | None) -> Tensor:
    if rows is not None:
        saved = saved[rows[0] : rows[1]]
    saved = saved.to(parameter.device)
    if isinstance(parameter, DTensor) and (rows is not None or saved.shape == parameter.shape):
        return DTensor.from_local(
            saved, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
        )
    return saved
