"""A zip or tar file with a folder of data inside; nothing is unpacked, images are read where they are.

Only regular files count, by their index in the archive; a member's name is never used as a path. As in a folder, what
Vitral wrote is not data.
"""

import contextlib
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from vitral.advice import counted
from vitral.data.annotations.find import list_annotated
from vitral.data.annotations.tree import FileTree
from vitral.data.archive_names import Names, decode_names
from vitral.data.classes import Arranged, Folder
from vitral.data.folder import list_classes, note_ours, note_systems, ours_error
from vitral.data.listing import Listing, Opening
from vitral.data.names import some, split_in
from vitral.data.packed import MAX_RATIO, UNREADABLE, plain_tar
from vitral.data.stored import Entry, Handles, Store, Strings, open_binary
from vitral.described import is_text
from vitral.errors import DataError, ImageError, one_line
from vitral.images.decode import EXTENSIONS
from vitral.paths import MARK_LIMIT, MARKERS, POINTER, FoundFile, is_hidden, is_of_system, is_ours, is_pointer

ZIP_SUFFIXES = (".zip",)
TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
TABLES = (".csv", ".tsv", ".parquet", ".jsonl", "synsets.txt")  # names of files that may hold labels
MAX_MEMBER = 1 << 30  # bytes
UTF_8_FLAG = 0x800  # of a zip's member whose name is UTF-8
UNICODE_PATH_KIND = 0x7075
# Kind, size of what follows, version, and checksum of the name that it stands for.
UNICODE_PATH = struct.Struct("<HHBL")


@dataclass(frozen=True)
class Member:
    """A file in an archive: its name, its size in bytes, and their offset; in a zip its index there instead."""

    name: str
    size: int
    offset: int = 0


class ZipImages:
    """Images in a zip file, read by their indices in it: a name may be another one in the archive's own encoding."""

    def __init__(self, path: Path, members: Sequence[Member]) -> None:
        self._path = path
        self._names = Strings([member.name for member in members])
        self._indices = np.array([member.offset for member in members], dtype=np.int64)
        self._handles = Handles(zipfile.ZipFile)

    def read(self, index: int) -> bytes:
        """Return an image's bytes. See `Store`."""
        try:
            archive: zipfile.ZipFile = self._handles.get(str(self._path))
            return archive.read(archive.infolist()[int(self._indices[index])])
        except NotImplementedError as error:
            raise ImageError(
                f"'{self.name(index)}' is packed in a way that is not read ({one_line(error)}); unpack '{self._path}' and name "
                "the folder."
            ) from error
        except UNREADABLE as error:
            raise ImageError(
                f"'{self.name(index)}' is damaged in the archive ({error}); replace or remove it."
            ) from error

    def name(self, index: int) -> str:
        """Return archive and member, such as "photos.zip:cats/1.jpg"."""
        return f"{self._path}:{self._names[index]}"

    def folders(self) -> list[str]:
        """Return the paths of the folders that the archive lists, empty ones among them."""
        with zipfile.ZipFile(self._path) as archive:
            return [info.filename for info in archive.infolist() if info.is_dir()]


class TarImages:
    """Images in an uncompressed tar file at a path or an address, read by their offsets.

    The title is the archive as the user knows it. Open files may be shared with other tars.
    """

    def __init__(
        self, title: str | Path, path: str | Path, members: Sequence[Member], handles: Handles | None = None
    ) -> None:
        self._title, self._path = title, path
        self._names = Strings([member.name for member in members])
        self._offsets = np.array([member.offset for member in members], dtype=np.int64)
        self._sizes = np.array([member.size for member in members], dtype=np.int64)
        self._handles = Handles(open_binary) if handles is None else handles

    def read(self, index: int) -> bytes:
        """Return an image's bytes. See `Store`."""
        try:
            data = self._handles.bytes_at(self._path, int(self._offsets[index]), int(self._sizes[index]))
        except Exception as error:  # each file system raises its own types
            raise ImageError(f"'{self.name(index)}' cannot be read ({one_line(error)}).") from error
        if data is None:
            raise ImageError(f"'{self.name(index)}' is cut short: the archive ends before it; fetch it again.")
        return data

    def name(self, index: int) -> str:
        """Return archive and member, such as "photos.tar:cats/1.jpg"."""
        return f"{self._title}:{self._names[index]}"

    def folders(self) -> list[str]:
        """Return the paths of the folders that the archive lists, empty ones among them."""
        with open(self._path, "rb") as file:
            return [info.name for info in headers(file) if info.isdir()]

    def location(self, index: int) -> tuple[Path, int]:
        """Return the uncompressed file and the offset of a member's first byte in it."""
        return Path(self._path), int(self._offsets[index])


