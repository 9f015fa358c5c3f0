"""`FileTree`: the files of a folder or of an archive, by their paths in it, so that readers of annotations need not know which.

Nothing is unpacked: a path of an archive is only looked up among its members.
"""

import functools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from vitral.data.folder import Files
from vitral.data.masks import FOLDER
from vitral.data.names import ALL, UPLOADED, composed, split_within
from vitral.data.source import BadImage
from vitral.data.stored import Store
from vitral.errors import DataError, ImageError, one_line
from vitral.images.decode import EXTENSIONS
from vitral.paths import FoundFile, Walk, refuse_endless

LARGEST = 1 << 30  # bytes of a file of annotations
JSON_BYTES = 1 << 28  # of all JSON files that are read, however many; of larger ones MOST_JSON files are
MOST_JSON = 200
DECLARED = re.compile(rb"""\s*<\?xml[^>]*?encoding=["']([\w.-]+)["'][^>]*>""")  # the encoding of XML


class StoredFile(NamedTuple):
    """A file of a folder or an archive, which can be sent to worker processes and read there."""

    store: Store
    number: int

    @property
    def name(self) -> str:
        """Its name for people: its path, or "photos.zip:masks/1.png"."""
        return self.store.name(self.number)

    def content(self) -> bytes:
        """Return its bytes, or raise DataError if it cannot be read, or is too large for annotations."""
        try:
            where = self.store.read(self.number)
            if isinstance(where, bytes):
                return where
            refuse_endless(where, DataError)
            with open(where, "rb") as file:
                content = file.read(min(os.fstat(file.fileno()).st_size, LARGEST) + 1)
        except ImageError as error:
            raise DataError(str(error)) from error
        except OSError as error:
            raise DataError(f"'{self.name}' cannot be read ({one_line(error)}).") from error
        if len(content) > LARGEST:
            raise DataError(f"'{self.name}' has over {LARGEST:,} bytes, too many for annotations.")
        return content


