"""The run's log: metrics.jsonl, whose bytes are the same after any kill and resume, and TensorBoard's files; and faults.

Those are about a batch without finite numbers, and about a run that cannot continue.
"""

import functools
import importlib.util
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from vitral import torchrun
from vitral.data.loader import TrainingBatches
from vitral.described import fits
from vitral.errors import StorageError, TrainingDiverged
from vitral.events import Listener, Message, ignore
from vitral.files import storage_errors, sync_folder, write_file
from vitral.paths import METRICS_FILE
from vitral.training.records.checkpoints import checkpoints

NAMED = 4  # images in a message


class MetricsLog:
    """One JSON object a line, each with its step; no times, which no two runs share. Only the main process writes.

    Args:
        folder: the run folder.
        length: bytes of metrics.jsonl that belong to the run so far; what a killed process wrote after its last
            checkpoint is cut off.
        first_step: updates made so far; TensorBoard forgets what it heard of later ones.
        listener: receives what was lost of the log.
    """

    def __init__(self, folder: Path, *, length: int, first_step: int, listener: Listener = ignore) -> None:
        self.path = folder / METRICS_FILE
        self._file: BinaryIO | None = None
        self._board: Any = None
        self._listener, self._hook = listener, threading.excepthook
        if not torchrun.is_main():
            return
        length = _repair(self.path, length, first_step, listener)
        with storage_errors(self.path):
            self._file = open(self.path, "ab")  # noqa: SIM115  # held open for the run
            sync_folder(folder)  # a checkpoint counts on the log's name being there, too
            self._file.truncate(length)
            self._file.seek(0, os.SEEK_END)
        try:
            self._board = _board(folder / "tensorboard", first_step)
        except OSError as error:
            self._without_board(error)
        else:
            threading.excepthook = functools.partial(_quietly, self._hook)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add the figures after update `step`."""
        if self._file is None:
            return
        line = json.dumps({"step": step, **values}, allow_nan=False)
        with storage_errors(self.path):
            self._file.write(line.encode() + b"\n")
            self._file.flush()  # `status`, and whoever follows the file, see it at once

        def add(board: Any) -> None:  # noqa: ANN401  # torch's SummaryWriter
            for name, value in values.items():
                board.add_scalar(name, value, step)

        self._on_board(add)

    def flush(self) -> int:
        """Bring everything to the disk and return the length of metrics.jsonl."""
        if self._file is None:
            return 0
        with storage_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._on_board(lambda board: board.flush())
            return self._file.tell()

    def cut(self, length: int, step: int) -> None:
        """Forget what was written after the first `length` bytes of metrics.jsonl, and after update `step`."""
        if self._file is not None:
            with storage_errors(self.path):
                self._file.flush()
                self._file.truncate(len(b"".join(_rows(self.path.read_bytes()[:length], step))))
                self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close both."""
        if self._file is not None:
            self._file.close()
            self._on_board(lambda board: board.close())
            threading.excepthook = self._hook

    def _on_board(self, write: Callable[[Any], None]) -> None:
        """Give TensorBoard's writer, if there is one, to a function; none is left where somebody has deleted its files."""
        if self._board is None:
            return
        try:
            write(self._board)
        except FileNotFoundError as error:
            self._without_board(error)

    def _without_board(self, error: OSError) -> None:
        self._board = None
        reason, folder = error.strerror or str(error), self.path.with_name("tensorboard")
        self._listener(Message(f"No log for TensorBoard: '{folder}' cannot be written ({reason}).", warning=True))


def _quietly(hook: Callable[[threading.ExceptHookArgs], object], error: threading.ExceptHookArgs) -> None:
    """Let TensorBoard's thread end without a traceback where its files are gone: who writes next is told, and says so."""
    if not (isinstance(error.exc_value, FileNotFoundError) and type(error.thread).__module__.startswith("tensorboard")):
        hook(error)


def _board(folder: Path, first_step: int) -> Any:  # noqa: ANN401  # torch's SummaryWriter
    """Return what writes TensorBoard's files; None where TensorBoard, an extra, is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tensorboard's own imports warn of their future
        from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=first_step)


def _repair(path: Path, length: int, step: int, listener: Listener) -> int:
    """Bring a log that is not as it was left in order, what is whole of it kept; return the bytes that count."""
    if not length:
        return 0
    try:
        content = path.read_bytes()[:length]
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise StorageError(f"'{path}' cannot be read: {error.strerror}; fix that, or remove it.") from error
    whole = b"".join(_rows(content, step))
    if len(whole) < length:
        write_file(path, whole)
        listener(
            Message(f"'{path}' is not as the run left it: {length - len(whole):,} bytes of it are lost.", warning=True)
        )
    return len(whole)


def _rows(content: bytes, step: int) -> Iterator[bytes]:
    """Give the lines that are whole, up to those of update `step`."""
    for line in content.splitlines(keepends=True):
        row = _row(line)
        if row is not None and row["step"] <= step and line.endswith(b"\n"):
            yield line


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and fits(dict[str, float], row) and fits(int, row.get("step")) else None


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics.jsonl that are whole."""
    try:
        content = (folder / METRICS_FILE).read_bytes()
    except OSError:
        return []
    return [row for line in content.splitlines() if (row := _row(line)) is not None]


def images_of(batches: TrainingBatches, step: int) -> list[str]:
    """Return the names of the first images of a batch."""
    return [batches.source.describe(index) for index in batches.indices(step)[:NAMED].tolist()]


def skipped(loss: float, step: int, count: int, most: int, images: Sequence[str]) -> Message:
    """Return the warning about a batch that was skipped."""
    return Message(
        f"The loss at step {step} is {loss}, or its gradient is not finite. The batch ({', '.join(images)}, …) was "
        f"skipped, {count} of at most {most}.",
        warning=True,
    )


def too_many_skipped(loss: float, step: int, most: int, images: Sequence[str], folder: Path) -> TrainingDiverged:
    """Return the error of a run that has skipped as many batches as it may; `folder` holds its checkpoints."""
    whole = checkpoints(folder)
    last = f"the last good checkpoint is '{whole[-1]}'" if whole else "there is no checkpoint yet"
    return TrainingDiverged(
        f"The loss at step {step} is {loss}, or its gradient is not finite, after {most} skipped batches. This step changed "
        f"nothing, and {last}. Lower optimizer.lr. The batch began with {', '.join(images)}."
    )


def damaged(step: int) -> TrainingDiverged:
    """Return the error of a run that has damaged weights and no checkpoint."""
    return TrainingDiverged(
        f"The weights at step {step} are not finite, and there is no checkpoint to go back to. "
        "Lower optimizer.lr or checkpoint.every_steps."
    )


def diverged(step: int, rate: float, folder: Path) -> TrainingDiverged:
    """Return the error of a run with finite weights and a network that gives NaN, which no checkpoint can mend."""
    whole = checkpoints(folder)
    last = f"The last good checkpoint is '{whole[-1]}'" if whole else "There is no earlier checkpoint"
    return TrainingDiverged(
        f"Training diverged: after step {step} the network gives NaN for validation images. "
        f"{last}. Lower optimizer.lr, which is {rate:g}."
    )
