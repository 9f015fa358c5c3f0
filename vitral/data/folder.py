"""A folder of pictures with one sub-folder a class, with or without train/, val/ and test/ above the classes.

The class names are the sub-folders of the training split in natural order (2 before 10), taken once; every other split, and
every later use, is matched to them by name.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from vitral.data.source import BadImage, DataSet
from vitral.data.splits import stratified
from vitral.errors import DataError, ImageError, did_you_mean
from vitral.events import Listener, Progress, ignore
from vitral.images.augment import Augmentation
from vitral.images.decode import EXTENSIONS, Pixels, Shrink, read_image

SPLIT_FOLDERS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
SPLIT_SEED = 0  # fixed, so that a folder is shared out the same way whenever it is opened
SHARE = 0.1  # of the pictures of a class for validation, and for test
AUGMENTATION = Augmentation(crop="inception", min_area=0.25, flip=True, decode="scaled")
NAMED = 5  # how many bad pictures an error names


@dataclass(frozen=True)
class Entry:
    """A picture's path below the root, the folder of its class, and its bytes."""

    path: str
    class_name: str
    size: int


class FolderSource:
    """A split of a folder.

    The paths are kept in one buffer: a list of as many strings would be copied, page by page, into every worker process
    that so much as counts a reference.
    """

    endless = False
    shards: tuple[int, ...] = ()

    def __init__(self, root: Path, paths: Sequence[str], labels: Sequence[int]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._root = root
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)
        self._labels = np.array(labels, dtype=np.int64)

    def __len__(self) -> int:
        """Return how many pictures there are."""
        return len(self._labels)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return a picture as RGB pixels, the right way up.

        Raises:
            ImageError: it cannot be read.
        """
        return read_image(self.describe(index), shrink=shrink)

    def label(self, index: int) -> int:
        """Return the class of a picture."""
        return int(self._labels[index])

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order."""
        return self._labels

    def describe(self, index: int) -> str:
        """Return a picture's path."""
        start = 0 if index == 0 else self._ends[index - 1]
        return str(self._root / os.fsdecode(self._bytes[start : self._ends[index]].tobytes()))


def open_folder(
    folder: Path,
    *,
    class_names: Sequence[str] | None = None,
    skip_bad_images: bool = False,
    trained_on: str | None = None,
    listener: Listener = ignore,
) -> DataSet:
    """Read a folder's classes and splits, and decode every picture once to know that it can be read.

    Without split folders the pictures are shared out 80/10/10 by class; a missing validation split is taken from train, a
    missing test split is left missing. Nothing in the folder is ever written.

    Args:
        folder: the root.
        class_names: the order of the classes, as a classifier has it; None takes the folder's own.
        skip_bad_images: leave out pictures that cannot be read, and list them, in place of an error.
        trained_on: None to open data to train on. To evaluate, the fingerprint of what the classifier was trained on: a
            folder without split folders is then shared out as for training if it is the same, and else scored whole.
        listener: hears of the checking's progress.

    Raises:
        DataError: the folder is no data set, or its classes do not match `class_names`.
        ImageError: pictures cannot be read; the first are named, all are counted.
    """
    if not folder.exists():
        raise DataError(f"The folder '{folder}' does not exist.")
    if not folder.is_dir():
        raise DataError(f"'{folder}' is a file; give the folder that holds one sub-folder a class.")
    roots = _split_roots(folder)
    notes: list[str] = []
    entries = {split: _entries(folder, root, notes) for split, root in roots.items()}
    entries, bad = _check(folder, entries, skip_bad_images=skip_bad_images, listener=listener)
    names = _class_names(folder, entries, class_names, notes)
    fingerprint = _fingerprint(entries)
    splits = _share_out(entries, names, notes, whole=trained_on is not None and trained_on != fingerprint)
    return DataSet(
        name=folder.resolve().name or "folder",
        class_names=names,
        splits={
            split: FolderSource(
                folder, [entry.path for entry in chosen], [names.index(entry.class_name) for entry in chosen]
            )
            for split, chosen in splits.items()
        },
        augmentation=AUGMENTATION,
        bad_images=bad,
        notes=tuple(notes),
        fingerprint=fingerprint,
    )