class Photos:
    """Those of some files that are images, found by the names that annotations call them."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = [path for path in paths if path.lower().endswith(EXTENSIONS)]

    @functools.cached_property
    def _named(self) -> dict[str, dict[str, list[str]]]:
        """The photos by their names, with and without suffix, and by their last folders."""
        named: dict[str, dict[str, list[str]]] = {}
        for path in self.paths:
            folders, _, name = path.rpartition("/")
            for key in {_key(name), _key(name.rpartition(".")[0])}:
                named.setdefault(key, {}).setdefault(folders.rpartition("/")[2], []).append(path)
        return named

    def find(self, name: str, beside: str, split: str = ALL, other_than: str | None = None) -> str | None:
        """Return the path of the photo that an annotation means; None where there is none, or it may be any of several.

        Of photos of one name the one counts whose path ends in more of the name's folders, that is in the same split, in no
        folder of masks, and in more of the annotation's folders.

        Args:
            name: The photo's name, with folders or not, with a suffix or not, of this or another machine.
            beside: The path of the file of annotations.
            split: The split that the file of annotations speaks of.
            other_than: The path of an image that is not meant: the photo's mask.
        """
        if "://" in name:
            name = name.partition("?")[0]  # an address with its signature
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        last = parts[-1] if parts else ""
        meant = dict.fromkeys(map(_key, (last, unquote(last), UPLOADED.sub("", last), UPLOADED.sub("", unquote(last)))))
        named = next((found for key in meant if (found := self._named.get(key))), {})
        # Of many photos of one name those are looked at that share a folder; others can only be nearest if none does.
        sharing = named.get(parts[-2], []) if len(parts) > 1 else []
        fitting = [path for path in sharing if path != other_than] or [
            path for paths in named.values() for path in paths if path != other_than
        ]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        around = set(PurePosixPath(beside).parts[:-1])

        def nearness(path: str) -> tuple[int, bool, bool, int]:
            folders = path.split("/")[:-1]
            shared = 0
            for own, other in zip(reversed(folders), reversed(parts[:-1]), strict=False):
                if own != other:
                    break
                shared += 1
            in_split = split != ALL and split in map(split_within, folders)
            return shared, in_split, not any(map(speaks_of_masks, folders)), len(around & set(folders))

        near = [nearness(path) for path in fitting]
        best = max(near)
        return fitting[near.index(best)] if near.count(best) == 1 else None


class FileTree:
    """The files of a folder or an archive, but for hidden ones, by their paths and by their numbers in the store.

    Attributes:
        photos: The files that are images.
        unread: JSON files that `json_files` left out.
    """

    def __init__(
        self,
        title: Path,
        name: str,
        store: Store,
        numbers: Mapping[str, int],
        files: Sequence[FoundFile],
        folders: Collection[str],
        ours: Sequence[str] = (),
    ) -> None:
        self.title, self.name, self.store = title, name, store
        self.files, self.folders, self.ours = files, folders, ours
        self._numbers, self.unread = numbers, 0
        self.photos = Photos(file.path for file in files)

    @classmethod
    def of_folder(cls, folder: Path, walked: Walk) -> Self:
        """Return the files of a folder, of which it is known what is in it."""
        paths = [file.path for file in walked.files]
        numbers = {path: number for number, path in enumerate(paths)}
        name = folder.resolve().name or "folder"
        return cls(folder, name, Files(folder, paths), numbers, walked.files, walked.folders, walked.ours)

    def __contains__(self, path: str) -> bool:
        return path in self._numbers

    def photo(self, name: str, beside: str, split: str = ALL, other_than: str | None = None) -> str | None:
        """Return the path of the photo that an annotation means; see `Photos.find`."""
        return self.photos.find(name, beside, split, other_than)

    def number(self, path: str) -> int:
        """Return the index of a file in the store."""
        return self._numbers[path]

    def file(self, path: str) -> StoredFile:
        """Return a file."""
        return StoredFile(self.store, self._numbers[path])

    def ending(self, *suffixes: str) -> list[str]:
        """Return the paths of the files whose names end so, in whatever case, sorted."""
        return sorted(file.path for file in self.files if file.path.lower().endswith(suffixes))

    def text(self, path: str) -> str:
        """Return a text in UTF-8; what is none stands there as question marks.

        Raises:
            DataError: the file cannot be read.
        """
        return self.file(path).content().decode("utf-8-sig", errors="replace")

    def lines(self, path: str) -> list[str]:
        """Return the lines of a text; none where it is not there."""
        return self.text(path).splitlines() if path in self else []

    def json_files(self) -> list[str]:
        """Return the JSON files that may speak of photos: all that are not very large together, or else the largest."""
        files = [file for file in self.files if file.path.lower().endswith(".json")]
        most = len(files) if sum(file.size for file in files) <= JSON_BYTES else MOST_JSON
        self.unread = max(len(files) - most, 0)
        return sorted(file.path for file in sorted(files, key=lambda file: -file.size)[:most])

    def json(self, path: str, keys: Iterable[str], form: str, read: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """Return what a reader makes of the values of a JSON file that has all the keys; None of any other file.

        Raises:
            DataError: it cannot be read, is cut off after some of the keys, or the reader finds it to be of another form.
        """
        file = self.file(path)
        content = file.content()
        try:
            text = content.decode(json.detect_encoding(content))
        except UnicodeDecodeError:  # ADE20K's are in it, and what Windows wrote is much like it
            text = content.decode("latin-1")
        known = [f'"{key}"' in text for key in keys]
        if not all(known):
            if any(known) and _is_cut_off(text):
                raise DataError(f"'{file.name}' is cut off: it begins as JSON and does not end so; copy it again.")
            return None
        try:
            return read(json.loads(text))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"'{file.name}' cannot be read as {form} ({one_line(error)}).") from error

    def xml(self, path: str) -> Element:
        """Return the root of an XML file; nothing outside it is fetched, and no entities are defined in it.

        Raises:
            DataError: it cannot be read.
        """
        file = self.file(path)
        content = file.content()
        try:
            return _parsed(content)
        except (ElementTree.ParseError, ValueError, LookupError, RecursionError) as error:
            raise DataError(f"'{file.name}' cannot be read as XML ({one_line(error)}).") from error

    def bad(self, photo: str, why: object) -> BadImage:
        """Return a photo whose annotation cannot be used."""
        return BadImage(self.file(photo).name, str(why).rstrip("."), listed=True)


def _parsed(content: bytes | str) -> Element:
    """Return the root of XML; its parser knows few encodings, of which others than those that it declares are decoded here.

    Raises:
        ValueError: it defines entities, or is not of the encoding that it declares; other errors of the parser likewise.
    """
    if (b"<!ENTITY" in content) if isinstance(content, bytes) else ("<!ENTITY" in content):
        raise ValueError("it defines entities")
    try:
        return ElementTree.fromstring(content)
    except ValueError:
        declared = DECLARED.match(content) if isinstance(content, bytes) else None
        if declared is None or isinstance(content, str):
            raise
    return _parsed(content[declared.end() :].decode(declared[1].decode()))


def speaks_of_masks(folder: str) -> bool:
    """Tell whether a folder is called like one that holds masks."""
    return FOLDER.fullmatch(folder) is not None


def _is_cut_off(text: str) -> bool:
    """Tell whether a text begins as JSON of an object or a list, and does not end as it."""
    ends = {"{": "}", "[": "]"}
    first, last = text[:64].lstrip()[:1], text[-64:].rstrip()[-1:]
    return first in ends and last != ends[first]


def _key(name: str) -> str:
    return composed(name).casefold()
