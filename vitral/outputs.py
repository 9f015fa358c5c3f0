"""Where a command may write: a path that is new, empty, or its own earlier output; and the lock on a folder while it writes.

Every writer checks here before it computes, so that a mistyped name costs neither a file nor an hour; an input or a device is
never written to.

A lock is held by one process on one machine, and released when that process dies. Two mechanisms are used, since neither works
everywhere. The system's lock on the file `.vitral-lock` is released whenever its process ends, however it ends; local disks and
NFS support it. Where a disk is shared without such locks, the file names its owner, and its time is renewed every few seconds:
an owner on another machine that has not renewed it for a minute counts as dead. filelock is not used: it does not say which
process holds a lock, its flock outlives a killed process in the workers that it forked, and does not see the POSIX locks of
other versions of Vitral.
"""

import contextlib
import errno
import json
import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vitral.advice import argument
from vitral.errors import StorageError, TrainingError
from vitral.files import (
    LONGEST_NAME,
    POSIX,
    Owner,
    foreign_files,
    kind_of,
    restore_swapped,
    storage_errors,
    temporary_name,
    this_process,
)
from vitral.paths import from_home, look_at

try:
    import fcntl
except ImportError:  # on Windows
    import msvcrt

LOCK_FILE = ".vitral-lock"
RENEWED_SECONDS = 10.0  # between two signs of life
DEAD_SECONDS = 60.0  # without a sign of life, after which another machine's process counts as dead
# In which two processes that take the lock at once see each other, where the system has no locks
SETTLING_SECONDS = 0.5
PLACE = 1 << 20  # of the byte that is locked on Windows, where nobody else may read it: behind the text
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_held: set[str] = set()  # folders of this process: the system's lock does not keep out its own threads
_guard = threading.Lock()
SEARCHED = 1 << 16  # bytes at a file's beginning and end that are searched for its mark


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
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._take()
                if self._is_there():
                    break
            except BaseException:
                if self._read().get("token", self.token) == self.token:  # after a full disk, or a signal
                    self._remove()
                else:  # it is another process's
                    os.close(self._descriptor)
                raise
            os.close(self._descriptor)  # the previous owner ended, and removed its file, after we had opened it
        try:
            self._renewer.start()
        except BaseException:  # no memory for a thread, or a signal
            self._remove()
            raise
        return self

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._renewer.join()
        self._remove()

    def _remove(self) -> None:
        if not POSIX:  # there, no open file can be removed; nor one that another process has taken meanwhile
            os.close(self._descriptor)
        try:
            with contextlib.suppress(OSError):
                self.path.unlink()
        except BaseException:  # a signal
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise
        finally:
            if POSIX:  # first removed, so that nobody takes a file that is about to go
                os.close(self._descriptor)

    def _take(self) -> None:
        try:
            _lock(self._descriptor)
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
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            read = json.loads(os.read(self._descriptor, 4096))
        except (OSError, ValueError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}

    def _write(self) -> None:
        record = {"token": self.token, "host": socket.gethostname(), "owner": asdict(this_process())}
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, json.dumps(record).encode())
        os.fsync(self._descriptor)

    def _holder(self, written: dict[str, Any]) -> str:
        owner = written.get("owner")
        pid = owner.get("pid") if isinstance(owner, dict) else None
        return f"process {pid} on {written.get('host')}" if pid else "another process"

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED_SECONDS):
            with contextlib.suppress(OSError):  # a disk that is unavailable for a while
                os.utime(self._descriptor if os.utime in os.supports_fd else self.path)


def _lock(descriptor: int) -> None:
    """Take the system's lock on an open file, or raise its `OSError` where another process holds it."""
    if POSIX:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        os.lseek(descriptor, PLACE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]


def _in_use(folder: Path, holder: str) -> str:
    return (
        f"{holder[0].upper()}{holder[1:]} is working in '{folder}'; wait until it has ended, or choose another "
        f"{argument('out')}. (If that process is gone, the lock expires within {DEAD_SECONDS:.0f} seconds.)"
    )


def is_worked_in(folder: Path) -> bool:
    """Tell whether a process holds a folder; its lock is only looked at, and of another machine's process its last renewal."""
    path = folder / LOCK_FILE
    try:
        age = time.time() - path.stat().st_mtime
        dead = Owner(**json.loads(path.read_text(encoding="utf-8"))["owner"]).is_dead()
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False
    return age < DEAD_SECONDS if dead is None else not dead


def check_file(
    path: str | Path, *, inputs: Iterable[str | Path] = (), mark: bytes = b"", overwrite: bool = False
) -> None:
    """Check that a file may be written.

    Args:
        path: The file.
        inputs: Everything that the command reads: files, or folders, whose files are all inputs unless they have the mark.
        mark: Bytes near the beginning or end of a file of this kind that we wrote; such a file may be replaced.
        overwrite: Whether the user allowed any other file to be replaced; never an input, nor anything but a file.

    Raises:
        StorageError: it may not be written; what is there is untouched.
    """
    target = Path(path)
    status = _standing(target, "file", stat.S_ISREG)
    if status is None:
        return
    if target.resolve().is_relative_to("/dev") or target.resolve().is_relative_to("/proc"):
        raise StorageError(f"'{target}' belongs to the system; choose another name.")
    ours = bool(mark) and has_mark(target, mark)
    refuse_inputs(target, inputs, ours=ours)
    if status.st_size and not ours and not overwrite:
        whose = ", and this command did not write it" if mark else ""  # without a mark nobody knows
        raise StorageError(f"'{target}' already exists{whose}; {_advice()}.")


