"""Checkpoints: written at once and beside the training, verified when read, pruned; a run goes on from the newest whole one.

checkpoints/step-00000500/
  tensors-00000-00000.safetensors   weights, average, optimizers and what a method keeps, by the part's name; the numbers are
                                    the writing process's and the file's
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
from torch import Tensor
from torch import distributed as dist

from vitral import distributed, torchrun
from vitral.described import fits
from vitral.errors import StorageError, TrainingError, refuse_shortage
from vitral.events import Listener, Message
from vitral.files import (
    TEMPORARY_PREFIX,
    new_folder,
    remove_partial,
    sha256,
    storage_errors,
    sync_file,
    text_of,
    write_through,
)
from vitral.training.optimization.state import Piece, Stateful, pieces
from vitral.training.settings.sections import CheckpointSettings
from vitral.weights.containers import write_safetensors

PATTERN = "step-*"
STEP = re.compile(r"step-(\d{8,})")
TENSORS = "tensors-00000-00000.safetensors"
STATE = "state.json"
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
        recipe_steps: updates in all by the recipe as it then was; None where an earlier version wrote the checkpoint.
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
    recipe_steps: int | None = None


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


class Writer:
    """Writes checkpoints in a thread, one at a time, while training continues.

    Args:
        folder: where the checkpoints lie.
        settings: how many are kept, and which for good.
        shared: whether every process writes its own part; else the main process writes all.
    """

    def __init__(self, folder: Path, settings: CheckpointSettings, *, shared: bool) -> None:
        self.folder, self.settings = folder, settings
        # A group of its own: the thread's messages must not meet those of the training.
        self.peers: dist.ProcessGroup | None = None
        if shared and distributed.world() > 1:
            self.peers = cast(dist.ProcessGroup, dist.new_group(backend="gloo"))
        self.writes = self.peers is not None or torchrun.is_main()
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

    def drain(self) -> None:
        """Let a checkpoint that is being written be finished, because an error ends the training; its own error is dropped.

        A process that writes its own part of one does not wait, because the others may be lost.
        """
        if self._thread is not None and self.peers is None:
            self._thread.join()

    def _write(self, state: State, tensors: dict[str, Piece]) -> None:
        keep, archive_steps = self.settings.keep, self.settings.archive_steps
        try:
            save_checkpoint(self.folder, state, tensors, keep=keep, archive_steps=archive_steps, peers=self.peers)
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
        distributed.gather(_write_tensors(Path(partial), pieces), peers)
        return path
    if os.path.lexists(path) and not path.is_dir():  # no checkpoint, whatever put it there
        with storage_errors(path):
            os.replace(path, path.with_name(f"{path.name}.stray"))
    with new_folder(path) as partial_folder:
        if peers is not None:
            distributed.gather(str(partial_folder), peers)
        written = _write_tensors(partial_folder, pieces)
        files, parts = _merge(distributed.gather(written, peers) if peers is not None else [written])
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
            return _state(json.loads(text_of(path / STATE)))
    return None


def _state(description: dict[str, Any]) -> State:
    """Return the state that a checkpoint's description holds; ValueError or KeyError if that is damaged."""
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
    return distributed.by_main(lambda: _load_newest(folder, listener))


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
        description: dict[str, Any] = json.loads(text_of(path / STATE))
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
        raise StorageError(f"The checkpoint '{path}' cannot be read: no permission; fix that, and continue.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        refuse_shortage(error, f"to read the checkpoint '{path}'")
        raise TrainingError(f"The checkpoint '{path}' is damaged ({' '.join(str(error).split())}).") from error


def _check_parts(checkpoint: Checkpoint, files: Mapping[str, str]) -> None:
    held: dict[str, set[str]] = {}
    for name in files:
        with safe_open(checkpoint.path / Path(name).name, framework="pt") as opened:
            held[name] = set(opened.keys())
    for tensor, places in checkpoint.parts.items():
        if not all(tensor in held[file] for file, _ in places):
            raise ValueError(f"'{tensor}' is not where {STATE} says")


def pack(parts: Mapping[str, Stateful]) -> dict[str, Piece]:
    """Return copies of what this process writes of everything that a run's parts keep, as PART/NAME."""
    return {f"{part}/{name}": piece for part, state in parts.items() for name, piece in pieces(state.state_dict())}


def unpack(checkpoint: Checkpoint, parts: Mapping[str, Stateful]) -> None:
    """Give a run's parts what a checkpoint holds of them, whatever number of processes wrote it.

    Raises:
        TrainingError: it is of another network or method.
    """
    saved: dict[str, list[str]] = {part: [] for part in parts}
    try:
        for path in checkpoint.parts:
            part, _, name = path.partition("/")
            if part not in saved:
                raise ValueError(f"'{path}' is in only one of the two")
            saved[part].append(name)
        for part, state in parts.items():
            state.load_state_dict(_Saved(checkpoint, part, saved[part]))
    except ValueError as error:
        raise TrainingError(f"The checkpoint '{checkpoint.path}' is of another network or method: {error}.") from error


class _Saved(Mapping[str, Tensor]):
    """What a checkpoint holds of one of a run's parts; each tensor is read when it is asked for."""

    def __init__(self, checkpoint: Checkpoint, part: str, names: list[str]) -> None:
        self.checkpoint, self.part, self.names = checkpoint, part, dict.fromkeys(names)

    def __getitem__(self, name: str) -> Tensor:
        return self.checkpoint.tensor(f"{self.part}/{name}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
