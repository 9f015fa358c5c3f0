"""A zip or tar file with one folder a class inside; nothing is unpacked, pictures are read where they lie.

Only regular files count, by their place in the archive; a member's name is never used as a path.
"""

import atexit
import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from vitral.data.assemble import ALL, Entry, Listing, natural_key, split_named
from vitral.data.stored import Handles, Strings
from vitral.errors import DataError, ImageError
from vitral.images.decode import EXTENSIONS

ZIP_SUFFIXES = (".zip",)
TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_RATIO = 1000  # unpacked over packed size of a member; no picture's own format leaves so much to gain
MAX_MEMBER = 1 << 30  # bytes


@dataclass(frozen=True)
class Member:
    """A file in an archive: its name, the bytes it takes, and where they begin."""

    name: str
    size: int
    offset: int = 0


class ZipPictures:
    """Pictures in a zip file."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path = path
        self._names = Strings(names)
        self._handles = Handles(zipfile.ZipFile)

    def read(self, place: int) -> bytes:
        """Return a picture's bytes.

        Raises:
            ImageError: they are damaged.
        """
        try:
            archive: zipfile.ZipFile = self._handles.get(str(self._path))
            return archive.read(self._names[place])
        except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
            raise ImageError(
                f"'{self.name(place)}' is damaged in the archive ({error}); replace or remove it."
            ) from error

    def name(self, place: int) -> str:
        """Return archive and member, such as "photos.zip:cats/1.jpg"."""
        return f"{self._path}:{self._names[place]}"


class TarPictures:
    """Pictures in an uncompressed tar file, read by their offsets.

    Args:
        title: the archive as the user knows it.
        path: the uncompressed file.
        members: the files in it.
    """

    def __init__(self, title: Path, path: Path, members: Sequence[Member]) -> None:
        self._title, self._path = title, path
        self._names = Strings([member.name for member in members])
        self._offsets = np.array([member.offset for member in members], dtype=np.int64)
        self._sizes = np.array([member.size for member in members], dtype=np.int64)
        self._handles = Handles(_open_bytes)

    def read(self, place: int) -> bytes:
        """Return a picture's bytes.

        Raises:
            ImageError: the archive is cut short.
        """
        size = int(self._sizes[place])
        # By offset, without moving the file's position: several threads may read at once.
        data = os.pread(self._handles.get(str(self._path)).fileno(), size, int(self._offsets[place]))
        if len(data) != size:
            raise ImageError(f"'{self.name(place)}' is cut short: the archive ends before it; fetch it again.")
        return data

    def name(self, place: int) -> str:
        """Return archive and member, such as "photos.tar:cats/1.jpg"."""
        return f"{self._title}:{self._names[place]}"


def _open_bytes(path: str) -> BinaryIO:
    return open(path, "rb")


def is_archive(path: Path) -> bool:
    """Tell whether a file is named like an archive."""
    return path.name.lower().endswith((*ZIP_SUFFIXES, *TAR_SUFFIXES))


def list_archive(path: Path) -> Listing:
    """Return the pictures of an archive by split; a single folder above all others is passed over.

    Raises:
        DataError: it is no archive, damaged, or a bomb.
    """
    if path.name.lower().endswith(ZIP_SUFFIXES):
        members = _zip_members(path)
        store: ZipPictures | TarPictures = ZipPictures(path, [member.name for member in members])
    else:
        plain = _plain_tar(path)
        members = tar_members(path, plain)
        store = TarPictures(path, plain, members)
    return list_members(path, members, store)


def list_members(path: Path, members: Sequence[Member], store: ZipPictures | TarPictures) -> Listing:
    """Return a listing of an archive's members, whose folders are classes, below splits where there are any."""
    parts = [PurePosixPath(member.name.replace("\\", "/")).parts for member in members]
    pictures = [place for place, name in enumerate(parts) if _is_picture(name)]
    above = {parts[place][0] for place in pictures if len(parts[place]) > 2}
    every = all(len(parts[place]) > 2 for place in pictures)
    skip = 1 if every and len(above) == 1 and split_named(next(iter(above))) is None else 0
    split_names = {split_named(parts[place][skip]) for place in pictures if len(parts[place]) > skip + 2}
    entries: dict[str, list[Entry]] = {}
    strangers = 0
    for place in sorted(pictures, key=lambda place: natural_key(members[place].name)):
        name = parts[place][skip:]
        split = split_named(name[0]) if "train" in split_names else None
        folder = name[1:] if split else name
        if len(folder) < 2:
            strangers += 1
            continue
        entry = Entry(place, members[place].name, (folder[0],), members[place].size)
        entries.setdefault(split or ALL, []).append(entry)
    if "train" in entries and ALL in entries:
        strangers += len(entries.pop(ALL))
    strangers += sum(1 for place, name in enumerate(parts) if not _is_picture(name) and not _hidden(name))
    notes = (f"{strangers} files in '{path}' are no pictures in class folders and were left.",) if strangers else ()
    stem = path.name.split(".")[0]
    return Listing(title=str(path), name=stem, store=store, entries=entries or {ALL: []}, notes=notes)