def natural_key(name: str) -> tuple[tuple[int, int | str], ...]:
    """Return a sorting key that puts 2 before 10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts if part)


def _split_roots(folder: Path) -> dict[str, Path]:
    below = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_dir()}
    found = {split: below[name] for split, names in SPLIT_FOLDERS.items() for name in reversed(names) if name in below}
    return found if "train" in found else {"all": folder}


def _entries(folder: Path, root: Path, notes: list[str]) -> list[Entry]:
    entries: list[Entry] = []
    strangers = 0
    for class_folder in sorted(
        (path for path in root.iterdir() if _visible(path)), key=lambda path: natural_key(path.name)
    ):
        if not class_folder.is_dir():
            strangers += 1
            continue
        pictures, others = _pictures(class_folder)
        strangers += others
        if not pictures:
            notes.append(f"The folder '{class_folder}' holds no pictures and is no class.")
        entries += [Entry(str(path.relative_to(folder)), class_folder.name, path.stat().st_size) for path in pictures]
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


def _visible(path: Path) -> bool:
    return not path.name.startswith(".")


def _check(
    folder: Path, entries: dict[str, list[Entry]], *, skip_bad_images: bool, listener: Listener
) -> tuple[dict[str, list[Entry]], tuple[BadImage, ...]]:
    every = [entry for chosen in entries.values() for entry in chosen]
    reasons: dict[str, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (entry, reason) in enumerate(pool.map(lambda entry: (entry, _reason(folder, entry)), every), 1):
            if reason is not None:
                reasons[entry.path] = reason
            if done % 50 == 0 or done == len(every):
                listener(Progress("check pictures", done, len(every)))
    bad = tuple(BadImage(str(folder / path), reason) for path, reason in reasons.items())
    if bad and not skip_bad_images:
        named = "; ".join(image.reason for image in bad[:NAMED])
        more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise ImageError(
            f"{len(bad)} of {len(every)} pictures cannot be read: {named}{more}. "
            "Mend or remove them, or go on without them by --skip-bad-images."
        )
    return {split: [entry for entry in chosen if entry.path not in reasons] for split, chosen in entries.items()}, bad


def _reason(folder: Path, entry: Entry) -> str | None:
    try:
        read_image(folder / entry.path)
    except ImageError as error:
        return str(error).rstrip(".")
    return None


def _class_names(
    folder: Path, entries: dict[str, list[Entry]], wanted: Sequence[str] | None, notes: list[str]
) -> tuple[str, ...]:
    found = {split: {entry.class_name for entry in chosen} for split, chosen in entries.items()}
    base = found.get("train", found.get("all", set()))
    if wanted is not None:
        everything = set().union(*found.values())
        for name in sorted(everything - set(wanted), key=natural_key):
            raise DataError(
                f"The classifier does not know the class '{name}' of '{folder}'.{did_you_mean(name, wanted)}"
            )
        if not everything:
            raise DataError(f"'{folder}' holds no pictures in class folders.")
        if missing := [name for name in wanted if name not in everything]:
            notes.append(f"No pictures of {len(missing)} of the classifier's classes: {', '.join(missing[:NAMED])}.")
        return tuple(wanted)
    if len(base) < 2:
        what = f"only one class ('{next(iter(base))}')" if base else "no classes"
        raise DataError(
            f"'{folder}' has {what}; it needs at least two sub-folders with pictures, one a class "
            "(or train/ with such sub-folders)."
        )
    for split, names in found.items():
        for name in sorted(names - base, key=natural_key):
            raise DataError(
                f"The class '{name}' is in {split} but has no training pictures in '{folder}'.{did_you_mean(name, base)}"
            )
        if split != "all" and (missing := sorted(base - names, key=natural_key)):
            notes.append(f"No {split} pictures of: {', '.join(missing[:NAMED])}.")
    return tuple(sorted(base, key=natural_key))


def _share_out(
    entries: dict[str, list[Entry]], names: tuple[str, ...], notes: list[str], *, whole: bool
) -> dict[str, list[Entry]]:
    if "all" in entries and whole:
        notes.append("The folder has no train/ and test/ and is not what was trained on, so all of it is scored.")
        return {"test": entries["all"]}
    if "all" in entries:
        parts = _stratify(entries["all"], names, (SHARE, SHARE))
        notes.append(
            "No train/ folder, so the pictures of each class were shared out: 80 % train, 10 % validation and test."
        )
        splits = dict(zip(("train", "validation", "test"), parts, strict=True))
    elif "validation" not in entries:
        train, validation = _stratify(entries["train"], names, (SHARE,))
        notes.append("No val/ folder, so 10 % of the training pictures of each class became the validation split.")
        splits = {**entries, "train": train, "validation": validation}
    else:
        splits = dict(entries)
    if "test" not in splits:
        notes.append("No test/ folder: scores are of the validation split, which also chose the best step.")
    return {split: chosen for split, chosen in splits.items() if chosen}


def _stratify(entries: list[Entry], names: tuple[str, ...], shares: tuple[float, ...]) -> list[list[Entry]]:
    labels = np.array([names.index(entry.class_name) for entry in entries], dtype=np.int64)
    parts = stratified(labels, shares, seed=SPLIT_SEED, purpose="folder")
    return [[entries[index] for index in part] for part in parts]


def _fingerprint(entries: dict[str, list[Entry]]) -> str:
    lines = sorted(f"{entry.path}\t{entry.size}" for chosen in entries.values() for entry in chosen)
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()
