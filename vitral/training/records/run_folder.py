"""The run folder as files: which are a run's own, and when a run may begin in a folder."""

import contextlib
import fnmatch
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.errors import StorageError, TrainingError, VitralError
from vitral.files import foreign_files, remove_partial, storage_errors
from vitral.layout import CHECKPOINTS, CLASSIFIER, CLASSIFIER_FILES, DESCRIPTION, RUN_FILE, RUNS
from vitral.locks import locked
from vitral.outputs import check_location, refuse_inputs
from vitral.training.plan import ATTEMPTS, PLAN_FILE, SEVERAL, folder_of
from vitral.training.records.recipe_file import RECIPE_FILE

REPORT_FILE = "report.html"
SWEEP = "sweep"  # where the runs lie that try a setting
STUDY_FILE = "study.json"
STUDY_ROWS = "rows.jsonl"
STUDY_TABLE = "study.md"
STUDY_PAGE = "study.html"
STUDY_FILES = (STUDY_FILE, STUDY_ROWS, STUDY_TABLE, STUDY_PAGE)
STUDY_CELLS = "cells"  # where a study keeps what came of each of its runs, and who works on it
LONGEST_NAME = 60  # letters of the data's name in the folder's
DATA_FILE = "data.json"  # what the data were
FIRST = "first"  # the classifier that a run has before it trains,
FIRST_FILE = "first.json"  # and how good it is
PROBED = "first-probe"  # the linear probe, where another is the first classifier: training begins with its head
BASELINES_FILE = "baselines.json"
ATTEMPT_FOLDERS = tuple(map(folder_of, SEVERAL))
ATTEMPT_FILE = "attempt.json"  # in the folder of a finished attempt: how good it is
OUTCOME_FILE = "outcome.json"  # in the folder of one that is not finished, or its longer training is not: why
FILES = (
    RECIPE_FILE,
    PLAN_FILE,
    RUN_FILE,
    DATA_FILE,
    FIRST_FILE,
    ATTEMPT_FILE,
    OUTCOME_FILE,
    BASELINES_FILE,
    "metrics.jsonl",
    "evaluation.json",
    REPORT_FILE,
)
FOLDERS = {
    "images": ("training.png",),
    "pictures": ("training.png",),  # its name in 0.2  # codespell:ignore pictures
    "tensorboard": ("events.out.tfevents.*",),
    CHECKPOINTS: ("step-*", "last", "best"),
    FIRST: CLASSIFIER_FILES,
    PROBED: CLASSIFIER_FILES,
    CLASSIFIER: CLASSIFIER_FILES,
}


def holds_run(folder: Path) -> bool:
    """Tell whether a run began in a folder."""
    return any((folder / name).is_file() for name in (RUN_FILE, RECIPE_FILE))


def newest_classifier(runs: Path = RUNS) -> Path | None:
    """Return the classifier folder that a run below `runs` wrote last; None where none has written one."""
    descriptions = runs.glob(f"*/{CLASSIFIER}/{DESCRIPTION}")
    newest = max(descriptions, key=lambda path: path.stat().st_mtime_ns, default=None)
    return None if newest is None else newest.parent


@contextlib.contextmanager
def occupied(folder: Path, inputs: Sequence[str | Path], *, resume: bool, overwrite: bool) -> Iterator[None]:
    """Have a folder for a run as long as the block lasts; the same in every process of a job.

    What a run that failed before it began to train left in a folder that was free is deleted.

    Args:
        folder: where the run goes.
        inputs: what it reads.
        resume: whether it is to continue with the run that is there.
        overwrite: whether to begin anew where a run is, whose own files are deleted, or other files; those of the same names
            are lost.

    Raises:
        TrainingError: there is a run, and nothing was said of it; or another process works there.
        StorageError: there is something else, or nothing can be written there.
    """
    with contextlib.ExitStack() as stack:

        def occupy() -> None:
            _check(folder, inputs, resume=resume, overwrite=overwrite)
            with storage_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder))
            _check(folder, inputs, resume=resume, overwrite=overwrite)  # one that just ended may have been here
            if not resume:
                clear_run(folder, remove=False)

        distributed.by_main(occupy)
        try:
            yield
        except VitralError:
            if torchrun.is_main() and not resume and not _has_trained(folder):
                stack.close()
                clear_run(folder)
            raise


def _has_trained(folder: Path) -> bool:
    """Tell whether a run came as far as a classifier or training, itself or one that tries a setting for it."""
    runs = (folder, *(folder / SWEEP).glob("lr-*"))
    return any((run / name).exists() for run in runs for name in (RECIPE_FILE, FIRST_FILE))


def _check(folder: Path, inputs: Sequence[str | Path], *, resume: bool, overwrite: bool) -> None:
    resuming, replacing = argument("resume", True), argument("overwrite", True)
    if resume and overwrite:
        raise TrainingError(f"{resuming} continues a run, and {replacing} begins it anew; give one of them.")
    check_location(folder)
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise StorageError(f"'{folder}' is not a folder; choose another {argument('out')}.")
    has_run = holds_run(folder)
    if has_run and not resume and not overwrite:
        raise TrainingError(
            f"'{folder}' already holds a run; continue it by {resuming}, choose another {argument('out')}, or say "
            f"{replacing}."
        )
    others = foreign_files(folder, ())
    if others and not has_run and not overwrite:
        raise StorageError(
            f"'{folder}' holds something else ('{others[0]}') and no run; choose another {argument('out')}, or say {replacing}."
        )
    if others and not resume:
        refuse_inputs(folder, inputs)


def clear_run(folder: Path, *, remove: bool = True) -> None:
    """Delete what a run made in a folder, and the folder if it is empty then; whatever else is there stays."""
    for name in FILES if folder.is_dir() else ():
        (folder / name).unlink(missing_ok=True)
    for name, patterns in FOLDERS.items():
        for path in _named(folder / name, patterns):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        _remove_empty(folder / name)
    attempts = (folder / ATTEMPTS / name for name in ATTEMPT_FOLDERS)
    for part in (*(folder / SWEEP).glob("lr-*"), *(path for path in attempts if path.is_dir())):
        clear_run(part)
    _remove_empty(folder / ATTEMPTS)
    clear_study(folder / SWEEP)
    if remove:
        _remove_empty(folder)


def _named(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return what is in a folder by names that match, links to nothing among it."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return [entry for entry in entries if any(fnmatch.fnmatch(entry.name, pattern) for pattern in patterns)]


def clear_study(folder: Path) -> None:
    """Delete what a study wrote next to its runs, and the folder if it is empty then."""
    for name in STUDY_FILES:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / STUDY_CELLS, ignore_errors=True)
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    remove_partial(folder)
    with contextlib.suppress(OSError):
        folder.rmdir()


def make_free_folder(name: str) -> Path:
    """Make runs/NAME, or runs/NAME-2 and so on where that is taken, for no other process.

    Raises:
        StorageError: no folder can be made there.
    """
    stem = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name[:LONGEST_NAME])
    stem = stem.strip("-.") or "run"
    check_location(RUNS / stem)
    RUNS.mkdir(exist_ok=True)
    number = 1
    while True:
        folder = RUNS / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()  # of two that try at the same time one alone succeeds
            return folder
        except FileExistsError:
            number += 1
