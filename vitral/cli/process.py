"""The process of a command: when it began, so that `--time` is by the user's clock, and what stops it.

Ctrl-C, a termination, a scheduler's warning (SIGUSR1) and the end of the terminal (SIGHUP: a closed window, a lost connection)
stop a command alike: by an exception in the main thread, after which locks and unfinished files are gone; a training saves
itself. What the process ignored when it began, as under nohup, it goes on ignoring.

An exception in the middle of an import may be lost or turn into another one; nothing has begun that could be lost, so the
process ends at once, in one line and an exit status.
"""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

_IMPORTED = time.monotonic()
_OLDEST = 600.0  # seconds; a process that is older did other things first
# What stops a command, and what it says then.
STOPS = {signal.SIGINT: "Interrupted.", signal.SIGTERM: "Terminated."}
SHOW_CURSOR = "\x1b[?25h"
HANGUP = getattr(signal, "SIGHUP", None)  # Windows does not have it, nor SIGUSR1
WARNING = getattr(signal, "SIGUSR1", None)
if HANGUP is not None:
    STOPS[HANGUP] = "Its terminal is gone."
if WARNING is not None:
    STOPS[WARNING] = "Stopped by SIGUSR1."
_BEGAN: ContextVar[float] = ContextVar("began")


def begin(*, process: bool) -> None:
    """Record that a command begins, either with the process or now."""
    now = time.monotonic()
    age = _process_age() if process else 0.0
    if process:
        _outlive_the_terminal()
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


class Stop(KeyboardInterrupt):
    """A signal that stops the command, raised in the main thread."""

    def __init__(self, number: int) -> None:
        super().__init__(STOPS[signal.Signals(number)])
        self.number = number


class _Screen(io.FileIO):
    """A terminal; what is written to one that is gone is dropped, because a checkpoint must still be saved."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401  # any buffer of bytes
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return memoryview(data).nbytes


def _outlive_the_terminal() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty():
            screen = io.BufferedWriter(_Screen(stream.fileno(), "wb", closefd=False))
            text = io.TextIOWrapper(screen, stream.encoding, stream.errors, line_buffering=True)
            setattr(sys, name, text)


def end_at_once() -> None:
    """Let what stops a command end the process, unless it is ignored, as Ctrl-C is in the background."""
    for number in STOPS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)


def restore() -> None:
    """Let what stops a command be an exception."""
    _exchange(_end, _interrupt)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Let a stop end the process during imports that only some uses of a command need, unless another program calls `main`."""
    _exchange(_interrupt, _end)
    try:
        yield
    finally:
        restore()


Handler = Callable[[int, FrameType | None], None]


def _exchange(old: Handler, new: Handler) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in STOPS:
            if signal.getsignal(number) is old:
                signal.signal(number, new)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise as Python's own handler does; a handler of ours marks the process as the command's."""
    if number in (HANGUP, WARNING):
        signal.signal(number, signal.SIG_IGN)  # several may come, and what ends must not be stopped
    engines = sys.modules.get("vitral.inference.engines")
    if engines is not None:
        engines.end_runs()  # those in other threads, for which who ends would wait
    raise Stop(number)


def _end(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # of a terminal that is gone
        shown = SHOW_CURSOR if os.isatty(2) else ""  # which a progress bar hides
        os.write(2, f"{shown}vitral: {STOPS[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)
