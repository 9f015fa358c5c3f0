"""Where a run goes, and what a folder says of the run that is in it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vitral import distributed
from vitral.errors import TrainingError
from vitral.training.records.asked import Asked, begin, kept, read_run
from vitral.training.records.checkpoints import CHECKPOINTS, newest_state
from vitral.training.records.recipe_file import RECIPE_FILE
from vitral.training.records.run_folder import holds_run, make_free_folder, occupied


def goes_on(out: str | Path | None, *, resume: bool, data_changed: bool) -> bool:
    """Tell whether a command goes on with a run: it says so, or torchrun started the job again after it lost a process.

    Raises:
        TrainingError: torchrun may start the job again, and could not know which run is meant; no folder was named; or
            it says of a new run that its data changed.
    """
    if out is None and distributed.may_restart():
        raise TrainingError("Name the run's folder with --out, so that a restart by torchrun finds it.")
    if out is not None and not str(out).strip():
        raise TrainingError("--out is empty; name a folder, or leave it out for one below runs/.")
    if data_changed and not resume:
        raise TrainingError("--data-changed belongs to --resume: a run that begins takes the data as they are.")
    if resume and out is None:
        raise TrainingError("Which run should go on? Name its folder with --out.")
    return resume or distributed.is_restart()


@contextlib.contextmanager
def run_folder(out: Path | None, name: str, asked: Asked, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Have a run's folder as long as the block lasts, what was asked the first thing in it; in every process the same.

    Args:
        out: the folder; None to make a free one below runs/.
        name: what that is called after.
        asked: what was asked.
        resume: whether the run in it goes on.
        overwrite: whether it may begin where something is.

    Raises:
        TrainingError: there is a run, and nothing was said of it; or another process works there.
        StorageError: there is something else, or nothing can be written there.
    """
    if out is None:
        out = distributed.broadcast(make_free_folder(name) if distributed.is_main() else Path())
    inputs = [path for path in (asked.data, asked.source) if path is not None]
    with occupied(out, inputs, resume=resume, overwrite=overwrite):
        if distributed.is_main() and not (resume and holds_run(out)):
            begin(out, asked)
        yield out


def budget_left(folder: Path, asked: Asked) -> float | None:
    """Return the seconds that a run which goes on may take: those said now, or what is left of those said first.

    Once a budget has shortened the run, that plan holds, and no budget is needed any more.
    """
    first = kept(folder)
    if asked.budget_seconds is not None or first is None or first.budget_seconds is None:
        return asked.budget_seconds
    state = newest_state(folder / CHECKPOINTS)
    if state is None:
        return first.budget_seconds
    return None if state.bend_step or state.step >= state.total_steps else first.budget_seconds - state.seconds


def kept_start(folder: Path) -> str | None:
    """Return what the run in a folder started from, if there is one that says it."""
    start = read_run(folder).get("from")
    return start if isinstance(start, str) else None


def kept_recipe(folder: Path) -> Path | None:
    """Return the resolved recipe of the run in a folder, if there is one."""
    path = folder / RECIPE_FILE
    return path if path.is_file() else None
