"""A folder of pictures with one sub-folder a class, with or without train/, val/ and test/ above the classes.

The class names are the sub-folders of the training split in natural order (2 before 10), taken once; every other split, and
every later use, is matched to them by name.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from vitral.data.assemble import ALL, SPLITS, Entry, Listing, Opening, assemble, natural_key
from vitral.data.source import DataSet
from vitral.data.stored import Strings
from vitral.errors import DataError
from vitral.events import Listener, ignore
from vitral.images.decode import EXTENSIONS


class Files:
    """Pictures in files of their own: `root` and the paths below it."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._root = root
        self._paths = Strings(paths)

    def read(self, place: int) -> Path:
        """Return a picture's path."""
        return Path(self.name(place))

    def name(self, place: int) -> str:
        """Return a picture's path."""
        return str(self._root / self._paths[place])


def open_folder(
    folder: Path,
    *,
    class_names: Sequence[str] | None = None,
    skip_bad_images: bool = False,
    trained_on: str | None = None,
    listener: Listener = ignore,
) -> DataSet:
    """Read a folder's classes and splits, and decode every picture once to know that it can be read.

    Nothing in the folder is ever written. The arguments are those of `open_data`.

    Raises:
        DataError: the folder is no data set, or its classes do not match `class_names`.
        ImageError: pictures cannot be read; the first are named, all are counted.
    """
    return assemble(list_folder(folder), Opening(class_names, skip_bad_images, trained_on, listener))


def list_folder(folder: Path) -> Listing:
    """Return the pictures of a folder by split.

    Raises:
        DataError: it is no folder.
    """
    if not folder.exists():
        raise DataError(f"The folder '{folder}' does not exist.")
    if not folder.is_dir():
        raise DataError(f"'{folder}' is a file; give the folder that holds one sub-folder a class.")
    notes: list[str] = []
    paths: list[str] = []
    entries = {split: _entries(folder, root, notes, paths) for split, root in _split_roots(folder).items()}
    return Listing(
        title=str(folder),
        name=folder.resolve().name or "folder",
        store=Files(folder, paths),
        entries=entries,
        notes=tuple(notes),
    )


def _split_roots(folder: Path) -> dict[str, Path]:
    below = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_dir()}
    found = {split: below[name] for split, names in SPLITS.items() for name in reversed(names) if name in below}
    return found if "train" in found else {ALL: folder}


def _entries(folder: Path, root: Path, notes: list[str], paths: list[str]) -> list[Entry]:
    entries: list[Entry] = []
    strangers = 0
    for class_folder in sorted(
        (path for path in root.iterdir() if not path.name.startswith(".")), key=lambda path: natural_key(path.name)
    ):
        if not class_folder.is_dir():
            strangers += 1
            continue
        pictures, others = _pictures(class_folder)
        strangers += others
        if not pictures:
            notes.append(f"The folder '{class_folder}' holds no pictures and is no class.")
        for path in pictures:
            name = str(path.relative_to(folder))
            entries.append(Entry(len(paths), name, (class_folder.name,), path.stat().st_size))
            paths.append(name)
    if strangers:
        notes.append(
            f"{strangers} files in '{root}' are not named like pictures ({', '.join(EXTENSIONS)}) and were left."
        )
    return entries


def _pictures(class_folder: Path) -> tuple[list[Path], int]:
    found: list[Path] = []
    others = 0
    for path in _walk(class_folder):
        if path.suffix.lower() in EXTENSIONS:
            found.append(path)
        else:
            others += 1
    return sorted(found, key=lambda path: natural_key(str(path))), others


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent) / name for name in files if not name.startswith("."))
