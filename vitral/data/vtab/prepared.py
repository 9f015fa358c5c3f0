"""A dataset as TFDS prepared it on disk: ROOT/NAME[/CONFIGURATION]/VERSION, with files of records for each split.

Images are in the order of the files, and of the records in each, which is the order that TFDS's slices count in.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vitral.data.vtab.records import KINDS, Records
from vitral.errors import DataError
from vitral.files import text_of

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
FILE = re.compile(
    rf"(?P<name>.+)-(?P<split>[a-z_]+)\.(?P<kind>{'|'.join(KINDS)})-(?P<number>\d{{5}})-of-(?P<of>\d{{5}})"
)
SLICE = re.compile(r"(?P<split>\w+)(?:\[(?P<first>\d+%?)?:(?P<last>\d+%?)?\])?")
INFO = "dataset_info.json"
NAMES = "label.labels.txt"


RecordPlace = tuple[int, int]  # the number of a record's file among the open files, and its index there


@dataclass
class PreparedDataset:
    """A prepared dataset: the folder of its version, and the files that were opened so far."""

    folder: Path
    version: str
    files: list[Records] = field(default_factory=list)

    def is_of(self, major: int) -> bool:
        """Tell whether it is of a major version."""
        return int(self.version.split(".")[0]) == major

    def locate(self, part: str) -> list[RecordPlace]:
        """Return the records of a part of a split, such as "train[:800]", opening no more files than it takes.

        Raises:
            DataError: files are missing or damaged, or the split has fewer records.
        """
        split = part.partition("[")[0]
        paths = self._paths(split)
        lengths = self._lengths(split, paths)
        ends = np.cumsum(lengths)
        first, last = bounds(part, int(ends[-1]), self.folder)
        located = []
        for number in range(int(np.searchsorted(ends, first, side="right")), len(paths)):
            begin = int(ends[number]) - lengths[number]
            if begin >= last:
                break
            file = self._open(paths[number])
            if (count := len(self.files[file])) != lengths[number]:
                raise DataError(
                    f"'{paths[number]}' has {count:,} records and should have {lengths[number]:,}; prepare it again."
                )
            located += [(file, index - begin) for index in range(max(first, begin), min(last, int(ends[number])))]
        return located

    def names(self) -> tuple[str, ...]:
        """Return the names of the classes, in order, or raise DataError if two are the same; none without a list of them."""
        try:
            names = [line for line in text_of(self.folder / NAMES).split("\n") if line.strip()]
        except (OSError, UnicodeDecodeError):
            return ()
        if len(set(names)) < len(names):
            raise DataError(f"'{self.folder / NAMES}' names a class twice; prepare the dataset again.")
        return tuple(names)

    def _paths(self, split: str) -> list[Path]:
        found = {path: match for path in sorted(self.folder.iterdir()) if (match := FILE.fullmatch(path.name))}
        mine = {path: match for path, match in found.items() if match["split"] == split}
        if not mine:
            splits = ", ".join(dict.fromkeys(match["split"] for match in found.values())) or "none"
            raise DataError(
                f"'{self.folder}' has no files of the split '{split}' (splits: {splits}); prepare it again."
            )
        kind, of = next((match["kind"], int(match["of"])) for match in mine.values())
        paths = [path for path, match in mine.items() if match["kind"] == kind and int(match["of"]) == of]
        if len(paths) != of:
            there = {int(mine[path]["number"]) for path in paths}
            missing = [number for number in range(of) if number not in there]
            raise DataError(
                f"'{self.folder}' lacks {len(missing)} of the {of} files of {split} (the first is number {missing[0]}); "
                "prepare or copy it again."
            )
        return paths

    def _lengths(self, split: str, paths: Sequence[Path]) -> list[int]:
        """Return how many records each file has, as the dataset says, or else by counting."""
        lengths = _recorded_lengths(self.folder).get(split)
        if lengths is not None and len(lengths) == len(paths):
            return lengths
        return [len(self.files[self._open(path)]) for path in paths]

    def _open(self, path: Path) -> int:
        """Return the number of a file among those that are open."""
        opened = [records.path for records in self.files]
        if path in opened:
            return opened.index(path)
        kind = path.name.rpartition(".")[2].partition("-")[0]
        self.files.append(KINDS[kind](path))
        return len(opened)


def bounds(part: str, total: int, folder: Path) -> tuple[int, int]:
    """Return the first index of a part of a split of so many images, such as "train[:800]", and the one after the last.

    Raises:
        DataError: the split has fewer images.
    """
    match = SLICE.fullmatch(part)
    assert match is not None, f"{part} is no slice"
    first, last = (_position(match[name], total, default) for name, default in (("first", 0), ("last", total)))
    if not 0 <= first < last <= total:
        raise DataError(f"'{folder}' has {total:,} {match['split']} images, and '{part}' takes more.")
    return first, last


def find(root: Path, dataset: str, version: int) -> PreparedDataset | None:
    """Return a prepared dataset below TFDS's folder: the newest of a major version, else the newest; None if there is none."""
    folder = root / dataset
    if not folder.is_dir():
        return None
    versions = {
        tuple(map(int, match.groups())): path for path in folder.iterdir() if (match := VERSION.fullmatch(path.name))
    }
    wanted = [number for number in versions if number[0] == version]
    if not versions:
        return None
    newest = max(wanted or versions)
    return PreparedDataset(versions[newest], ".".join(map(str, newest)))


def _position(text: str | None, total: int, default: int) -> int:
    if text is None:
        return default
    return round(int(text[:-1]) * total / 100) if text.endswith("%") else int(text)


def _recorded_lengths(folder: Path) -> dict[str, list[int]]:
    """Return the numbers of records of each split's files, as far as the dataset says them."""
    try:
        info: Any = json.loads(text_of(folder / INFO))
        return {split["name"]: [int(length) for length in split["shardLengths"]] for split in info["splits"]}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
