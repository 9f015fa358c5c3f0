"""Where a run goes, and what a folder says of the run that is in it."""

import json
from pathlib import Path

from vitral import distributed
from vitral.data.source import DataSet
from vitral.errors import TrainingError
from vitral.training.loop import RECIPE_FILE
from vitral.training.run_folder import RUN_FILE, make_free_folder


def goes_on(out: str | Path | None, *, resume: bool) -> bool:
    """Tell whether a command goes on with a run: it says so, or torchrun started the job again after it lost a process.

    Raises:
        TrainingError: torchrun may start the job again, and could not know which run is meant; or no folder was named.
    """
    if out is None and distributed.may_restart():
        raise TrainingError("Name the run's folder with --out, so that a restart by torchrun finds it.")
    if out is not None and not str(out).strip():
        raise TrainingError("--out is empty; name a folder, or leave it out for one below runs/.")
    if resume and out is None:
        raise TrainingError("Which run should go on? Name its folder with --out.")
    return resume or distributed.is_restart()


def run_folder(out: str | Path | None, data: DataSet) -> Path:
    """Return where a run goes; the same in every process of a job."""
    if out is not None:
        return Path(out)
    return distributed.broadcast(make_free_folder(data.name) if distributed.is_main() else Path())


def kept_start(folder: Path) -> str | None:
    """Return what the run in a folder started from, if there is one that says it."""
    try:
        start = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))["from"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return start if isinstance(start, str) else None


def kept_recipe(folder: Path) -> Path | None:
    """Return the resolved recipe of the run in a folder, if there is one."""
    path = folder / RECIPE_FILE
    return path if path.is_file() else None
