"""Where a table's images are: by paths as written, from another machine, without suffix, or in folders of any name.

What all paths of a table have in common at their beginning may be another machine's, or an address's; what they differ in
never is left out, so that no image is taken for another. A name that fits several images is refused.
"""

import functools
import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from vitral.data.batch import evenly
from vitral.data.names import ALL, UPLOADED, composed, is_address, some, split_within
from vitral.errors import DataError
from vitral.images.decode import EXTENSIONS
from vitral.paths import files_below, is_folder, is_hidden, look_at

TRIED = 20  # rows that are tried to find the images' folder
MOST_FILES = 1_000_000  # below the table's folder among which images are looked for
MOST_BESIDE = 100  # folders beside that of the table that are tried
MOST_ABOVE = 4  # folders above that of the table that are tried, in one of which its program may have run
SHOWN = 200  # characters of a name that a message repeats


class Found(NamedTuple):
    """The file that a row names, or would name, and its size in bytes; None where there is no such file."""

    path: str
    size: int | None


class Place(NamedTuple):
    """How paths become files: the folder, how many leading parts are left out, and the suffix that is added."""

    folder: Path
    dropped: int
    suffix: str


class ImageFinder:
    """Finds the images of a table; of several of one name that in a folder of the table's split.

    Attributes:
        elsewhere: The folders of the images that a path leads to only by its end.
    """

    def __init__(self, table: Path, split: str = ALL) -> None:
        self._table, self._split = table, split
        self.elsewhere: dict[str, None] = {}

    def find(self, names: Sequence[str]) -> list[Found]:
        """Return the file of each of a table's paths, which may be missing for some.

        Raises:
            DataError: none is found anywhere, or one may be either of several.
        """
        place = self._place(names)
        if place is None and len({*(own := [_before_upload(name) for name in names])}) == len({*names}):
            place, names = self._place(own), own
        if place is None and is_address(names[0]):
            raise DataError(
                f"The images in '{self._table}' are at addresses, such as '{names[0]:.{SHOWN}}', and none is here under its "
                "name; download them into a folder beside the table."
            )
        if place is None:
            where = f"{self._table.parent / names[0]}"
            raise DataError(
                f"None of the {len(names):,} images in '{self._table}' exists, such as '{where:.{SHOWN}}'; "
                "paths are relative to the table's folder."
            )
        return [self._found(name, place) for name in names]

    def count(self, names: Sequence[str]) -> int:
        """Return how many of some paths are found."""
        place = self._place(names)
        return 0 if place is None else sum(self._found(name, place).size is not None for name in names)

    def _place(self, names: Sequence[str]) -> Place | None:
        tried, dropped = evenly(names, TRIED), _foreign(names)
        here = self._table.parent
        near = (here, here / "images", here / self._table.stem, here.parent, here.parent / "images")
        places, most = _best(tried, tuple(dict.fromkeys(near)), dropped)
        if most:
            return places[0]
        if fitting := [count for count in dropped if any(self._below(name, count) for name in tried)]:
            return Place(here, fitting[0], "")
        places, most = _best(tried, self._beside(), dropped)
        if tried and most == len(tried):
            return self._one_of(places, names[0])
        if (above := self._above(tried)) is not None:
            self.elsewhere[str(above)] = None
            return Place(above, 0, "")
        return Place(here, 0, "") if not tried or any(_image(here / name) for name in names) else None

    def _above(self, tried: Sequence[str]) -> Path | None:
        """Return the folder above that of the table, or the current one, to which paths with folders are relative, if any."""
        if not tried or not all("/" in name.removeprefix("./") and not name.startswith("..") for name in tried):
            return None
        above = (*self._table.parent.resolve().parents[:MOST_ABOVE], Path.cwd())
        return next((folder for folder in above if all(_image(folder / name) is not None for name in tried)), None)

    def _beside(self) -> list[Path]:
        """Return the folders beside that of the table, for a table in a folder of its own."""
        around = self._table.parent.resolve().parent
        try:
            names = sorted(name for name in os.listdir(around) if not is_hidden(name))[:MOST_BESIDE]
        except OSError:
            return []
        return [around / name for name in names if is_folder(around / name)]

    def _one_of(self, places: list[Place], name: str) -> Place:
        """Return the only place of some, or that of the table's split."""
        folders = self._of_split([f"{place.folder}/" for place in places])
        if len(folders) > 1:
            raise self._either(name, folders)
        self.elsewhere[folders[0].rstrip("/")] = None
        return next(place for place in places if f"{place.folder}/" == folders[0])

    def _found(self, name: str, place: Place) -> Found:
        path = str(place.folder / (_left(name, place.dropped) + place.suffix))
        if (status := _image(path)) is not None:
            return Found(path, status.st_size)
        fitting = self._below(name, place.dropped)
        if len(fitting) > 1:
            raise self._either(name, fitting)
        status = _image(self._table.parent / fitting[0]) if fitting else None
        if status is None:
            return Found(str(self._table.parent / name), None)
        self.elsewhere[str(PurePosixPath(fitting[0]).parent)] = None
        return Found(str(self._table.parent / fitting[0]), status.st_size)

    def _either(self, name: str, paths: Sequence[str]) -> DataError:
        return DataError(
            f"'{name}' in '{self._table}' may be in any of {some(paths)}; write the folder into the table."
        )

    def _below(self, name: str, dropped: int) -> list[str]:
        """Return the images below the table's folder whose paths end in a name, in whatever case and Unicode form."""
        parts = [part for part in _left(name, dropped).split("/") if part not in ("", ".", "..")]
        if not parts or (dropped and len(parts) == 1):  # a bare name would fit what is in any folder
            return []
        wanted = [_key(part) for part in parts]
        fitting = [
            path
            for path in self._index.get(wanted[-1], ())
            if list(map(_key, path.split("/")[-len(parts) : -1])) == wanted[:-1]
        ]
        end = "/".join(["", *parts])
        exact = [path for path in fitting if f"/{path}".endswith(end) or f"/{path.rpartition('.')[0]}".endswith(end)]
        return self._of_split(exact or fitting)

    def _of_split(self, paths: list[str]) -> list[str]:
        if len(paths) < 2 or self._split == ALL:
            return paths
        own = [path for path in paths if any(split_within(part) == self._split for part in path.split("/")[:-1])]
        return own or paths

    @functools.cached_property
    def _index(self) -> dict[str, list[str]]:
        """The images below the table's folder by their names, with and without suffix."""
        index: dict[str, list[str]] = {}
        for number, path in enumerate(files_below(self._table.parent)):
            if number == MOST_FILES:  # of only some of them it is not known whether a name is that of one image
                return {}
            if path.lower().endswith(EXTENSIONS):
                name = PurePosixPath(path)
                for key in {_key(name.name), _key(name.stem)}:
                    index.setdefault(key, []).append(path)
        return index


