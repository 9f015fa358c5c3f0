"""Speeds as they were measured on this machine, kept so that nothing is measured twice."""

import hashlib
import json
import math
import time
from collections.abc import Sequence

import torch

from vitral.errors import StorageError
from vitral.files import write_file
from vitral.machine import processor_name
from vitral.paths import cache

KIND = "engines"  # of what is cached
STARVED = 0.5  # of one core: a process that measures and gets less waits for others, which may slow what it compares unequally
FOR_NOW = 3600.0  # seconds that its measurement holds: for the runs of a study, say, but not for good
UNTIL = "until"  # beside the speeds: when they do not hold any more, in seconds since 1970


class Effort:
    """What this process gets of the processor from now on."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), time.process_time()

    def starved(self) -> bool:
        """Tell whether other processes had most of the time, so that a measurement holds for the moment alone."""
        return time.process_time() - self._used < STARVED * (time.perf_counter() - self._began)


def known_speeds(of: Sequence[object], device: torch.device) -> dict[str, float]:
    """Return the speeds that are kept, by name; empty where there are none that can be read.

    What was measured and compared, with the versions that matter, is given as JSON values.
    """
    try:
        stored = json.loads((cache(KIND) / _place(of, device)).read_text())
        over = float(stored.pop(UNTIL, math.inf)) < time.time()
        return {} if over else {str(name): float(speed) for name, speed in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def keep_speeds(of: Sequence[object], device: torch.device, speeds: dict[str, float], effort: Effort) -> None:
    """Keep speeds by name, for an hour where the process was starved; where that is impossible the next process measures again.

    The first arguments are those of `known_speeds`; `effort` began with the measurement.
    """
    until = {UNTIL: time.time() + FOR_NOW} if effort.starved() else {}
    try:
        write_file(cache(KIND) / _place(of, device), json.dumps(speeds | until))
    except StorageError:
        return


def _place(of: Sequence[object], device: torch.device) -> str:
    """Return a name that stands for what was measured and for this machine."""
    where = processor_name() if device.type == "cpu" else f"{processor_name()}, {device.type}"
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    text = json.dumps([*of, where, torch.get_num_threads()])
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
