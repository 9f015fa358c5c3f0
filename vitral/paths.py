"""The paths that a user names, walked safely, and the names of files that commands, other tools and users share.

Only regular files are opened, each real folder is visited once, and folders of Vitral's are skipped. A pipe would make a reader
wait forever, a device never ends, and a link may lead back to a parent. A folder that Vitral wrote may be among the data, but
is not data.
"""

import contextlib
import glob
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from vitral.errors import VitralError, nearest_name

RUNS = Path("runs")  # the parent of run folders if no folder is given
LIMIT = "VITRAL_MAX_PIXELS"  # in the environment: the pixels above which an image is refused
# In a run's folder.
CLASSIFIER = "classifier"  # the trained classifier
RUN_FILE = "run.json"  # the request, the start, the data and the machine
PLAN_FILE = "plan.json"  # what was decided before the first step, which resuming reads
RECIPE_FILE = "recipe.toml"
METRICS_FILE = "metrics.jsonl"
DATA_FILE = "data.json"  # what the data were
CHECKPOINTS = "checkpoints"  # from which a run resumes
FIRST = "first"  # the folder of the classifier that a run has before it trains
FIRST_FILE = "first.json"  # how good the classifier is that a run has before it trains
ATTEMPTS = (
    "attempts"  # where a run of several attempts keeps each of them, in the folder that `attempt_folder_name` says
)
ATTEMPT_FILE = "attempt.json"  # in the folder of a finished attempt: how good it is
OUTCOME_FILE = "outcome.json"  # in the folder of one that is not finished, or its longer training is not: why
EVALUATION_FILE = "evaluation.json"  # the scores of what the run delivers: its last file but for the report
REPORT_FILE = "report.html"
# In a classifier folder.
DESCRIPTION = "classifier.json"
WEIGHTS = "weights.safetensors"
CARD = "README.md"
TUNING = "tuning.svg"
FEATURES = "features.safetensors"  # of images that the network knows
CLASSIFIER_FILES = (DESCRIPTION, WEIGHTS, CARD, TUNING, FEATURES)
# In a folder of what is found in photos.
PREDICTIONS = "predictions.json"
COUNTS = "counts.csv"
# Folders of what is found in photos: of each pixel the number of its class, and of its object from 1 on in the order of the
# JSON, 0 for none; and the photos.
CLASS_MAPS = "labels"
OBJECT_MAPS = "instances"
OVERLAYS = "overlays"
MAPS = (CLASS_MAPS, OBJECT_MAPS, OVERLAYS)  # one at least wherever there are outlines
MARK_LIMIT = 1 << 24  # bytes of a file that are searched for our marks
# The marks of our own files, by name.
MARKS = {"run.json": b'"data_fingerprint"', "classifier.json": b'"vitral-classifier"'}
# A run that lost its run.json is recognised by its recipe and either of the files beside it.
BESIDE_RECIPE = (METRICS_FILE, CHECKPOINTS)
# The names by which a folder that Vitral wrote is recognised.
MARKERS = {*MARKS, RECIPE_FILE, *BESIDE_RECIPE, PREDICTIONS, COUNTS, *MAPS}
LFS = b"version https://git-lfs."  # how a file begins that git lfs has not fetched
POINTER = "is a pointer of Git LFS, not the file itself; fetch it with 'git lfs pull'"
IN_ICLOUD = ".icloud"  # how the name of what stands for a file ends: ".IMG_1.HEIC.icloud"
FILE = "file:"  # begins the address of a local file
HOMELESS = "/nonexistent"  # the home of a user of a container who has none, where nothing can be kept
# What systems put beside a user's files, in lower case: thumbnails, snapshots, recycle bins, and what a check of a disk finds.
OF_SYSTEMS = {
    *("@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot", "@sharebin", "@tmp"),
    *("$recycle.bin", "recycler", "system volume information", "thumbs.db", "ehthumbs.db", "desktop.ini"),
    *("lost+found", "lost.dir", "network trash folder", "temporary items"),
}


def cache(kind: str) -> Path:
    """Return the folder on this machine for files that can be fetched or made again."""
    home = os.path.expanduser("~")
    kept = os.environ.get("XDG_CACHE_HOME") or f"{HOMELESS if home == '~' else home}/.cache"
    return Path(kept) / "vitral" / kind


