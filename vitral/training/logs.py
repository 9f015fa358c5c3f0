"""The run's log: metrics.jsonl, whose bytes are the same after any kill and resume, and TensorBoard's files."""

import json
import os
import warnings
from pathlib import Path
from typing import Any, BinaryIO

from vitral import distributed
from vitral.files import storage_errors, sync_folder


class MetricsLog:
    """One JSON object a line, each with its step; no times, which no two runs share. Only the main process writes.

    Args:
        folder: the run folder.
        length: bytes of metrics.jsonl that belong to the run so far; what a killed process wrote after its last
            checkpoint is cut off.
        first_step: updates made so far; TensorBoard forgets what it heard of later ones.
    """

    def __init__(self, folder: Path, *, length: int, first_step: int) -> None:
        self.path = folder / "metrics.jsonl"
        self._file: BinaryIO | None = None
        self._board: Any = None
        if not distributed.is_main():
            return
        with storage_errors(self.path):
            self._file = open(self.path, "ab")  # noqa: SIM115  # held open for the run
            sync_folder(folder)  # a checkpoint counts on the log's name being there, too
            self._file.truncate(length)
            self._file.seek(0, os.SEEK_END)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tensorboard's own imports warn of their future
            from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add the figures after update `step`."""
        if self._file is None:
            return
        line = json.dumps({"step": step, **values}, allow_nan=False)
        with storage_errors(self.path):
            self._file.write(line.encode() + b"\n")
        for name, value in values.items():
            self._board.add_scalar(name, value, step)

    def flush(self) -> int:
        """Bring everything to the disk and return the length of metrics.jsonl."""
        if self._file is None:
            return 0
        with storage_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._board.flush()
            return self._file.tell()

    def cut(self, length: int) -> None:
        """Forget what was written after the first `length` bytes of metrics.jsonl."""
        if self._file is not None:
            with storage_errors(self.path):
                self._file.flush()
                self._file.truncate(length)
                self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close both."""
        if self._file is not None:
            self._file.close()
            self._board.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics.jsonl."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
