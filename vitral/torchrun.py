"""torchrun's description of this process, from the environment; `vitral.distributed` connects the processes."""

import os

from vitral.errors import TrainingError

MOST_DIGITS = 9
# What a process of a job cannot do without.
NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")


def number(name: str, default: int) -> int:
    """Return a whole number from the environment.

    Raises:
        TrainingError: The variable holds anything else.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise TrainingError(
            f"The environment variable {name} is '{text[:40]}' instead of a whole number; torchrun sets it, or unset it."
        )
    return int(text)


def world() -> int:
    """Return the number of processes of the job; 1 where torchrun started none.

    Raises:
        TrainingError: The environment describes no process of a job, though it says that there are several.
    """
    count = number("WORLD_SIZE", 1)
    if count < 2:
        return 1
    if missing := [name for name in NEEDED if not os.environ.get(name, "").strip()]:
        raise TrainingError(
            f"The environment variable WORLD_SIZE says {count} processes, and {' and '.join(missing)} are not set; start the "
            "processes by torchrun, or unset WORLD_SIZE."
        )
    if number("RANK", 0) >= count:
        raise TrainingError(
            f"The environment variable RANK is {number('RANK', 0)}, and WORLD_SIZE {count}: the processes count from 0; start "
            "them by torchrun."
        )
    return count


def rank() -> int:
    """Return the number of this process in its job, from 0; 0 where it is alone, whatever RANK is."""
    return number("RANK", 0) if world() > 1 else 0


def is_main() -> bool:
    """Tell whether this is the process that writes files and logs."""
    return rank() == 0


def is_restart() -> bool:
    """Tell whether torchrun restarted the job after losing a process."""
    return number("TORCHELASTIC_RESTART_COUNT", 0) > 0


def may_restart() -> bool:
    """Tell whether torchrun would restart the job."""
    return number("TORCHELASTIC_MAX_RESTARTS", 0) > 0
