"""Where a run goes, and what it reads there: its folder and its data, together for as long as it lasts."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from vitral import distributed
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import TrainingError
from vitral.events import Listener
from vitral.training.records.asked import Asked, begin
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


@contextlib.contextmanager
def folder_and_data(
    asked: Asked, out: Path | None, *, resume: bool, overwrite: bool, listener: Listener
) -> Iterator[tuple[Path, DataSet]]:
    """Have a run's folder as long as the block lasts, and the data that it learns from.

    The folder comes first, so that two commands cannot both read for an hour and then meet there; but an older run in it is
    not deleted before the data that shall take its place are known to be good.

    Args:
        asked: what was asked, its data among it.
        out: the folder; None to make a free one below runs/, called after the data.
        resume: whether the run in it goes on.
        overwrite: whether it may begin where something is.
        listener: hears of the reading.

    Raises:
        DataError: the data cannot be read.
        TrainingError: there is a run, and nothing was said of it; or another process works there.
        StorageError: there is something else, or nothing can be written there.
    """
    read = partial(
        open_data,
        asked.required_data(),
        classes=asked.classes,
        skip_bad_images=asked.skip_bad_images,
        listener=listener,
    )
    if out is None:
        data = read()
        with run_folder(None, data.name, asked, resume=False, overwrite=False) as folder:
            yield folder, data
        return
    good = read() if overwrite else None
    with run_folder(out, "", asked, resume=resume, overwrite=overwrite) as folder:
        yield folder, good or read()
