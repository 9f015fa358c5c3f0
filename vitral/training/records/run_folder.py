"""The run folder as files: which are a run's own, when a run may begin in a folder, and those that say what it is.

run.json holds what a run's command was given; it is the folder's first file, so that a run killed at any moment continues.
recipe.toml holds the recipe as resolved, so that running it again gives the same weights, or says why it would not. The machine
and the versions that a run was made with are noted.
"""

import contextlib
import fnmatch
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import Any, get_type_hints

import torch

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.described import fits, read_described, read_object
from vitral.errors import StorageError, TrainingError, UsageError, VitralError
from vitral.files import foreign_files, remove_partial, storage_errors, write_file
from vitral.machine import processor_name
from vitral.outputs import check_location, locked, refuse_inputs
from vitral.paths import (
    ATTEMPT_FILE,
    ATTEMPTS,
    CHECKPOINTS,
    CLASSIFIER,
    CLASSIFIER_FILES,
    DATA_FILE,
    EVALUATION_FILE,
    FIRST,
    FIRST_FILE,
    METRICS_FILE,
    OUTCOME_FILE,
    PLAN_FILE,
    RECIPE_FILE,
    REPORT_FILE,
    RUN_FILE,
    RUNS,
    attempt_folder_name,
)
from vitral.training.plan import SEVERAL, ChosenStart
from vitral.training.request import Request
from vitral.training.settings.recipe import Recipe, first_difference, load_recipe

REQUEST = "request"  # in run.json: what the command was given, with what later commands changed of it
START = "start"  # in run.json: the start that was chosen, before there is a plan
TRAINED = "trained_before"  # in run.json: seconds trained when a time was last given
EARLIER = {"budget_seconds": "time"}  # fields of a request as earlier versions wrote them
EXACT = (
    "# Run again on the same data, from the same weights, by the same means, and without a time budget, it gives the same "
    "weights."
)
NOT_EXACT = "# Run again, it does not give the same weights: "
SWEEP = "sweep"  # where the runs lie that try a setting
STUDY_FILE = "study.json"
STUDY_ROWS = "rows.jsonl"
STUDY_TABLE = "study.md"
STUDY_PAGE = "study.html"
STUDY_FILES = (STUDY_FILE, STUDY_ROWS, STUDY_TABLE, STUDY_PAGE)
STUDY_CELLS = "cells"  # where a study keeps what came of each of its runs, and who works on it
LONGEST_NAME = 60  # letters of the data's name in the folder's
PROBED = "first-probe"  # what training begins with where another is first: the linear probe, of regions filters alone
BASELINES_FILE = "baselines.json"
ATTEMPT_FOLDERS = tuple(map(attempt_folder_name, SEVERAL))
FILES = (
    RECIPE_FILE,
    PLAN_FILE,
    RUN_FILE,
    DATA_FILE,
    FIRST_FILE,
    ATTEMPT_FILE,
    OUTCOME_FILE,
    BASELINES_FILE,
    METRICS_FILE,
    EVALUATION_FILE,
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
LIBRARIES = ("torch", "torchvision", "numpy", "pillow", "safetensors")


def begin(folder: Path, request: Request) -> None:
    """Write a request into a run folder."""
    # The fingerprint tells readers of data that the folder is a run, and is known only when the data are read.
    first = {"kind": request.kind, REQUEST: request.stored(), "data_fingerprint": ""}
    write_file(folder / RUN_FILE, json.dumps(first))


def read_run(folder: Path) -> dict[str, Any]:
    """Return what a run folder says of its run; empty where that is lost or damaged."""
    return read_object(folder / RUN_FILE)


def update_run(folder: Path, entries: dict[str, Any]) -> None:
    """Write entries into run.json, in place of those of the same names."""
    write_file(folder / RUN_FILE, json.dumps(read_run(folder) | entries, indent=2, default=str))


def stored_request(folder: Path) -> Request | None:
    """Return the request of the run in a folder; None where it is lost or damaged, or of a version up to 0.2."""
    stored = read_run(folder).get(REQUEST)
    if not isinstance(stored, dict):
        return None
    stored = {EARLIER.get(name, name): value for name, value in stored.items()}
    hints = get_type_hints(Request)
    names = [field.name for field in fields(Request) if field.name in stored and not field.metadata.get("execution")]
    values = {name: stored[name] for name in names}
    if "kind" not in values or not all(fits(hints[name], _text(value)) for name, value in values.items()):
        return None
    for name in ("overrides", "plugins"):
        values[name] = tuple(values.get(name, ()))
    try:
        return Request(**values)
    except VitralError:
        return None


def _text(value: object) -> object:
    """Return a value with its text such as UTF-8 can hold: a path need not be."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def note_start(folder: Path, chosen: ChosenStart) -> None:
    """Write into run.json which start was chosen, so that no later command chooses another."""
    update_run(folder, {START: asdict(chosen)})


def stored_start(folder: Path) -> ChosenStart | None:
    """Return the start that was chosen for the run in a folder; None where one was named, or run.json is damaged."""
    try:
        return read_described(ChosenStart, read_run(folder).get(START), RUN_FILE)
    except VitralError:
        return None


def trained_before(folder: Path) -> float:
    """Return the seconds that a run had trained when its time was last given: 0 where that was at its beginning."""
    seconds = read_run(folder).get(TRAINED, 0.0)
    return float(seconds) if fits(float, seconds) else 0.0


def claim_recipe(folder: Path, recipe: Recipe, remarks: Sequence[str] = (), *, resume: bool) -> bool:
    """Write a run's recipe, once it is known to be that of the run in the folder; return whether its length is another.

    Raises:
        TrainingError: the folder holds a run and `resume` is false, or the recipe is not that of the run.
    """
    path = folder / RECIPE_FILE
    if not resume and path.is_file():
        raise TrainingError(
            f"'{folder}' already holds a run; continue it by {argument('resume', True)}, "
            f"or choose another {argument('out')}."
        )
    before = load_recipe(path) if path.is_file() else recipe
    if key := first_difference(recipe, before):
        raise TrainingError(f"The run in '{folder}' began with another '{key}'; resume it with its own {RECIPE_FILE}.")
    distributed.barrier()  # nobody reads what the main process is about to write
    if torchrun.is_main():
        write_recipe(folder, recipe, remarks)
    return recipe.steps != before.steps


def write_recipe(folder: Path, recipe: Recipe, remarks: Sequence[str] = ()) -> None:
    """Write a run's recipe, with the remarks on running it again."""
    before = kept_remarks(folder)
    remarks = [*before, *(remark for remark in remarks if remark not in before)]
    heading = [NOT_EXACT + remark for remark in remarks] or [EXACT]
    write_file(folder / RECIPE_FILE, "\n".join([*heading, "", recipe.to_toml()]))


def kept_remarks(folder: Path) -> tuple[str, ...]:
    """Return why the recipe in a run folder, run again, would not give the same weights; nothing where it would."""
    path = folder / RECIPE_FILE
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return tuple(line.removeprefix(NOT_EXACT) for line in lines if line.startswith(NOT_EXACT))


def holds_run(folder: Path) -> bool:
    """Tell whether a run began in a folder."""
    return any((folder / name).is_file() for name in (RUN_FILE, RECIPE_FILE))


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
        raise UsageError(f"{resuming} continues a run, and {replacing} begins it anew; give one of them.")
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
