"""A folder of images with one sub-folder per class, with or without train/, val/ and test/ above the classes.

The class names are the sub-folders of the training split in natural order (2 before 10), fixed once; every other split,
and every later use, is matched to them by name. In nested folders, `vitral.data.classes` decides which one is the class.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vitral.advice import counted
from vitral.data.classes import Arranged, Folder, arrange
from vitral.data.image_files import describes, note_others
from vitral.data.listing import Listing, Opening
from vitral.data.masks import find_masks, note_masks, speak_of_masks, twins
from vitral.data.names import ALL, NAMED, natural_key, some, split_named
from vitral.data.source import BadImage
from vitral.data.stored import Entry, Store, Strings
from vitral.errors import DataError
from vitral.images.decode import EXTENSIONS
from vitral.paths import Walk, walk


class Files:
    """Images in separate files: `root` and the paths below it."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._root = root
        self._paths = Strings(paths)

    def read(self, index: int) -> Path:
        """Return an image's path."""
        return self._root / self._paths[index]

    def name(self, index: int) -> str:
        """Return an image's path."""
        return str(self._root / self._paths[index])


def list_folder(folder: Path, walked: Walk | None = None, *, how: Opening) -> Listing:
    """Return the images of a folder by split, or raise DataError if it cannot be read, or was written by Vitral."""
    walked = walk(folder) if walked is None else walked
    _refuse(folder, walked)
    paths = [file for file in walked.files if _is_image(file.path)]
    listing = list_classes(
        folder,
        Files(folder, [file.path for file in paths]),
        [Entry(index, file.path, (), file.size) for index, file in enumerate(paths)],
        [PurePosixPath(file.path).parts for file in paths],
        how,
        notes=lambda arranged: _notes(folder, walked, arranged.empty, arranged.outside),
        folders=[PurePosixPath(name).parts for name in walked.folders if name],
    )
    return replace(listing, name=folder.resolve().name or "folder", bad=tuple(_broken(folder, walked)))


def list_classes(
    path: Path,
    store: Store,
    images: Sequence[Entry],
    parts: Sequence[Folder],
    how: Opening,
    *,
    notes: Callable[[Arranged], Iterable[str]],
    folders: Iterable[Folder] = (),
) -> Listing:
    """Return the images of a folder or an archive by split and class."""
    images, parts, folders, masks = without_masks(store, images, parts, folders)
    arranged = arrange(parts, folders=folders, reading=how.classes, wanted=how.class_names)
    entries = {
        split: [images[index]._replace(classes=(name,)) for index, name in members]
        for split, members in arranged.images.items()
    }
    return Listing(
        title=str(path),
        name=path.name.split(".")[0],
        store=store,
        entries=entries or {ALL: []},
        reading=arranged.reading,
        notes=(*arranged.notes, *masks, *notes(arranged)),
        outside=arranged.outside,
    )


def without_masks(
    store: Store, images: Sequence[Entry], parts: Sequence[Folder], folders: Iterable[Folder] = ()
) -> tuple[Sequence[Entry], Sequence[Folder], Iterable[Folder], list[str]]:
    """Return images and parts without masks of photos, the folders that hold not only such, and a note on what is left out."""
    kinds = {path[-1].rpartition(".")[2].lower() for path in parts}
    spoken_of = speak_of_masks({part for path in parts for part in path})
    if len(kinds) < 2 and not spoken_of and not any(twins(parts)):
        return images, parts, folders, []
    if not (masks := find_masks(store, images, parts, spoken_of=spoken_of)):
        return images, parts, folders, []
    kept = [index for index in range(len(images)) if index not in masks]
    holding = {parts[index][:depth] for index in kept for depth in range(len(parts[index]))}
    emptied = {parts[index][:depth] for index in masks for depth in range(len(parts[index]))} - holding
    return (
        [images[index] for index in kept],
        [parts[index] for index in kept],
        [folder for folder in folders if folder not in emptied],
        [note_masks(images, masks)],
    )


