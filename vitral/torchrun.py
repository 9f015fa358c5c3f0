"""torchrun's description of this process, from the environment; `vitral.distributed` connects the processes."""

import os


def is_main() -> bool:
    """Tell whether this is the process that writes files and logs."""
    return int(os.environ.get("RANK", "0")) == 0


def is_restart() -> bool:
    """Tell whether torchrun restarted the job after losing a process."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def may_restart() -> bool:
    """Tell whether torchrun would restart the job."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0
