"""Where a run goes, and what a folder says of the run that is in it."""

import json
from pathlib import Path

from vitral import distributed
from vitral.data.source import DataSet
from vitral.errors import TrainingError
from vitral.training.loop import RECIPE_FILE
from vitral.training.run import RUN_FILE, free_folder


def goes_on(out: str | Path | None, *, resume: bool) -> bool:
    """Tell whether a command goes on with a run: it says so, or torchrun started the job again after it lost a process.

    Raises:
        TrainingError: torchrun may start the job again, and could not know which run is meant.
    """
    if out is None and distributed.may_restart():
        raise TrainingError("Name the run's folder with --out, so that a restart by torchrun finds it.")
    if out is not None and not str(out).strip():
        raise TrainingError("--out is empty; name a folder, or leave it out for one below runs/.")
    return resume or distributed.is_restart()


def run_folder(out: str | Path | None, data: DataSet, *, resume: bool) -> Path:
    """Return where a run goes; the same in every process of a job.

    Raises:
        TrainingError: a run is to go on, and no folder was named; or a new one is to begin where there is one.
    """
    if resume and out is None:
        raise TrainingError("Which run should go on? Name its folder with --out.")
    begun = distributed.broadcast(out is not None and kept_recipe(Path(out)) is not None)
    if begun and not resume:
        # Said here too, before anything of the new run is written over the old one's.
        raise TrainingError(f"'{out}' already holds a run; go on with it by --resume, or choose another --out.")
    return distributed.broadcast(free_folder(data.name) if out is None else Path(out))


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
