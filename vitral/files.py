"""Write so that a kill, a full disk or a power loss leaves the old file or the new one, never a mixture.

Every file goes beside its target under a temporary name, is flushed to the disk, and is then renamed; the
folder is flushed last, since a rename is durable only once its folder is.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from vitral.errors import StorageError

TEMPORARY_PREFIX = ".vitral-partial-"


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
            errno.EROFS: "the file system is read-only; choose another folder",
        }.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(f"Cannot write '{path}': {reason}.") from error


def sync_folder(folder: Path) -> None:
    """Flush a folder's own entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it, each one's name flushed: what goes into them must not vanish with a parent."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_file(path: Path, content: bytes | str) -> None:
    """Write `content` to `path` at once: a reader sees the old content or the new one.

    Raises:
        StorageError: the file could not be written; what stood at `path` before is untouched.
    """
    with new_file(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary path for another library to write to; it becomes `path` when the block ends without an error.

    Raises:
        StorageError: the file could not be written; what stood at `path` before is untouched.
    """
    with storage_errors(path):
        _make_folders(path.parent)
        partial = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}"
        try:
            yield partial
            sync_file(partial)
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Flush a file that another library wrote to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_through(path: Path, data: bytes) -> None:
    """Write `data` to `path` and flush it to the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder that becomes `path`, replacing it, when the block ends without an error.

    The caller writes each file with `write_through`. An older folder at `path` is moved aside before the
    new one takes its name and deleted after, so that one of the two is always whole on the disk.

    Raises:
        StorageError: the folder could not be written; what stood at `path` before is untouched.
    """
    with storage_errors(path):
        _make_folders(path.parent)
        partial = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY_PREFIX}{path.name}-", dir=path.parent))
        partial.chmod(0o755)
        try:
            yield partial
            sync_folder(partial)
            _swap(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def strangers(folder: Path, own: Collection[str]) -> list[str]:
    """Return the names in a folder that are not among `own`: what replacing the folder would delete of the user's."""
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in own) if folder.is_dir() else []


def _swap(partial: Path, path: Path) -> None:
    old = path.parent / f"{TEMPORARY_PREFIX}old-{path.name}"
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(path, old)
        try:
            os.rename(partial, path)
        except OSError:
            os.rename(old, path)
            raise
    else:
        os.rename(partial, path)
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def restore_swapped(path: Path) -> None:
    """Undo a swap that a kill cut in two: if `path` is gone and its older self is there, put that back."""
    old = path.parent / f"{TEMPORARY_PREFIX}old-{path.name}"
    if old.exists() and not path.exists():
        os.rename(old, path)


def remove_partial(folder: Path) -> None:
    """Delete what interrupted writes left in `folder`."""
    for leftover in folder.glob(f"{TEMPORARY_PREFIX}*"):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