class FoundFile(NamedTuple):
    """A file below a folder: its path relative to the folder, with "/" between the parts, and its size in bytes."""

    path: str
    size: int


@dataclass
class Walk:
    """The content of a folder; paths are relative to it, with "/" between the parts.

    Attributes:
        files: The files that are not hidden.
        folders: The folders that were visited.
        broken: The links that lead nowhere, or in a circle.
        again: The links to a folder that was already visited.
        ours: The folders that Vitral wrote, which were not visited.
        closed: The folders that cannot be read.
        systems: The folders of systems, such as recycle bins, which were not visited.
        absent: The files that stand for those that iCloud has not brought to this machine.
    """

    files: list[FoundFile] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    systems: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def look_at(path: str | Path) -> os.stat_result | None:
    """Return a path's status, links followed; None if it does not exist or cannot be a path at all."""
    try:
        return os.stat(path)
    except (OSError, ValueError):  # a name may be too long, or contain a zero byte
        return None


def nearest_path(path: str | Path, others: Iterable[str] = ()) -> str:
    """Return `` Did you mean 'photos/'?`` for a path that is not there, by the nearest name beside it; else an empty string.

    Args:
        path: The path.
        others: What else could have been meant, such as the names of datasets.
    """
    wanted, beside = Path(path), list[Path]()
    while not is_folder(wanted.parent) and wanted.parent != wanted:
        wanted = wanted.parent  # whose name is the one that is mistyped
    with contextlib.suppress(OSError, ValueError):  # a folder that is not there either, or a name that no path can have
        # What is there is not what the user was told that it is not.
        beside = [entry for entry in wanted.parent.iterdir() if not is_hidden(entry.name) and entry.name != wanted.name]
    # By the last names alone: long folders in common would make any two paths look alike.
    known = {name: name for name in others} | {
        entry.name: f"{entry}/" if is_folder(entry) else str(entry) for entry in beside
    }
    nearest = nearest_name(wanted.name, known)
    return f" Did you mean '{known[nearest]}'?" if nearest else ""


def local_path(name: str) -> str:
    """Return the path in the address of a local file, as browsers and clusters write it; any other name as it is."""
    return url2pathname(urlsplit(name).path) if name.startswith(FILE) else name


def expanded(names: Iterable[str]) -> list[str]:
    """Return names with the paths that a pattern such as *.jpg stands for, where no shell has replaced it, as on Windows."""
    found: list[str] = []
    for name in names:
        is_pattern = look_at(name) is None and glob.has_magic(name)
        found += (sorted(glob.glob(name)) if is_pattern else []) or [name]
    return found


def attempt_folder_name(name: str) -> str:
    """Return the name of the folder of one of a run's several attempts, by the attempt's name."""
    return name.lower().replace(" ", "-")


def from_home(path: str) -> Path:
    """Return the path after a prefix such as "cifar10:", where no shell has replaced ~ by the home folder.

    The ~ of an unknown user stays as it is.
    """
    return Path(os.path.expanduser(path))  # Path.expanduser raises an error for an unknown user


def is_folder(path: str | Path) -> bool:
    """Tell whether there is a folder of that name, whatever the name."""
    return (status := look_at(path)) is not None and stat.S_ISDIR(status.st_mode)


def is_regular(path: str | Path) -> bool:
    """Tell whether there is a regular file of that name: not a folder, pipe, socket or device."""
    return (status := look_at(path)) is not None and stat.S_ISREG(status.st_mode)


def is_pointer(content: object) -> bool:
    """Tell whether bytes, or a file at a path, stand for a file that git lfs has not fetched; no for anything else."""
    if isinstance(content, bytes):
        return content.startswith(LFS)
    if not isinstance(content, str | Path) or not is_regular(content):
        return False
    try:
        with open(content, "rb") as file:
            return file.read(len(LFS)) == LFS
    except OSError:
        return False


def refuse_endless(path: str | Path, error: type[VitralError]) -> None:
    """Refuse a path that exists and is neither file nor folder, because reading it might never end.

    Raises:
        VitralError: An error of the type `error`.
    """
    status = look_at(path)
    if status is not None and not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise error(f"'{path}' is a pipe or a device, which cannot be read as a file; give a regular file.")