def check_folder(
    path: str | Path,
    *,
    own: Collection[str],
    inputs: Iterable[str | Path] = (),
    replace: bool = False,
    overwrite: bool = False,
) -> None:
    """Check that a folder may be written, replacing what is there.

    Args:
        path: The folder.
        own: The names of the files that are written.
        inputs: Everything that the command reads.
        replace: Whether a folder of nothing but such files may be replaced without `overwrite`.
        overwrite: Whether the user allowed replacing it. A file that is not among `own` is never deleted.

    Raises:
        StorageError: it may not be written; what is there is untouched.
    """
    target = Path(path)
    with contextlib.suppress(OSError):  # said below
        restore_swapped(target)
    if _standing(target, "folder", stat.S_ISDIR) is None:
        return
    refuse_inputs(target, inputs)
    if others := foreign_files(target, own):
        raise StorageError(
            f"'{target}' holds something else ('{others[0]}'), which would be lost; choose another folder."
        )
    if foreign_files(target, ()) and not (replace or overwrite):
        raise StorageError(f"'{target}' already exists; {_advice()}.")


def _advice() -> str:
    return f"choose another name, or add {argument('overwrite', True)}"


def _standing(target: Path, kind: str, is_kind: Callable[[int], bool]) -> os.stat_result | None:
    """Return the status of what is at a path that can be written and is of the kind that is to be; None if nothing is."""
    check_location(target)
    try:
        status = target.stat()
    except FileNotFoundError:
        if target.is_symlink():
            raise StorageError(f"'{target}' is a link to nothing; remove it, or choose another name.") from None
        return None
    except OSError as error:
        raise StorageError(f"Cannot write '{target}': {error.strerror}.") from error
    if not is_kind(status.st_mode):
        raise StorageError(f"'{target}' is {kind_of(status.st_mode)}, not a {kind}; choose another name.")
    return status


def check_location(target: Path) -> None:
    """Refuse a path that cannot be written, before anything is computed.

    Permissions do not tell it of every folder (root may write to /proc, which takes nothing), so that it is tried: a folder is
    made where the first new entry would go, and removed again.

    Raises:
        StorageError: a name is too long, or the parent is not a folder that can be written to; or a folder would be called ~,
            which stands for the home folder in a shell alone.
    """
    if (meant := from_home(str(target))) != target and not os.path.lexists(target.parts[0]):
        raise StorageError(f"'{target}' would be made in a folder called '{target.parts[0]}'; write '{meant}'.")
    for part in target.parts:
        if len(os.fsencode(part)) > LONGEST_NAME:
            raise StorageError(f"The name '{part[:40]}…' is longer than {LONGEST_NAME} bytes; choose a shorter one.")
    parent = target.absolute().parent
    while not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir():
        raise StorageError(f"Cannot write '{target}': '{parent}' is not a folder; choose another name.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"Cannot write '{target}': no permission to write in '{parent}'; choose another folder.")
    try:
        tried = temporary_name(parent)  # which is removed later if this process is killed before
        try:
            tried.mkdir()
            tried.rmdir()
        except BaseException:  # a signal, too
            with contextlib.suppress(OSError):
                tried.rmdir()
            raise
    except OSError as error:
        raise StorageError(
            f"Cannot write '{target}': nothing can be made in '{parent}' ({error.strerror}); choose another folder."
        ) from error


def refuse_inputs(target: Path, inputs: Iterable[str | Path], *, ours: bool = False) -> None:
    """Refuse to overwrite an input: a file or folder of `inputs`, anything inside one, or a folder that contains one.

    Args:
        target: A path that would be written.
        inputs: Files and folders; a name without a file, such as that of a model, is ignored.
        ours: Whether the target has our mark, and so is not an input though it is among them.

    Raises:
        StorageError: the target is one of those.
    """
    resolved = target.resolve()
    for source in map(Path, inputs):
        if look_at(source) is None:
            continue
        origin = source.resolve()
        same = origin == resolved or (look_at(target) is not None and os.path.samefile(source, target))
        inside = resolved.is_relative_to(origin) and not ours
        if same or inside or origin.is_relative_to(resolved):
            raise StorageError(
                f"'{target}' is an input of this command, or part of one; choose another path to write to."
            )


def has_mark(path: Path, mark: bytes) -> bool:
    """Tell whether a file holds a mark near its beginning or end."""
    try:
        with open(path, "rb") as file:
            if mark in file.read(SEARCHED):
                return True
            file.seek(-min(SEARCHED, path.stat().st_size), os.SEEK_END)
            return mark in file.read(SEARCHED)
    except OSError:
        return False