def is_archive(path: Path) -> bool:
    """Tell whether a file's name is that of an archive."""
    return path.name.lower().endswith((*ZIP_SUFFIXES, *TAR_SUFFIXES))


def list_archive(path: Path, how: Opening, refuse: Callable[[Iterable[str]], None]) -> Listing:
    """Return the images of an archive as those of a folder: by what is marked in them, or by split and class.

    Where nothing is marked, `refuse` refuses the names of files that do not stand for classes by their folders.

    Raises:
        DataError: it is not an archive, damaged, a bomb, written by Vitral, or of archives alone.
    """
    members, store, names = _open(path)
    parts = [_parts(member) for member in members]
    ours = _ours(members, parts, store)
    if () in ours:
        raise ours_error(path)
    last = {name: index for index, name in enumerate(parts)}  # of two of one path it counts, as when it is unpacked
    files = [
        index
        for index, name in enumerate(parts)
        if last[name] == index and not _hidden(name) and not _is_in(name, ours)
    ]
    if (annotated := list_annotated(_tree(path, members, parts, files, store, ours), how)) is not None:
        return annotated
    refuse(member.name for member in members)
    images = [index for index in files if _is_image(parts[index])]
    inner = ["/".join(parts[index]) for index in files if is_archive(Path(parts[index][-1]))]
    if inner and not images:
        raise DataError(
            f"'{path}' holds archives and no images: {some(inner)}; unpack it, and name the folder or one of them."
        )

    folders = sorted({part for index in images for part in parts[index][:-1] if not part.isascii()})
    _refuse_unread(path, names, folders)

    def notes(arranged: Arranged) -> Iterator[str]:
        if names.encoding and folders:
            yield (
                f"'{path}' does not say how its names are encoded; they are read as {names.encoding}: {some(folders)}. "
                f"If that is wrong, {_unpack(path)}."
            )
        if ours:
            yield note_ours(path, ["/".join(folder) for folder in ours])
        if systems := {"/".join(folder) for name in parts if (folder := _system(name)) is not None}:
            yield note_systems(path, sorted(systems))
        if others := arranged.outside + len(files) - len(images):
            left = [members[index].name for index in files]
            unread = inner + [name for name in left if name.lower().endswith(TABLES) or _is_list_of_split(name)]
            among = f", among them {some(unread)}" if unread else ""
            what = counted(others, "file that is no image", "files that are no images")
            yield f"Left out of '{path}': {what} in a class folder{among}."

    entries = [Entry(index, members[index].name, (), members[index].size) for index in images]
    return list_classes(path, store, entries, [parts[index] for index in images], how, notes=notes)


def _tree(
    path: Path,
    members: Sequence[Member],
    parts: Sequence[Folder],
    files: Sequence[int],
    store: "ZipImages | TarImages",
    ours: Iterable[Folder],
) -> FileTree:
    """Return the files of an archive as those of a folder."""
    numbers = {"/".join(parts[index]): index for index in files}
    found = [FoundFile(name, members[numbers[name]].size) for name in sorted(numbers)]
    folders = {str(folder) for name in numbers for folder in PurePosixPath(name).parents}
    folders |= {str(PurePosixPath(name)) for name in store.folders()}
    return FileTree(path, path.name.split(".")[0], store, numbers, found, folders, ["/".join(name) for name in ours])


def archive_images(path: Path) -> tuple[Store, list[int]]:
    """Return an archive's files, see `open_archive`, and the indices of the images among them, in whatever folder."""
    members, store = open_archive(path)
    parts = [_parts(member) for member in members]
    ours = _ours(members, parts, store)
    images = [index for index, name in enumerate(parts) if _is_image(name) and not _is_in(name, ours)]
    return store, sorted(images, key=lambda index: members[index].name)


