"""Text of a file, in whose place a user may have put anything."""

import errno
import os
import stat
from pathlib import Path


def text_of(path: Path) -> str:
    """Return the text of a regular file in UTF-8.

    Raises:
        OSError: it cannot be read; also of a pipe or a device, which might never end.
        UnicodeDecodeError: it is not UTF-8.
    """
    if not stat.S_ISREG(os.stat(path).st_mode) and not path.is_dir():  # of a folder the system says it better
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path.read_text(encoding="utf-8")
