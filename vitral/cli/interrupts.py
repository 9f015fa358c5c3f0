"""Ctrl-C before the command is imported: one line and an exit status, from the start of the process.

An exception in the middle of an import may be lost or turn into another one; nothing has begun that could be lost, so the
process ends at once. Once the command runs, Ctrl-C works as usual.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


def end_at_once() -> None:
    """Let Ctrl-C end the process, unless it is ignored, as in the background."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def restore() -> None:
    """Let Ctrl-C be an exception again."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, _interrupt)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Let Ctrl-C end the process during imports that only some uses of a command need, unless another program calls `main`."""
    if signal.getsignal(signal.SIGINT) is not _interrupt:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        restore()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise as Python's own handler does; a handler of ours marks the process as the command's."""
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"vitral: Interrupted.\n")
    os._exit(128 + number)
