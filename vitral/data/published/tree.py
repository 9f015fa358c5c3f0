"""The files of a published dataset, wherever they are: in a folder, in an archive, or in the authors' archives in a folder.

Labels that authors give out in .mat files are read here.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int64

from vitral.data.archive import TAR_SUFFIXES, ZIP_SUFFIXES, Member, TarImages, is_archive, open_archive, open_tars
from vitral.data.folder import Files, ours_error
from vitral.data.listing import Listing
from vitral.data.stored import Entry, JoinedStores, Store, content_at
from vitral.errors import DataError, ImageError, one_line
from vitral.paths import FoundFile, is_folder, look_at, nearest_path, refuse_endless, walk

ABOVE_ALL_NUMBERS = 1 << 31  # of images and classes
MOST_TEXT = 1 << 26  # bytes of a list or of a file of labels
Key = TypeVar("Key", bound=Hashable)
# The end of a path that an archive unpacks to, as a pattern, or what tells of a path whether it is such a one.
Unpacked = str | Callable[[str], bool]


def read_matlab(content: BytesIO, where: str) -> dict[str, Any]:
    """Return the variables of a .mat file, or raise DataError if it is none, or damaged; nothing in it is run."""
    from scipy.io import loadmat  # half a second of start-up, for these files alone

    try:
        return dict(loadmat(content, squeeze_me=True))
    except Exception as error:  # damaged files raise many types
        raise DataError(f"{where} cannot be read as a MATLAB file ({one_line(error)}); fetch it again.") from error


def whole_numbers(values: object) -> Int64[np.ndarray, " numbers"] | None:
    """Return a variable's numbers of images or classes; None where they are not all whole, positive and below 2^31."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iuf" or not numbers.size:
        return None
    # NaN compares as neither larger nor smaller, and would silently become some integer.
    if not ((numbers >= 1) & (numbers < ABOVE_ALL_NUMBERS) & (numbers == np.floor(numbers))).all():
        return None
    return numbers.ravel().astype(np.int64)


class Tree:
    """Files by index, with their paths below what the user named; an archive counts as the files in it.

    Attributes:
        title: The folder or archive that the user named.
        dataset: The dataset's name for people: "CIFAR-10".
        files: Paths and sizes; the index of a file is also its index in the store.
        store: The files' contents.
    """

    def __init__(
        self,
        path: Path,
        dataset: str,
        archives: Mapping[str, Unpacked],
        tars: Callable[[Sequence[FoundFile]], list[str]] = lambda files: [],
    ) -> None:
        """List the files.

        Args:
            path: A folder or an archive.
            dataset: The dataset's name for people.
            archives: The authors' archives by name, without suffix, as a pattern, each with the paths that it would unpack
                to: an archive that has been unpacked beside is not opened.
            tars: Returns, from a folder's files, the paths of uncompressed tars that stand for the folder of their name.

        Raises:
            DataError: there is nothing of that name, or an archive is damaged.
        """
        self.title, self.dataset = path, dataset
        if look_at(path) is None:
            raise DataError(f"There is no folder or archive '{path}'; name where {dataset} is.{nearest_path(path)}")
        refuse_endless(path, DataError)
        if not is_folder(path) and not is_archive(path):
            raise DataError(f"'{path}' is neither a folder nor a .tar, .tar.gz or .zip file; name where {dataset} is.")
        if is_folder(path):
            files, store = _folder(path)
            packed = [_archive(path / name, name[: name.rfind("/") + 1]) for name in _packed(files, archives)]
            parts = [(files, store), *packed, *_tars(path, tars(files))]
        else:
            parts = [_archive(path, "")]
        self.files = [file for listed, _ in parts for file in listed]
        self.store: Store = JoinedStores([(store, len(listed)) for listed, store in parts])
        self._parts = parts

    def matching(self, pattern: str) -> list[tuple[int, re.Match[str]]]:
        """Return the indices of the files of which the end of the path, from a folder's or the file's name on, matches."""
        whole = re.compile(f"(?:.*?/)??(?:{pattern})", re.IGNORECASE)  # the pattern gets as much of the path as it can
        return [(index, match) for index, file in enumerate(self.files) if (match := whole.fullmatch(file.path))]

    def file(self, path: str, advice: str, *, named: str = "") -> int:
        """Return the index of the only file with a path that ends so; where there is none, the advice says what to do.

        Raises:
            DataError: there is none, or several.
        """
        named = named or f"'{path}'"
        indices = [index for index, _ in self.matching(re.escape(path))]
        if not indices:
            raise self.incomplete(named, advice)
        if len(indices) > 1:
            first, second = (self.store.name(index) for index in indices[:2])
            raise DataError(
                f"'{self.title}' holds {named} more than once ('{first}' and '{second}'); name the folder of one of them."
            )
        return indices[0]

    def once(self, indices: Iterable[tuple[Key, int]], named: str) -> dict[Key, int]:
        """Return files, given with their keys, by these; messages call one `named`: "an image".

        Raises:
            DataError: two files have one key.
        """
        known: dict[Key, int] = {}
        for key, index in indices:
            if key in known:
                first, second = (self.store.name(twin) for twin in (known[key], index))
                raise DataError(
                    f"'{self.title}' holds {named} twice ('{first}' and '{second}'); move one of the two elsewhere, or "
                    "name the folder of one."
                )
            known[key] = index
        return known

    def incomplete(self, named: str, advice: str) -> DataError:
        """Return the error for a dataset of which something is missing."""
        return DataError(f"'{self.title}' is not a complete {self.dataset}: it has no {named}; {advice}.")

    def content(self, index: int) -> bytes:
        """Return a file's bytes, or raise DataError if it cannot be read, or is too large; for lists and labels."""
        name, size = self.files[index]
        if size > MOST_TEXT:
            raise DataError(f"'{self.store.name(index)}' has {size:,} bytes, too many for a list of {self.dataset}.")
        try:
            return content_at(self.store, index)
        except (OSError, ImageError) as error:
            raise DataError(f"'{name}' in '{self.title}' cannot be read ({error}).") from error

    def lines(self, index: int) -> list[str]:
        """Return the lines of a text, without those that are empty, or raise DataError if it cannot be read, or is not text."""
        try:
            text = self.content(index).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(f"'{self.store.name(index)}' is not a text in UTF-8 ({error}).") from error
        return [line.strip() for line in text.splitlines() if line.strip()]

    def entry(self, index: int, name: str, *classes: str) -> Entry:
        """Return an image of the dataset, under a name of its own."""
        return Entry(index, name, classes, self.files[index].size)

    def listing(
        self, name: str, entries: Mapping[str, list[Entry]], class_names: tuple[str, ...], published: Mapping[str, int]
    ) -> Listing:
        """Return the dataset's images, with a note for each split that has not as many as the published one."""
        notes = counted(entries, published, self.dataset)
        return Listing(
            title=str(self.title), name=name, store=self.store, entries=entries, class_names=class_names, notes=notes
        )

    def location(self, index: int) -> tuple[Path, int]:
        """Return the plain file in which a file's bytes are, and their offset there.

        Raises:
            DataError: they are compressed.
        """
        for listed, store in self._parts:
            if index < len(listed) and isinstance(store, Files):
                return store.read(index), 0
            if index < len(listed) and isinstance(store, TarImages):
                return store.location(index)
            index -= len(listed)
        raise DataError(f"'{self.title}' is a zip file, which {self.dataset} is not given out in; unpack it.")


