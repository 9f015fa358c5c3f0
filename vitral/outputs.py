"""Where a command may write: into what is new, empty, or its own of the same kind; never over an input or a device.

Every writer asks here before it computes, so that a mistyped name costs neither a file nor an hour.
"""

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from vitral.errors import StorageError
from vitral.files import LONGEST_NAME, foreign_files, kind_of

LOOKED_AT = 1 << 16  # bytes at a file's beginning and end in which its mark is looked for
OTHERWISE = "choose another name, or say --overwrite"


def check_file(
    path: str | Path, *, inputs: Iterable[str | Path] = (), mark: bytes = b"", overwrite: bool = False
) -> None:
    """Check that a file may be written.

    Args:
        path: the file.
        inputs: what the command reads: files, or folders in which every file is an input unless it bears the mark.
        mark: bytes that a file of this kind, written by us, holds near its beginning or end; such a file may be replaced.
        overwrite: whether the user allowed any other file to be replaced. An input never is, nor what is no file.

    Raises:
        StorageError: it may not be written; what stands there is untouched.
    """
    target = Path(path)
    check_place(target)
    found = _status(target)
    if found is None:
        return
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(f"'{target}' is {kind_of(found.st_mode)}, not a file; choose another name.")
    if target.resolve().is_relative_to("/dev") or target.resolve().is_relative_to("/proc"):
        raise StorageError(f"'{target}' belongs to the system; choose another name.")
    ours = bool(mark) and _bears(target, mark)
    refuse_inputs(target, inputs, ours=ours)
    if found.st_size and not ours and not overwrite:
        raise StorageError(f"'{target}' is there already, and this command did not write it; {OTHERWISE}.")


def check_folder(
    path: str | Path,
    *,
    own: Collection[str],
    inputs: Iterable[str | Path] = (),
    replace: bool = False,
    overwrite: bool = False,
) -> None:
    """Check that a folder may be written whole, in place of what is there.

    Args:
        path: the folder.
        own: the names of the files that are written.
        inputs: what the command reads.
        replace: whether a folder of nothing but such files counts as the command's own, and may be replaced unasked.
        overwrite: whether the user allowed that. What is not among `own` is never deleted, whatever was said.

    Raises:
        StorageError: it may not be written; what stands there is untouched.
    """
    target = Path(path)
    check_place(target)
    found = _status(target)
    if found is None:
        return
    if not stat.S_ISDIR(found.st_mode):
        raise StorageError(f"'{target}' is {kind_of(found.st_mode)}, not a folder; choose another name.")
    refuse_inputs(target, inputs)
    if others := foreign_files(target, own):
        raise StorageError(
            f"'{target}' holds something else ('{others[0]}'), which would be lost; choose another folder."
        )
    if foreign_files(target, ()) and not (replace or overwrite):
        raise StorageError(f"'{target}' is there already; {OTHERWISE}.")


def check_place(target: Path) -> None:
    """Refuse what could not be written anyway, before anything is computed.

    Raises:
        StorageError: a name is too long, or what is above is no folder that may be written to.
    """
    for part in target.parts:
        if len(os.fsencode(part)) > LONGEST_NAME:
            raise StorageError(f"The name '{part[:40]}…' is longer than {LONGEST_NAME} bytes; choose a shorter one.")
    above = target.absolute().parent
    while not os.path.lexists(above):
        above = above.parent
    if not above.is_dir():
        raise StorageError(f"Cannot write '{target}': '{above}' is no folder; choose another name.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise StorageError(f"Cannot write '{target}': no permission to write in '{above}'; choose another folder.")


def _status(target: Path) -> os.stat_result | None:
    try:
        return target.stat()
    except FileNotFoundError:
        if target.is_symlink():
            raise StorageError(f"'{target}' is a link to nothing; remove it, or choose another name.") from None
        return None
    except OSError as error:
        raise StorageError(f"Cannot write '{target}': {error.strerror}.") from error


def refuse_inputs(target: Path, inputs: Iterable[str | Path], *, ours: bool = False) -> None:
    """Refuse to write over what is read: a file or folder of `inputs`, what is in one, and what one is in.

    Args:
        target: what is there already, and would be written over.
        inputs: files and folders; what is not there, such as the name of a model, is passed over.
        ours: whether the target bears our mark, and therefore is no input though it lies among them.

    Raises:
        StorageError: the target is one of those.
    """
    resolved = target.resolve()
    for source in map(Path, inputs):
        if not _exists(source):
            continue
        origin = source.resolve()
        same = origin == resolved or os.path.samefile(source, target)
        inside = resolved.is_relative_to(origin) and not ours
        if same or inside or origin.is_relative_to(resolved):
            raise StorageError(f"'{target}' is what is read, or part of it; choose another place to write to.")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _bears(path: Path, mark: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            if mark in file.read(LOOKED_AT):
                return True
            file.seek(-min(LOOKED_AT, path.stat().st_size), os.SEEK_END)
            return mark in file.read(LOOKED_AT)
    except OSError:
        return False
