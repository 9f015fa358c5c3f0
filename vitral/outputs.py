"""Where a command may write: a path that is new, empty, or its own earlier output; never an input or a device.

Every writer checks here before it computes, so that a mistyped name costs neither a file nor an hour.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from vitral.advice import argument
from vitral.errors import StorageError
from vitral.files import LONGEST_NAME, OUR_PREFIX, foreign_files, kind_of
from vitral.paths import look_at

SEARCHED = 1 << 16  # bytes at a file's beginning and end that are searched for its mark


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
        StorageError: a name is too long, or the parent is not a folder that can be written to.
    """
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
        os.rmdir(tempfile.mkdtemp(prefix=OUR_PREFIX, dir=parent))
    except OSError as error:
        raise StorageError(
            f"Cannot write '{target}': nothing can be made in '{parent}' ({error.strerror}); choose another folder."
        ) from error


def refuse_inputs(target: Path, inputs: Iterable[str | Path], *, ours: bool = False) -> None:
    """Refuse to overwrite an input: a file or folder of `inputs`, anything inside one, or a folder that contains one.

    Args:
        target: An existing path that would be overwritten.
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
        same = origin == resolved or os.path.samefile(source, target)
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
