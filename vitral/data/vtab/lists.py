"""VTAB's images as the community hands them on (vtab-1k): a folder a task, with lists of images and class numbers."""

import os
import stat
from pathlib import Path, PurePosixPath

from vitral.data.batch import evenly
from vitral.data.folder import Files
from vitral.data.listing import Listing, Opening
from vitral.data.stored import Entry
from vitral.data.vtab.tasks import VtabTask
from vitral.errors import DataError, one_line
from vitral.files import text_of
from vitral.paths import look_at

LISTS = {"train": "train800.txt", "validation": "val200.txt", "test": "test.txt"}
COUNTS = {"train": 800, "validation": 200}


def list_folder(root: Path, task: VtabTask, how: Opening, most_test: int | None) -> Listing | None:
    """Return the images of a task's lists; None where there are no lists."""
    folder = root / task.folder
    if not any((folder / name).is_file() for name in LISTS.values()):
        return None
    names = task.numbered
    entries: dict[str, list[Entry]] = {}
    paths: list[str] = []
    for split, name in LISTS.items():
        rows = _rows(folder / name, task)
        if split in COUNTS and len(rows) != COUNTS[split]:
            raise DataError(f"'{folder / name}' lists {len(rows):,} images; VTAB-1k has {COUNTS[split]}.")
        if split == "test":
            notes = task.size_notes(len(rows))
            rows = evenly(rows, most_test)
        for image, label in rows:
            status = _status(folder, image, name)
            entries.setdefault(split, []).append(Entry(len(paths), image, (names[label],), status.st_size))
            paths.append(str(folder / image))
    source = f"The images of {task.name} in the lists of vtab-1k, which its authors took from TFDS."
    return task.listing(Files(Path(), paths), entries, names, (source, *notes))


def _status(folder: Path, image: str, name: str) -> os.stat_result:
    """Return what a list's image is, which must be a file below the task's folder."""
    path = PurePosixPath(image)
    status = None if ".." in path.parts or path.is_absolute() else look_at(folder / image)
    if status is None or not stat.S_ISREG(status.st_mode):
        raise DataError(f"'{image}', an image of '{folder / name}', is no file below '{folder}'; unpack vtab-1k again.")
    return status


def _rows(path: Path, task: VtabTask) -> list[tuple[str, int]]:
    """Return image and class of each line of a list."""
    try:
        lines = text_of(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"'{path}' cannot be read ({one_line(error)}); unpack vtab-1k again.") from error
    rows = []
    for number, line in enumerate(lines, 1):
        image, _, label = line.strip().rpartition(" ")
        if not image or not label.isdecimal() or int(label) >= task.classes:
            raise DataError(
                f"'{path}', line {number}: '{line[:80]}' is not an image and a class below {task.classes} with a space between."
            )
        rows.append((image.strip(), int(label)))
    return rows
