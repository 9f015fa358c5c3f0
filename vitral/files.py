"""Atomic writes: a kill, a full disk or a power loss leaves the old file or the new file, never a mixture.

Every file is written next to its target under a temporary name, flushed to disk, and then renamed. The folder is flushed last,
because a rename is durable only once its folder is. A temporary name tells which process owns the file, so that the files of a
dead process are known from those of a live one.
"""

import contextlib
import errno
import functools
import hashlib
import importlib
import os
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.errors import StorageError

POSIX = hasattr(os, "fork")  # otherwise it is Windows
ENDED = -1  # a zombie holds nothing
OUR_PREFIX = ".vitral-"  # of the names of everything that exists only while a process works
TEMPORARY_PREFIX = f"{OUR_PREFIX}partial-"
OLD_PREFIX = f"{TEMPORARY_PREFIX}old-"
LONGEST_NAME = 255  # bytes in one part of a path, on every file system in use
STALE_SECONDS = 86400.0  # after which another machine's unfinished write counts as abandoned


def text_of(path: Path) -> str:
    """Return the text of a regular file in UTF-8.

    Raises:
        OSError: The file cannot be read, or is a pipe or a device, which might never end.
        UnicodeDecodeError: The file is not UTF-8.
    """
    if not stat.S_ISREG(os.stat(path).st_mode) and not path.is_dir():  # for a folder the system's own error is clearer
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path.read_text(encoding="utf-8")


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
        if not _is_running(self.pid):
            return True
        now = _started(self.pid)
        return now == ENDED or (0 not in (now, self.started) and now != self.started)


def this_process() -> Owner:
    """Return the calling process."""
    return Owner(_machine(), _boot(), os.getpid(), _my_start(os.getpid()))


def _is_running(pid: int) -> bool:
    if not POSIX:
        return _is_running_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is alive and belongs to another user
    return True


def _is_running_on_windows(pid: int) -> bool:
    # os.kill would send Ctrl-C there. This module is the one through which Python's multiprocessing waits for processes.
    windows: Any = importlib.import_module("_winapi")
    try:
        handle = windows.OpenProcess(windows.SYNCHRONIZE, False, pid)
    except PermissionError:  # it belongs to another user
        return True
    except OSError:
        return False
    try:
        return bool(windows.WaitForSingleObject(handle, 0) == windows.WAIT_TIMEOUT)
    finally:
        windows.CloseHandle(handle)


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
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return _short(file.read())
    except OSError:
        return _short("")


@functools.cache
def _my_start(pid: int) -> int:
    return _started(pid)


def _started(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return ENDED if fields[0] in "ZX" else int(fields[19])


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=4).hexdigest()


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write `path` into a `StorageError` that names it."""
    try:
        yield
    except OSError as error:
        reason = {
            errno.ENOSPC: "the disk is full; free some space and run the command again",
            errno.EDQUOT: "the disk quota is used up; free some space and run the command again",
            errno.EACCES: "no permission to write there; choose another folder",
            errno.ENOENT: "its folder is not there any more; if it was moved, name it where it is now",
            errno.EROFS: "the file system is read-only; choose another folder",
        }.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(f"Cannot write '{path}': {reason}.") from error


def sync_folder(folder: Path) -> None:
    """Flush a folder's own entries to disk; Windows does so by itself, and opens no folder."""
    if POSIX:
        sync_file(folder)  # for the system it is one


