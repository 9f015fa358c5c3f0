"""The command line against a Hub on this machine."""

import importlib
import subprocess
from pathlib import Path

from huggingface_hub import constants

from tests.forks import Fork
from vitral.cli.main import main


def environment(address: str, home: Path, token: str = "hf_right") -> dict[str, str]:
    """Return what the client of the Hub is to read: whose address, where files are kept, and nothing of the user's."""
    switched_off = {"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "", "HF_TOKEN": token}
    quiet = dict.fromkeys(("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")
    return {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home / "hf"),
        "XDG_CACHE_HOME": str(home / "cache"),
        **switched_off,
        **quiet,
    }


def type_command(
    address: str,
    home: Path,
    *arguments: str,
    token: str = "hf_right",
    offline: bool = False,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, in `folder` or else in `home`, which holds the caches."""
    given = environment(address, home, token) | ({"HF_HUB_OFFLINE": "1"} if offline else {})
    return Fork(_command, arguments, folder=folder or home, environment=given).ended()


def _command(arguments: tuple[str, ...]) -> int:
    importlib.reload(constants)  # which reads the environment only once
    return main(arguments)
