"""A lock on a folder, held by one process on one machine, and released when that process dies.

Two mechanisms are used, since neither works everywhere. The system's lock on the file `.vitral-lock` is released
whenever its process ends, however it ends; local disks and NFS support it. Where a disk is shared without such
locks, the file names its owner, and its time is renewed every few seconds: an owner on another machine that has
not renewed it for a minute counts as dead.

filelock is not used: it does not say which process holds a lock, and its flock and the POSIX locks of earlier versions of
Vitral do not see each other.
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vitral.advice import argument
from vitral.errors import TrainingError
from vitral.files import storage_errors
from vitral.owners import Owner, this_process

LOCK_FILE = ".vitral-lock"
RENEWED_SECONDS = 10.0  # between two signs of life
DEAD_SECONDS = 60.0  # without a sign of life, after which another machine's process counts as dead
# In which two processes that take the lock at once see each other, where the system has no locks
SETTLING_SECONDS = 0.5
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_held: set[str] = set()  # folders of this process: the system's lock does not keep out its own threads
_guard = threading.Lock()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for the block.

    Raises:
        TrainingError: another process is working in the folder; the message says which.
        StorageError: nothing can be written there.
    """
    name = os.path.realpath(folder)
    with _guard:
        if name in _held:
            raise TrainingError(_in_use(folder, "another run of this process"))
        _held.add(name)
    try:
        with storage_errors(folder), _Lock(folder):
            yield
    finally:
        with _guard:
            _held.discard(name)


class _Lock:
    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / LOCK_FILE
        self.token = secrets.token_hex(8)
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="lock", daemon=True)

    def __enter__(self) -> "_Lock":
        while True:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._take()
                if self._is_there():
                    break
            except BaseException:
                os.close(self._descriptor)
                raise
            os.close(self._descriptor)  # the previous owner ended, and removed its file, after we had opened it
        self._renewer.start()
        return self

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._renewer.join()
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._descriptor)

    def _take(self) -> None:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            has_locks = True
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise TrainingError(_in_use(self.folder, self._holder(self._read()))) from error
            has_locks = False
        written = self._read()
        if self._is_alive(written, has_locks=has_locks):
            raise TrainingError(_in_use(self.folder, self._holder(written)))
        self._write()
        if not has_locks:
            time.sleep(SETTLING_SECONDS)
            if self._read().get("token") != self.token:
                raise TrainingError(_in_use(self.folder, self._holder(self._read())))

    def _is_alive(self, written: dict[str, Any], *, has_locks: bool) -> bool:
        """Tell whether the owner that the file names is still working here."""
        try:
            dead = Owner(**written["owner"]).is_dead()
        except (KeyError, TypeError):
            return False
        if dead is None:
            return self._silent_seconds() < DEAD_SECONDS
        return not dead and not has_locks  # a live owner on this machine would hold the system's lock

    def _silent_seconds(self) -> float:
        """Return how long ago the file was renewed, by the clock of the machine that hosts the disk."""
        renewed = os.fstat(self._descriptor).st_mtime
        probe = self.path.with_name(f"{LOCK_FILE}-{self.token}")
        try:
            probe.touch()
            return probe.stat().st_mtime - renewed
        finally:
            probe.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            read = json.loads(os.pread(self._descriptor, 4096, 0))
        except (OSError, ValueError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}

    def _write(self) -> None:
        record = {"token": self.token, "host": socket.gethostname(), "owner": asdict(this_process())}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(record).encode(), 0)
        os.fsync(self._descriptor)

    def _holder(self, written: dict[str, Any]) -> str:
        owner = written.get("owner")
        pid = owner.get("pid") if isinstance(owner, dict) else None
        return f"process {pid} on {written.get('host')}" if pid else "another process"

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED_SECONDS):
            with contextlib.suppress(OSError):  # a disk that is unavailable for a while
                os.utime(self._descriptor)


def _in_use(folder: Path, holder: str) -> str:
    return (
        f"{holder[0].upper()}{holder[1:]} is working in '{folder}'; wait until it has ended, or choose another "
        f"{argument('out')}. (If that process is gone, the lock expires within {DEAD_SECONDS:.0f} seconds.)"
    )