def walk(folder: Path) -> Walk:
    """List everything below a folder, each real folder once, links last, without hidden names.

    Folders that Vitral wrote (runs, classifiers, what was found in photos) are not visited, even if the folder itself is one.
    """
    found = Walk()
    for _ in _folders(folder, found):
        pass
    return found


def files_below(folder: Path) -> Iterator[str]:
    """Yield the path of every file that `walk` lists, and of every broken link, with a single folder's files in memory.

    The files of a folder come in order of name, before the files of its subfolders.
    """
    found = Walk()
    for _ in _folders(folder, found):
        yield from (file.path for file in found.files)
        yield from found.broken
        for listed in (found.files, found.broken, found.folders):
            listed.clear()
    yield from found.broken


def _folders(root: Path, found: Walk) -> Iterator[None]:
    """Add the content of a folder to a walk; pause after each folder."""
    seen: set[tuple[int, int]] = set()
    links: list[str] = []
    yield from _enter(root, "", found, seen, links)
    while links:
        # A folder belongs to its own path; links count only afterwards, in order of name.
        waiting, links = sorted(links), []
        for link in waiting:
            yield from _enter(root, link, found, seen, links)


def is_ours(names: Collection[str], holds: Callable[[str, bytes], bool]) -> bool:
    """Tell whether a folder, on disk or in an archive, is a run, a classifier, or what was found in photos, that Vitral wrote.

    Args:
        names: The folder's entries.
        holds: A function that tells whether a named file has some bytes among its first `MARK_LIMIT`.
    """
    if RECIPE_FILE in names and any(name in names for name in BESIDE_RECIPE):
        return True
    if PREDICTIONS in names and COUNTS in names and any(name in names for name in MAPS):
        return True
    return any(name in names and holds(name, mark) for name, mark in MARKS.items())


def _enter(root: Path, start: str, found: Walk, seen: set[tuple[int, int]], links: list[str]) -> Iterator[None]:
    """Visit a folder and all real folders below it, and add linked folders to `links`; pause after each."""
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        path = root / folder
        if (status := look_at(path)) is None:
            found.broken.append(folder)
            continue
        if (status.st_dev, status.st_ino) in seen:
            found.again.append(folder)
            continue
        seen.add((status.st_dev, status.st_ino))
        try:
            with os.scandir(path) as every:
                listed = sorted(every, key=lambda entry: entry.name)
            found.systems += [
                _below(folder, entry.name) for entry in listed if is_of_system(entry.name) and entry.is_dir()
            ]
        except OSError:
            found.closed.append(folder)
            continue
        found.absent += [_below(folder, entry.name) for entry in listed if entry.name.endswith(IN_ICLOUD)]
        entries = [entry for entry in listed if not is_hidden(entry.name)]
        if is_ours({entry.name for entry in entries}, partial(_holds, path)):
            found.ours.append(folder)
            continue
        found.folders.append(folder)
        waiting.extend(reversed(list(_sort_out(entries, folder, found, links))))
        yield


def is_hidden(name: str) -> bool:
    """Tell whether a name is not the user's own: hidden, left in an archive by macOS, or a system's."""
    return name.startswith((".", "__MACOSX")) or is_of_system(name)


def is_of_system(name: str) -> bool:
    """Tell whether a system gave a file or folder its name, though it is not hidden: "@eaDir", "$RECYCLE.BIN"."""
    return name.lower() in OF_SYSTEMS or re.fullmatch(r"found\.\d{3}", name, re.IGNORECASE) is not None


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _sort_out(entries: list["os.DirEntry[str]"], folder: str, found: Walk, links: list[str]) -> Iterator[str]:
    """Record files and links, and yield the real folders."""
    for entry in entries:
        name = _below(folder, entry.name)
        try:
            status = entry.stat()
        except OSError:
            found.broken.append(name)
            continue
        if not stat.S_ISDIR(status.st_mode):
            found.files.append(FoundFile(name, status.st_size))
        elif entry.is_symlink():
            links.append(name)
        else:
            yield name


def _holds(folder: Path, name: str, mark: bytes) -> bool:
    path = folder / name
    if not is_regular(path):
        return False
    try:
        with open(path, "rb") as file:
            return mark in file.read(MARK_LIMIT)
    except OSError:
        return False
