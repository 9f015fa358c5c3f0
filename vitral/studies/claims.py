"""Who works on what, where several processes or machines share one study: a claim is a lock that the dead do not hold."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from vitral.errors import TrainingError
from vitral.files import storage_errors
from vitral.locks import locked

TURN_SECONDS = 0.05  # between two looks whether it is one's turn
PATIENCE = 300.0  # seconds to wait for one's turn at what takes milliseconds


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Claim a folder for the block, and tell whether that was possible: not while a living process holds it.

    Raises:
        StorageError: nothing can be written there.
    """
    with contextlib.ExitStack() as stack:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            stack.enter_context(locked(folder))
            mine = True
        except TrainingError:
            mine = False
        yield mine


@contextlib.contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Have a folder for the block, after those who had it before.

    Raises:
        StorageError: nothing can be written there.
        TrainingError: another process held it for minutes.
    """
    until = time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        while not stack.enter_context(claimed(folder)):
            if time.monotonic() > until:
                stack.enter_context(locked(folder))  # says who has it
            time.sleep(TURN_SECONDS)
        yield