def _make_folders(folder: Path) -> None:
    """Make a folder and its parents, and flush each entry, because a file must not vanish with a parent."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_file(path: Path, content: bytes | str) -> None:
    """Write `content` to `path` atomically: a reader sees the old content or the new content.

    Raises:
        StorageError: The file could not be written; what was at `path` before is untouched.
    """
    with new_file(path) as partial:
        # A user's file name need not be valid text; characters that cannot be encoded are written as escapes.
        partial.write_bytes(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path for another library to write to; it becomes `path` when the block ends without an error.

    Raises:
        StorageError: The file could not be written; what was at `path` before is untouched.
    """
    with storage_errors(path):
        _make_folders(path.parent)
        refuse_special(path)
        partial = temporary_name(path.parent)
        try:
            yield partial
            sync_file(partial)
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def drop_oldest(folder: Path, limit: int) -> None:
    """Delete the files below a folder that were not used for longest, beyond so many bytes in all."""
    files: list[tuple[float, int, Path]] = []
    for path in folder.rglob("*.*"):
        with contextlib.suppress(OSError):  # another process has deleted it
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and not path.name.startswith(OUR_PREFIX):
                files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def sync_file(path: Path) -> None:
    """Flush to disk a file that another library wrote."""
    descriptor = os.open(path, os.O_RDONLY if POSIX else os.O_RDWR)  # Windows flushes only what is open for writing
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_through(path: Path, data: bytes) -> None:
    """Write `data` to `path` and flush it to disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def new_folder(path: Path, *, own: Collection[str] | None = None) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path`, replacing it, when the block ends without an error.

    The caller writes each file with `write_through`. An older folder at `path` is moved aside before the new folder takes its
    name, and deleted afterwards, so that either of the two is always whole on disk.

    Args:
        path: The folder.
        own: The names that the caller may replace; any other file of an older folder is copied. None for all names.

    Raises:
        StorageError: The folder could not be written; what was at `path` before is untouched.
    """
    with storage_errors(path):
        _make_folders(path.parent)
        restore_swapped(path)  # the older folder, with the user's files, of a save that was killed
        refuse_special(path, folder=True)
        partial = temporary_name(path.parent)
        partial.mkdir()
        try:
            yield partial
            if own is not None:
                _carry_over(path, partial, own)
            sync_folder(partial)
            _swap(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def refuse_special(path: Path, *, folder: bool = False) -> None:
    """Refuse to rename anything over a device, a pipe, or a folder instead of a file (a file instead of a folder).

    Raises:
        StorageError: `path` is such an entry.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
        raise StorageError(f"Cannot write '{path}': it is {kind_of(mode)}; choose another name.")


def kind_of(mode: int) -> str:
    """Return the everyday name of a file system entry of that mode."""
    kinds = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "a device")


def foreign_files(folder: Path, own: Collection[str]) -> list[str]:
    """Return the names in a folder that are not in `own`: the user's files, which replacing the folder would delete."""
    if not folder.is_dir():
        return []
    names = (entry.name for entry in folder.iterdir())
    return sorted(name for name in names if name not in own and not name.startswith(OUR_PREFIX))


def _carry_over(old: Path, new: Path, own: Collection[str]) -> None:
    """Copy the user's files into the new folder before it replaces the old folder."""
    for name in foreign_files(old, own):
        if (old / name).is_dir() and not (old / name).is_symlink():
            shutil.copytree(old / name, new / name, symlinks=True)
        else:
            shutil.copy2(old / name, new / name, follow_symlinks=False)
        for path in (new / name, *(new / name).rglob("*")):
            if not path.is_symlink():
                sync_file(path)


def _old(path: Path) -> Path:
    name = f"{OLD_PREFIX}{path.name}"
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = OLD_PREFIX + hashlib.sha256(os.fsencode(path.name)).hexdigest()
    return path.parent / name


def _swap(partial: Path, path: Path) -> None:
    old = _old(path)
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        try:
            os.rename(path, old)
            os.rename(partial, path)
        except BaseException:
            restore_swapped(path)
            raise
    else:
        os.rename(partial, path)
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def restore_swapped(path: Path) -> None:
    """Undo a swap that a kill interrupted: if `path` is gone and the older folder is still there, put it back."""
    old = _old(path)
    if old.exists() and not path.exists():
        os.rename(old, path)


def temporary_name(folder: Path) -> Path:
    """Return a new temporary name that records its owner; remove what dead processes left."""
    sweep(folder)
    me = this_process()
    return folder / f"{TEMPORARY_PREFIX}{me.machine}-{me.boot}-{me.pid}-{me.started}-{secrets.token_hex(4)}"


def sweep(folder: Path) -> None:
    """Delete what dead processes left unfinished in `folder`; if it is unknown whether they are dead, what is a day old."""
    for leftover in folder.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError):
            if not leftover.name.startswith(OLD_PREFIX) and _is_left_behind(leftover):
                _remove(leftover)


def _is_left_behind(leftover: Path) -> bool:
    parts = leftover.name.removeprefix(TEMPORARY_PREFIX).split("-")
    if len(parts) == 5 and parts[2].isdecimal() and parts[3].isdecimal():
        dead = Owner(parts[0], parts[1], int(parts[2]), int(parts[3])).is_dead()
        if dead is not None:
            return dead
    return time.time() - leftover.lstat().st_mtime > STALE_SECONDS


def _remove(leftover: Path) -> None:
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


def remove_partial(folder: Path) -> None:
    """Delete what interrupted writes left in `folder`; only the folder's sole writer may call this."""
    for leftover in folder.glob(f"{TEMPORARY_PREFIX}*"):
        _remove(leftover)


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
