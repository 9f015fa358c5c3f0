"""The process of a command: when it began, so that `--time` is by the user's clock, and Ctrl-C before the command is imported.

An exception in the middle of an import may be lost or turn into another one; nothing has begun that could be lost, so the
process ends at once, in one line and an exit status. Once the command runs, Ctrl-C works as usual.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType

_IMPORTED = time.monotonic()
_OLDEST = 600.0  # seconds; a process that is older did other things first
_BEGAN: ContextVar[float] = ContextVar("began")


def begin(*, process: bool) -> None:
    """Record that a command begins, either with the process or now."""
    now = time.monotonic()
    age = _process_age() if process else 0.0
    _BEGAN.set(now - age if 0 <= age < _OLDEST else _IMPORTED)


def began() -> float:
    """Return when the command began, by `time.monotonic()`."""
    return _BEGAN.get(time.monotonic())


def _process_age() -> float:
    """Return the seconds since this process started, as far as the system says."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.process_time()  # imports run in one thread, so this is nearly all of it


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
