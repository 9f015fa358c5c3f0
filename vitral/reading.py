"""Text of a file, although a user may have put anything in its place."""

import errno
import os
import stat
from pathlib import Path


def text_of(path: Path) -> str:
    """Return the text of a regular file in UTF-8.

    Raises:
        OSError: The file cannot be read, or is a pipe or a device, which might never end.
        UnicodeDecodeError: The file is not UTF-8.
    """
    if not stat.S_ISREG(os.stat(path).st_mode) and not path.is_dir():  # for a folder the system's own error is clearer
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path.read_text(encoding="utf-8")
