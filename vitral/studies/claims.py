"""Claims on the runs of a study that several processes or machines share: locks that end with their process."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from vitral.errors import TrainingError
from vitral.files import storage_errors
from vitral.locks import locked

TURN_SECONDS = 0.05  # between two attempts
PATIENCE = 300.0  # seconds to wait for work of milliseconds


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Claim a folder for the block, and tell whether that was possible: not while a living process holds it.

    Raises:
        StorageError: Nothing can be written there.
    """
    with contextlib.ExitStack() as stack:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        mine = False
        with contextlib.suppress(TrainingError):
            stack.enter_context(locked(folder))
            mine = True
        yield mine


@contextlib.contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Hold a folder for the block, after those who held it before.

    Raises:
        StorageError: Nothing can be written there.
        TrainingError: Another process held it for minutes.
    """
    until = time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        while not stack.enter_context(claimed(folder)):
            if time.monotonic() > until:
                stack.enter_context(locked(folder))  # its error names the holder
            time.sleep(TURN_SECONDS)
        yield