def _best(tried: Sequence[str], folders: Sequence[Path], dropped: Sequence[int]) -> tuple[list[Place], int]:
    """Return where most of some paths are found, a place for each folder at the most, and how many are found there."""
    bare = all(not name.lower().endswith(EXTENSIONS) for name in tried)
    best: list[Place] = []
    most = 1
    for folder in folders:
        for count in dropped:
            for suffix in ("", *(EXTENSIONS if bare else ())):
                found = sum(_image(folder / (_left(name, count) + suffix)) is not None for name in tried)
                if found > most or (found == most and (not best or best[-1].folder != folder)):
                    best = [*(best if found == most else ()), Place(folder, count, suffix)]
                    most = found
    return best, most if best else 0


def _foreign(names: Sequence[str]) -> Sequence[int]:
    """Return how many leading parts of the paths may be another machine's: none, or those of absolute paths that all share."""
    slashed = [_slashed(name) for name in names]
    if not all(name[:1] in "/~" or name[1:3] == ":/" or is_address(name) for name in slashed):
        return (0, -1) if slashed != list(names) else (0,)
    shared = os.path.commonprefix([name.split("/")[:-1] for name in slashed])
    return (0, *range(1, len(shared) + 1))


def _before_upload(name: str) -> str:
    """Return a path with the file's own name, as it was before Label Studio stored it."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{UPLOADED.sub('', last)}"


def _left(name: str, dropped: int) -> str:
    """Return a path without so many of its leading parts, with slashes; as it is for none, with slashes alone for -1."""
    return name if dropped == 0 else "/".join(_slashed(name).split("/")[max(dropped, 0) :])


def _slashed(name: str) -> str:
    """Return a path with slashes alone; an address without what follows its path."""
    slashed = name.replace("\\", "/")
    return slashed.partition("?")[0] if is_address(slashed) else slashed


def _key(name: str) -> str:
    """Return what names of one image have in common: letters without case, and numbers without zeros before them."""
    return (name.lstrip("0") or "0") if name.isascii() and name.isdecimal() else composed(name).casefold()


def _image(path: str | Path) -> os.stat_result | None:
    """Return the status of what a path names, unless that is a folder."""
    status = look_at(path)
    return None if status is None or stat.S_ISDIR(status.st_mode) else status
