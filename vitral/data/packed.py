"""Compressed tars, told by their first bytes: a .tar may be compressed, and a .tar.gz not."""

import atexit
import bz2
import gzip
import lzma
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

from vitral.errors import DataError

PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}  # by the first bytes
MAX_RATIO = 1000  # unpacked over packed size of a member; no image format compresses so badly
# What readers raise for a damaged archive.
UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
)


def packing(path: str | Path) -> str | None:
    """Return how a file is compressed by its first bytes, whatever it is called; None where it is not, or is not there."""
    try:
        with open(path, "rb") as file:
            start = file.read(max(map(len, PACKED)))
    except OSError:
        return None
    return next((name for magic, name in PACKED.items() if start.startswith(magic)), None)


def plain_tar(path: Path) -> Path:
    """Return an uncompressed tar: the file itself, or a copy that is deleted when this process ends.

    Raises:
        DataError: it cannot be unpacked, or is a bomb.
    """
    kind = packing(path)
    if kind is None:
        return path
    unpacker = bz2.open if kind == "bzip2" else lzma.open if kind == "xz" else gzip.open
    limit = MAX_RATIO * max(path.stat().st_size, 1)
    folder = tempfile.mkdtemp(prefix="vitral-tar-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    plain = Path(folder) / "plain.tar"
    try:
        with unpacker(path, "rb") as packed, open(plain, "wb") as copy:
            while block := packed.read(1 << 20):
                copy.write(block)
                if copy.tell() > limit:
                    raise DataError(f"'{path}' unpacks to over {MAX_RATIO} times its size: no images do.")
    except UNREADABLE as error:
        raise DataError(f"'{path}' cannot be read as a tar file ({error}); fetch or make it again.") from error
    return plain
