"""The machine and the versions that a run was made with."""

import os
import platform
import subprocess
from importlib import metadata

import torch

from vitral import distributed
from vitral.machine import processor_name

LIBRARIES = ("torch", "torchvision", "numpy", "pillow", "safetensors")


def environment() -> dict[str, str | int]:
    """Return versions, processor, threads and accelerator as JSON values."""
    facts: dict[str, str | int] = {"python": platform.python_version(), "platform": platform.platform()}
    facts |= {library: metadata.version(library) for library in LIBRARIES}
    facts |= {"processor": processor_name(), "cores": os.cpu_count() or 1, "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    if distributed.world() > 1:
        facts["processes"] = distributed.world()
    return facts


def git_state() -> dict[str, str | bool] | None:
    """Return commit and branch of the repository that the command was given in, and whether it has changes; None for none."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    return {
        "commit": commit,
        "branch": _git("rev-parse", "--abbrev-ref", "HEAD") or "",
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