def open_archive(path: Path, *, nested: bool = False) -> tuple[Sequence[Member], "ZipImages | TarImages"]:
    """Return the regular files of an archive, and what reads them.

    Args:
        path: A .zip or .tar file, which may be compressed.
        nested: Whether a tar in a tar stands for the files in it, as in ImageNet's: "n01440764.tar" for "n01440764/...".

    Raises:
        DataError: it is not an archive, damaged, or a bomb.
    """
    members, store, _ = _open(path, nested=nested)
    return members, store


def _open(path: Path, *, nested: bool = False) -> tuple[Sequence[Member], "ZipImages | TarImages", Names]:
    if path.name.lower().endswith(ZIP_SUFFIXES):
        members, names = _zip_members(path)
        return members, ZipImages(path, members), names
    plain = plain_tar(path)
    members = tar_members(path, plain)
    if nested:
        members = [inner for member in members for inner in _inside(path, plain, member)]
    names = decode_names([member.name.encode(errors="surrogateescape") for member in members])
    members = [replace(member, name=name) for member, name in zip(members, names.names, strict=True)]
    return members, TarImages(path, plain, members), names


def _is_list_of_split(name: str) -> bool:
    """Tell whether a file's name says that it lists a split, such as meta/train.txt."""
    path = PurePosixPath(name)
    return path.suffix.lower() == ".txt" and split_in(path.stem)[0] is not None


def _refuse_unread(path: Path, names: Names, folders: Sequence[str]) -> None:
    """Refuse an archive with folders whose names are in an unknown encoding, by a `DataError`."""
    if not all(map(is_text, folders)):
        may = f" They may be {', or '.join(names.readings)}." if names.readings else ""
        raise DataError(
            f"'{path}' does not say how the names of its folders are encoded, and they are the classes.{may} To read it, "
            f"{_unpack(path)}."
        )


def _unpack(path: Path) -> str:
    """Return the advice to unpack an archive with its own encoding."""
    if path.name.lower().endswith(ZIP_SUFFIXES):
        return (
            f"unpack it with its encoding (python -m zipfile --metadata-encoding ENCODING -e {path.name} FOLDER) and name the "
            "folder"
        )
    return "unpack it, rename the folders, and name the folder that they are in"


def open_tars(paths: Sequence[Path]) -> list[tuple[Sequence[Member], TarImages]]:
    """Return the regular files of many uncompressed tars, see `tar_members`, and what reads them.

    They share a few open files: a process may not hold as many as ImageNet has classes.
    """
    handles = Handles(open_binary)
    listed = [(path, tar_members(path, path)) for path in paths]
    return [(members, TarImages(path, path, members, handles)) for path, members in listed]


def _inside(title: Path, plain: Path, member: Member) -> list[Member]:
    """Return the files of a tar in a tar, with their offsets in the outer one; any other file as it is."""
    if not member.name.endswith(".tar"):
        return [member]
    inside = []
    try:
        with open(plain, "rb") as file:
            file.seek(member.offset)
            for info in headers(file):
                if info.offset_data + info.size > member.offset + member.size:
                    raise tarfile.ReadError("it is cut short")
                if regular(info):
                    inside.append(
                        Member(f"{member.name.removesuffix('.tar')}/{info.name}", info.size, info.offset_data)
                    )
    except UNREADABLE as error:
        raise DataError(
            f"'{member.name}' in '{title}' cannot be read as a tar file ({error}); fetch it again."
        ) from error
    return inside


def _parts(member: Member) -> tuple[str, ...]:
    return PurePosixPath(member.name.replace("\\", "/")).parts


def _ours(members: Sequence[Member], parts: Sequence[Folder], store: Store) -> set[Folder]:
    """Return the folders of an archive that Vitral wrote, the outermost ones only."""
    marked: dict[Folder, dict[str, int]] = {}
    for index, name in enumerate(parts):
        if MARKERS.intersection(name) and not _hidden(name):
            for depth, part in enumerate(name):
                if part in MARKERS:
                    marked.setdefault(name[:depth], {}).setdefault(part, index)

    def known(folder: Folder) -> bool:
        def holds(name: str, mark: bytes) -> bool:
            index = marked[folder][name]
            return parts[index] == (*folder, name) and _holds(store, index, members[index].size, mark)

        return is_ours(marked[folder], holds)

    ours = {folder for folder in marked if known(folder)}
    return {folder for folder in ours if not _is_in(folder, ours)}


def _holds(store: Store, index: int, size: int, mark: bytes) -> bool:
    try:
        content = store.read(index) if size <= MARK_LIMIT else b""
    except ImageError:
        return False
    return isinstance(content, bytes) and mark in content