def counted(images: Mapping[str, Sequence[object]], published: Mapping[str, int], dataset: str) -> tuple[str, ...]:
    """Return a note for each split that has not as many images as the published one."""
    return tuple(
        f"{len(images[split]):,} {split} images, where the published {dataset} has {count:,}: not the figures of papers."
        for split, count in published.items()
        if split in images and len(images[split]) != count
    )


def _folder(path: Path) -> tuple[list[FoundFile], Store]:
    walked = walk(path)
    if walked.ours == [""]:
        raise ours_error(path)
    if walked.closed:
        raise DataError(f"The folder '{path / walked.closed[0]}' cannot be read; allow reading it.")
    return walked.files, Files(path, [file.path for file in walked.files])


def _packed(files: list[FoundFile], archives: Mapping[str, Unpacked]) -> list[str]:
    """Return the authors' archives in a folder that are not unpacked there."""
    packed = []
    suffixes = "|".join(re.escape(suffix) for suffix in (*TAR_SUFFIXES, *ZIP_SUFFIXES))
    for stem, unpacked in archives.items():
        there = _ends_with(unpacked) if isinstance(unpacked, str) else unpacked
        if any(there(file.path) for file in files):
            continue
        name = re.compile(f"(?:.*/)?(?:{stem})(?:{suffixes})")
        packed += [file.path for file in files if name.fullmatch(file.path)]
    return packed


def _ends_with(pattern: str) -> Callable[[str], bool]:
    whole = re.compile(f"(?:.*/)?(?:{pattern})", re.IGNORECASE)
    return lambda path: whole.fullmatch(path) is not None


def _archive(path: Path, parent: str) -> tuple[list[FoundFile], Store]:
    members, store = open_archive(path, nested=True)
    return _below(parent, members), store


def _tars(path: Path, tars: Sequence[str]) -> list[tuple[list[FoundFile], Store]]:
    opened = zip(tars, open_tars([path / tar for tar in tars]), strict=True)
    return [(_below(f"{tar.rpartition('.')[0]}/", members), store) for tar, (members, store) in opened]


def _below(parent: str, members: Sequence[Member]) -> list[FoundFile]:
    return [FoundFile(f"{parent}{member.name.removeprefix('./').lstrip('/')}", member.size) for member in members]
