"""When the command began: at the start of its process, imports included, so that `--time` matches the user's clock."""

import os
import time
from contextvars import ContextVar

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