def _is_picture(parts: tuple[str, ...]) -> bool:
    return bool(parts) and parts[-1].lower().endswith(EXTENSIONS) and not _hidden(parts)


def _hidden(parts: tuple[str, ...]) -> bool:
    return any(part.startswith((".", "__MACOSX")) and part not in (".", "..") for part in parts)


def _zip_members(path: Path) -> list[Member]:
    try:
        with zipfile.ZipFile(path) as archive:
            found = [info for info in archive.infolist() if not info.is_dir()]
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError, UnicodeDecodeError) as error:
        raise DataError(f"'{path}' cannot be read as a zip file ({error}); fetch or make it again.") from error
    for info in found:
        if info.flag_bits & 1:
            raise DataError(f"'{path}' is encrypted; unpack it with its password first.")
        if info.file_size > MAX_MEMBER or info.file_size > MAX_RATIO * max(info.compress_size, 1):
            raise DataError(
                f"'{path}' holds '{info.filename}' of {info.file_size:,} bytes unpacked: no picture is so large."
            )
    regular = [info for info in found if (info.external_attr >> 16) & 0o170000 in (0, 0o100000)]  # no links or devices
    return [Member(info.filename, info.file_size) for info in regular]


def _plain_tar(path: Path) -> Path:
    """Return an uncompressed tar: the file itself, or a copy that ends with this process.

    Raises:
        DataError: it is damaged, or a bomb.
    """
    suffix = path.suffix.lower()
    if suffix == ".tar":
        return path
    unpacker = bz2.open if suffix == ".bz2" else lzma.open if suffix == ".xz" else gzip.open
    limit = MAX_RATIO * max(path.stat().st_size, 1)
    folder = tempfile.mkdtemp(prefix="vitral-tar-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    plain = Path(folder) / "plain.tar"
    try:
        with unpacker(path, "rb") as packed, open(plain, "wb") as copy:
            while block := packed.read(1 << 20):
                copy.write(block)
                if copy.tell() > limit:
                    raise DataError(f"'{path}' unpacks to over {MAX_RATIO} times its size: no pictures do.")
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"'{path}' cannot be read as a tar file ({error}); fetch or make it again.") from error
    return plain


def tar_members(title: Path, plain: Path) -> list[Member]:
    """Return a tar's regular files.

    Raises:
        DataError: it is no tar, or cut short.
    """
    try:
        with tarfile.open(plain, mode="r:") as archive:
            found = [
                Member(info.name, info.size, info.offset_data)
                for info in archive
                if info.isreg() and not info.issparse()
            ]
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise DataError(f"'{title}' cannot be read as a tar file ({error}); fetch or make it again.") from error
    if found and found[-1].offset + found[-1].size > plain.stat().st_size:
        raise DataError(f"'{title}' is cut short: it ends in the middle of '{found[-1].name}'; fetch it again.")
    return found
