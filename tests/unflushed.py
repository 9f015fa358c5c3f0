"""The tests do not wait for a disk: to flush a file or a folder does nothing, here and in what they fork.

Only a power cut could tell, and `tests/processes/power_loss.py` follows the calls. What cannot be flushed still fails.
"""

import os
import stat

_flush = os.fsync


def _fsync(descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        _flush(descriptor)


os.fsync = _fsync  # type: ignore[assignment]
