"""A disk that forgets: what a power cut leaves of a folder, by the rules of POSIX alone.

A file's content outlasts the cut as of its last `fsync`; a folder's names as of that folder's last `fsync`.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Durable:
    """What of a folder is on the disk for certain, followed through `os.fsync`; everything is known by its inode.

    Args:
        root: the folder, which is on the disk already with all that is in it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.contents: dict[int, bytes] = {}  # of files, as of the last fsync
        self.names: dict[int, dict[str, int]] = {}  # in folders, as of the last fsync
        self.folders: set[int] = set()
        self.links: dict[int, str] = {}
        self.held: dict[int, int] = {}  # open descriptors: a number in use is not given out again
        for path in [root, *root.rglob("*")]:
            if not path.is_symlink():
                self.flush(path)

    def flush(self, path: Path) -> None:
        """Note that a file or folder has reached the disk."""
        if path.is_dir():
            self.names[self._inode(path)] = self._listed(path)
        else:
            self.contents[self._inode(path)] = path.read_bytes()

    def _listed(self, folder: Path) -> dict[str, int]:
        return {entry.name: self._inode(entry) for entry in folder.iterdir()}

    def _inode(self, path: Path) -> int:
        found = os.lstat(path)
        number = found.st_ino
        if number not in self.held:
            self.held[number] = os.open(path, os.O_PATH | os.O_NOFOLLOW)
            if stat.S_ISLNK(found.st_mode):
                self.links[number] = os.readlink(path)
            elif stat.S_ISDIR(found.st_mode):
                self.folders.add(number)
        return number

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow every `os.fsync` of the block."""
        kept = os.fsync

        def fsync(descriptor: int) -> None:
            kept(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path.is_relative_to(self.root):
                self.flush(path)

        os.fsync = fsync  # type: ignore[assignment]
        try:
            yield
        finally:
            os.fsync = kept

    def after_the_cut(self, target: Path, *, names: bool) -> None:
        """Write what is left to another folder, and let go of everything held.

        Args:
            target: a new folder.
            names: whether names are lost, too; else only contents are: a file may have its new name and no data yet.
        """
        left = self.names
        if not names:
            folders = [self.root, *(path for path in self.root.rglob("*") if path.is_dir() and not path.is_symlink())]
            left = {self._inode(folder): self._listed(folder) for folder in folders}
        self._write(self._inode(self.root), left, target)
        for descriptor in self.held.values():
            os.close(descriptor)
        self.held.clear()

    def _write(self, inode: int, left: dict[int, dict[str, int]], target: Path) -> None:
        if inode in self.links:
            target.symlink_to(self.links[inode])
        elif inode in self.folders:
            target.mkdir()
            for name, child in left.get(inode, {}).items():
                self._write(child, left, target / name)
        else:
            target.write_bytes(self.contents.get(inode, b""))
