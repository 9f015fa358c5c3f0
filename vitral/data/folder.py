"""A folder of images with one sub-folder a class, with or without train/, val/ and test/ above the classes.

The class names are the sub-folders of the training split in natural order (2 before 10), taken once; every other split, and
every later use, is matched to them by name. Where folders are nested, `vitral.data.classes` says which of them is the class.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from vitral.data.assemble import Listing, Opening, assemble
from vitral.data.classes import Reading, arrange
from vitral.data.names import ALL, some
from vitral.data.source import BadImage, DataSet
from vitral.data.stored import Entry, Strings
from vitral.errors import DataError
from vitral.events import Listener, ignore
from vitral.images.decode import EXTENSIONS
from vitral.paths import Walk, is_folder, look_at, walk


class Files:
    """Images in files of their own: `root` and the paths below it."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._root = root
        self._paths = Strings(paths)

    def read(self, place: int) -> Path:
        """Return an image's path."""
        return Path(self.name(place))

    def name(self, place: int) -> str:
        """Return an image's path."""
        return str(self._root / self._paths[place])


def open_folder(
    folder: Path,
    *,
    class_names: Sequence[str] | None = None,
    classes: Reading | None = None,
    skip_bad_images: bool = False,
    trained_on: str | None = None,
    listener: Listener = ignore,
) -> DataSet:
    """Read a folder's classes and splits, and decode every image once to know that it can be read.

    Nothing in the folder is ever written. The arguments are those of `open_data`.

    Raises:
        DataError: the folder is no data set, or its classes do not match `class_names`.
        ImageError: images cannot be read; the first are named, all are counted.
    """
    how = Opening(class_names, skip_bad_images, trained_on, listener, classes=classes)
    return assemble(list_folder(folder, how=how), how)


def list_folder(folder: Path, found: Walk | None = None, *, how: Opening) -> Listing:
    """Return the images of a folder by split.

    Args:
        folder: the data.
        found: what lies in it, where that is known already.
        how: which folder names a class.

    Raises:
        DataError: it is no folder, cannot be read, or is what Vitral wrote.
    """
    if look_at(folder) is None:
        raise DataError(f"The folder '{folder}' does not exist.")
    if not is_folder(folder):
        raise DataError(f"'{folder}' is a file; give the folder that holds one sub-folder a class.")
    found = walk(folder) if found is None else found
    _refuse(folder, found)
    paths = [file for file in found.files if _is_image(file.path)]
    arranged = arrange(
        [PurePosixPath(file.path).parts for file in paths],
        folders=[PurePosixPath(place).parts for place in found.folders if place],
        reading=how.classes,
        wanted=how.class_names,
    )
    entries = {
        split: [Entry(place, paths[place].path, (name,), paths[place].size) for place, name in members]
        for split, members in arranged.images.items()
    }
    return Listing(
        title=str(folder),
        name=folder.resolve().name or "folder",
        store=Files(folder, [file.path for file in paths]),
        entries=entries or {ALL: []},
        reading=arranged.reading,
        notes=(*arranged.notes, *_notes(folder, found, arranged.empty, len(found.files) - len(paths), arranged.left)),
        bad=tuple(_broken(folder, found)),
    )


def _refuse(folder: Path, found: Walk) -> None:
    if found.closed:
        place = folder / found.closed[0]
        more = f" (and {len(found.closed) - 1} more)" if len(found.closed) > 1 else ""
        raise DataError(f"The folder '{place}'{more} cannot be read; its images would be missing. Allow reading it.")
    if found.ours == [""]:
        raise ours_alone(folder)


def ours_alone(path: Path) -> DataError:
    """Return the refusal of a folder or archive that Vitral wrote as a whole."""
    return DataError(f"'{path}' is what Vitral wrote, a run or a classifier, and no data; name the folder of images.")


def ours_left(path: Path, found: Sequence[str]) -> str:
    """Return the note of the folders in a folder or archive that Vitral wrote, and that are not read."""
    return f"{_folders(found)} in '{path}' that Vitral wrote itself, left: {some(found)}."


def _is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)


def _broken(folder: Path, found: Walk) -> list[BadImage]:
    return [
        BadImage(str(folder / name), f"'{folder / name}' is a link that leads nowhere")
        for name in found.broken
        if _is_image(name)
    ]


def _notes(folder: Path, found: Walk, empty: list[str], others: int, left: int) -> list[str]:
    notes = []
    if empty:
        notes.append(f"{_folders(empty)} in '{folder}' with no images, and no class: {some(empty)}.")
    if found.ours:
        notes.append(ours_left(folder, found.ours))
    if found.again:
        notes.append(
            f"{len(found.again)} links in '{folder}' to folders that were read already, left: {some(found.again)}."
        )
    if others:
        notes.append(
            f"{others} files in '{folder}' are not named like images ({', '.join(EXTENSIONS)}) and were left out."
        )
    if left:
        notes.append(f"{left} images in '{folder}' lie in no class's folder and were left out.")
    if broken := [name for name in found.broken if not _is_image(name)]:
        notes.append(f"{len(broken)} links in '{folder}' lead nowhere and were left: {some(broken)}.")
    return notes


def _folders(names: Sequence[str]) -> str:
    return "1 folder" if len(names) == 1 else f"{len(names)} folders"
