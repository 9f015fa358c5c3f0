"""The outlines in mask images, kept on this machine by the images' content: a second command on the same data decodes none.

The content is read each time, so that a changed mask is noticed. A file is of one folder or archive. What cannot be read or
written is decoded again: nothing here fails a command.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from vitral import distributed
from vitral.errors import StorageError
from vitral.files import drop_oldest, write_file
from vitral.machine import vitral_version
from vitral.paths import cache

KIND = "outlines"  # of what is cached
LIMIT = 1 << 28  # bytes of all files
FEWEST = 1000  # masks: fewer are decoded in no time
DIGEST_BYTES = 16


class Outline(NamedTuple):
    """The outline of a mask: its height and width, pixels, and COCO's text of its run lengths; none for an empty mask."""

    height: int
    width: int
    text: str


class KeptOutlines:
    """The outlines of the masks in a folder or an archive."""

    def __init__(self, title: Path) -> None:
        named = repr((vitral_version(), os.path.realpath(title)))
        self._path = cache(KIND) / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}.json"
        self._known = _read(self._path)
        self._seen: dict[str, Outline] = {}

    def find(self, content: bytes) -> tuple[str, Outline | None]:
        """Return the key of an encoded mask, and its outline where it is known."""
        key = hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
        if (outline := self._known.get(key)) is not None:
            self._seen[key] = outline
        return key, outline

    def add(self, key: str, outline: Outline) -> None:
        """Take the outline of a mask that was not known."""
        self._seen[key] = outline

    def write(self) -> None:
        """Keep the outlines that were seen, where some are new; where that cannot be, they are not kept."""
        if len(self._seen) < FEWEST or self._seen.keys() <= self._known.keys() or distributed.rank() != 0:
            return
        with contextlib.suppress(StorageError):
            write_file(self._path, json.dumps(self._seen))
        drop_oldest(cache(KIND), LIMIT)


def _read(path: Path) -> dict[str, Outline]:
    try:
        written = json.loads(path.read_bytes())
        os.utime(path)  # it was used
        return {key: Outline(int(height), int(width), str(text)) for key, (height, width, text) in written.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