def list_images(folder: Path) -> Listing:
    """Return the images of a folder in whatever sub-folders, without splits or classes.

    Beside a folder of training images one of test images is left out.

    Raises:
        DataError: it cannot be read, or was written by Vitral.
    """
    walked = walk(folder)
    _refuse(folder, walked)
    paths = [file for file in walked.files if _is_image(file.path)]
    splits = [split_named(PurePosixPath(file.path).parts[0]) if "/" in file.path else None for file in paths]
    held = "test" in splits and "train" in splits
    notes = _notes(folder, walked, [], 0)
    if held:
        notes.append(f"Left out: {counted(splits.count('test'), 'image')} in the test folder of '{folder}'.")
        paths = [file for file, split in zip(paths, splits, strict=True) if split != "test"]
    return Listing(
        title=str(folder),
        name=folder.resolve().name or "folder",
        store=Files(folder, [file.path for file in paths]),
        entries={ALL: [Entry(index, file.path, (), file.size) for index, file in enumerate(paths)]},
        notes=tuple(notes),
        bad=tuple(_broken(folder, walked)),
    )


def _refuse(folder: Path, walked: Walk) -> None:
    if walked.closed:
        closed = folder / walked.closed[0]
        more = f" (and {len(walked.closed) - 1} more)" if len(walked.closed) > 1 else ""
        raise DataError(f"The folder '{closed}'{more} cannot be read; its images would be missing. Allow reading it.")
    if walked.ours == [""]:
        raise ours_error(folder)


def ours_error(path: Path) -> DataError:
    """Return the error for a folder or archive that Vitral wrote."""
    return DataError(
        f"'{path}' is a run, a classifier or predictions that Vitral wrote, not data; name the folder of images."
    )


def note_ours(path: Path, folders: Sequence[str]) -> str:
    """Return the note on folders in a folder or archive that Vitral wrote, which are not read."""
    return f"{_folders(folders)} in '{path}' written by Vitral itself, skipped: {some(folders)}."


def note_systems(path: Path, folders: Sequence[str]) -> str:
    """Return the note on folders in a folder or archive that a system made, which are not read."""
    return f"{_folders(folders)} of a system (thumbnails, a recycle bin) in '{path}', not read: {some(folders)}."


def _is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)


def _broken(folder: Path, walked: Walk) -> list[BadImage]:
    return [
        BadImage(str(folder / name), f"'{folder / name}' is a link that leads nowhere")
        for name in walked.broken
        if _is_image(name)
    ]


def _notes(folder: Path, walked: Walk, empty: list[str], outside: int) -> list[str]:
    notes = []
    if empty:
        notes.append(f"{_folders(empty)} in '{folder}' without images, not taken as classes: {some(empty)}.")
    if walked.ours:
        notes.append(note_ours(folder, walked.ours))
    if walked.systems:
        notes.append(note_systems(folder, walked.systems))
    if walked.absent:
        notes.append(
            f"{counted(len(walked.absent), 'file')} in '{folder}' that iCloud has not brought to this machine, left out: "
            f"{some(walked.absent)}; download them there."
        )
    if walked.again:
        notes.append(
            f"{counted(len(walked.again), 'link')} in '{folder}' to folders that were already read, skipped: "
            f"{some(walked.again)}."
        )
    others = [file.path for file in walked.files if not (_is_image(file.path) or describes(file.path))]
    if others:
        notes.append(note_others(folder, sorted(others, key=natural_key)[:NAMED], len(others)))
    if outside:
        notes.append(f"Left out: {counted(outside, 'image')} in '{folder}' in no class folder, or beside the splits.")
    if broken := [name for name in walked.broken if not _is_image(name)]:
        notes.append(f"{counted(len(broken), 'link')} in '{folder}' to nowhere, skipped: {some(broken)}.")
    return notes


def _folders(names: Sequence[str]) -> str:
    return "1 folder" if len(names) == 1 else f"{len(names)} folders"
