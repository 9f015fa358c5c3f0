"""VTAB's images in WebDataset shards (wds_vtab-TASK/{train,test}/N.tar with classnames.txt).

Their order is not known to be TFDS's, so that the official 800 and 200 images cannot be known: others are drawn.
"""

import hashlib
from pathlib import Path

from vitral.data.batch import evenly
from vitral.data.listing import Listing, Opening
from vitral.data.names import natural_key
from vitral.data.shards import list_shards
from vitral.data.stored import Entry
from vitral.data.vtab.tasks import VtabTask
from vitral.errors import DataError
from vitral.files import text_of

TRAIN = 800  # images
VALIDATION = 200
PREFIXES = ("wds_vtab-", "wds_")  # Sun397 has the second
NAMES = "classnames.txt"


def list_wds(root: Path, task: VtabTask, how: Opening, most_test: int | None) -> Listing | None:
    """Return the images of a task in its shards: 1,000 drawn from those to train on; None where there are no shards."""
    folder = shards_of(root, task)
    if folder is None:
        return None
    shards = {
        split: sorted((folder / split).glob("*.tar"), key=lambda path: natural_key(path.name))
        for split in ("train", "test")
    }
    if empty := [split for split, paths in shards.items() if not paths]:
        raise DataError(f"'{folder / empty[0]}' has no .tar shards; fetch it again.")
    paths = [str(path) for listed in shards.values() for path in listed]
    listing = list_shards(str(folder), paths, how.listener, named=False)
    names = _names(folder, task)
    train, test = (_named(listing.entries.get(split, []), names, folder) for split in ("train", "test"))
    if len(train) < TRAIN + VALIDATION:
        raise DataError(f"'{folder}' has {len(train)} images to train on; VTAB-1k takes {TRAIN + VALIDATION}.")
    drawn = sorted(train, key=_draw)
    entries = {"train": drawn[:TRAIN], "validation": drawn[TRAIN : TRAIN + VALIDATION], "test": evenly(test, most_test)}
    note = (
        f"The images of {task.name} are from WebDataset shards, whose order does not tell which VTAB-1k's are: {TRAIN} and "
        f"{VALIDATION} of {len(train):,} were drawn by a hash of their names, so that figures compare only roughly."
    )
    return task.listing(listing.store, entries, names, (note, *task.size_notes(len(test))))


def shards_of(root: Path, task: VtabTask) -> Path | None:
    """Return the folder of a task's shards; None if there is none."""
    return next((path for prefix in PREFIXES if (path := root / f"{prefix}{task.shards}").is_dir()), None)


def _draw(entry: Entry) -> bytes:
    return hashlib.sha256(entry.name.encode(errors="surrogateescape")).digest()


def _names(folder: Path, task: VtabTask) -> tuple[str, ...]:
    try:
        names = tuple(line for line in text_of(folder / NAMES).splitlines() if line)
    except (OSError, UnicodeDecodeError):
        names = ()
    if len(set(names)) == len(names) == task.classes:
        return names
    return task.numbered


def _named(entries: list[Entry], names: tuple[str, ...], folder: Path) -> list[Entry]:
    """Return images with the names of their classes in place of numbers."""
    named = []
    for entry in entries:
        (label,) = entry.classes
        if not label.isdecimal() or int(label) >= len(names):
            raise DataError(f"'{folder}', '{entry.name}' has the class '{label}'; there are {len(names)}.")
        named.append(entry._replace(classes=(names[int(label)],)))
    return named