def _is_in(parts: Folder, folders: set[Folder]) -> bool:
    """Tell whether a file or folder is below one of some folders."""
    return bool(folders) and any(parts[:depth] in folders for depth in range(len(parts)))


def _is_image(parts: tuple[str, ...]) -> bool:
    return bool(parts) and parts[-1].lower().endswith(EXTENSIONS) and not _hidden(parts)


def _hidden(parts: tuple[str, ...]) -> bool:
    return any(is_hidden(part) and part not in (".", "..") for part in parts)


def _system(parts: Folder) -> Folder | None:
    """Return the folder of a system's that a file is in; None of any other file."""
    depth = next((depth for depth, part in enumerate(parts[:-1], 1) if is_of_system(part)), None)
    return None if depth is None else parts[:depth]


def _zip_members(path: Path) -> tuple[list[Member], Names]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [(index, info) for index, info in enumerate(archive.infolist()) if not info.is_dir()]
    except UNREADABLE as error:
        why = POINTER if is_pointer(path) else f"cannot be read as a zip file ({error}); fetch or make it again"
        raise DataError(f"'{path}' {why}.") from error
    for _, info in members:
        if info.flag_bits & 1:
            raise DataError(f"'{path}' is encrypted; unpack it with its password first.")
        if info.file_size > MAX_MEMBER or info.file_size > MAX_RATIO * max(info.compress_size, 1):
            raise DataError(
                f"'{path}' holds '{info.filename}' of {info.file_size:,} bytes unpacked: no image is so large."
            )
    # Links and devices are left out.
    plain = [item for item in members if stat.S_IFMT(item[1].external_attr >> 16) in (0, stat.S_IFREG)]
    names = decode_names([name for _, info in plain if isinstance(name := _zip_name(info), bytes)])
    decoded = iter(names.names)
    listed = [
        Member(name if isinstance(name := _zip_name(info), str) else next(decoded), info.file_size, index)
        for index, info in plain
    ]
    return listed, names


def _zip_name(info: zipfile.ZipInfo) -> str | bytes:
    """Return a member's name, or its bytes where the archive does not say how they are encoded."""
    if info.flag_bits & UTF_8_FLAG:
        return info.filename
    raw = info.orig_filename.partition("\0")[0].encode("cp437")  # as which zipfile reads them
    return _unicode_path(info.extra, raw) or raw


def _unicode_path(extra: bytes, raw: bytes) -> str | None:
    """Return the name in Info-ZIP's field of Unicode paths; None without one of this very name."""
    while len(extra) > UNICODE_PATH.size:
        kind, size, _, checksum = UNICODE_PATH.unpack_from(extra)
        if kind == UNICODE_PATH_KIND and checksum == zlib.crc32(raw):
            with contextlib.suppress(UnicodeDecodeError):
                return extra[UNICODE_PATH.size : 4 + size].decode()
        extra = extra[4 + size :]
    return None


def tar_members(title: Path, plain: Path) -> list[Member]:
    """Return a tar's regular files, or raise DataError if it is no tar file, damaged, or cut short."""
    try:
        with open(plain, "rb") as file:
            members = [Member(info.name, info.size, info.offset_data) for info in headers(file) if regular(info)]
    except UNREADABLE as error:
        why = POINTER if is_pointer(plain) else f"cannot be read as a tar file ({error}); fetch or make it again"
        raise DataError(f"'{title}' {why}.") from error
    if members and members[-1].offset + members[-1].size > plain.stat().st_size:
        raise DataError(f"'{title}' is cut short: it ends in the middle of '{members[-1].name}'; fetch it again.")
    return members


def regular(info: tarfile.TarInfo) -> bool:
    """Tell whether a member is a regular file whose bytes are stored contiguously."""
    return info.isreg() and not info.issparse()


def headers(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of an uncompressed tar, each after the one before.

    Raises:
        TarError: it is not a tar file, or a member of negative size leads back, which would loop forever.
    """
    with tarfile.open(fileobj=file, mode="r:") as archive:
        offset = -1
        for info in archive:
            if info.size < 0 or info.offset_data <= offset:
                raise tarfile.ReadError(f"'{info.name}' claims a size of {info.size} bytes")
            offset = info.offset_data
            yield info
