"""The process that owns a file, so that the files of a dead process are known from those of a live one."""

import functools
import hashlib
import os
import socket
from dataclasses import dataclass

ENDED = -1  # a zombie holds nothing


@dataclass(frozen=True)
class Owner:
    """A process, identified even after its number has been reused.

    Attributes:
        machine: A hash of host name and process namespace.
        boot: A hash of the machine's boot id.
        pid: The process's number.
        started: The time at which it began, in clock ticks since boot; 0 where the system does not say.
    """

    machine: str
    boot: str
    pid: int
    started: int

    def is_dead(self) -> bool | None:
        """Tell whether the process is gone; None if it is on another machine, where that cannot be known."""
        if self.machine != _machine():
            return None
        if self.boot != _boot():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it is alive and belongs to another user
        now = _started(self.pid)
        return now == ENDED or (0 not in (now, self.started) and now != self.started)


def this_process() -> Owner:
    """Return the calling process."""
    return Owner(_machine(), _boot(), os.getpid(), _my_start(os.getpid()))


@functools.cache
def _machine() -> str:
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return _short(f"{socket.gethostname()} {space}")


@functools.cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return _short(file.read())
    except OSError:
        return _short("")


@functools.cache
def _my_start(pid: int) -> int:
    return _started(pid)


def _started(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return ENDED if fields[0] in "ZX" else int(fields[19])


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=4).hexdigest()
