"""The machine and the versions that a run was made with."""

import os
import platform
from importlib import metadata

import torch

LIBRARIES = ("torch", "torchvision", "numpy", "pillow", "safetensors")


def environment() -> dict[str, str | int]:
    """Return versions, processor, threads and accelerator as JSON values."""
    found: dict[str, str | int] = {"python": platform.python_version(), "platform": platform.platform()}
    found |= {library: metadata.version(library) for library in LIBRARIES}
    found |= {"processor": _processor(), "cores": os.cpu_count() or 1, "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        found["accelerator"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
