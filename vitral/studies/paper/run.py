"""A study of the paper's: one of its experiments on a user's data, at a size that a budget pays for.

OUT/
  experiment.json     what was asked, and how long the runs are: the same study continues in the folder, and no other
  TRIAL-SEED/         the runs, each a run folder
  cells/, study.json, rows.jsonl, study.md, study.html   as in any study
  rows.parquet        every run with its facts and figures
  page.html, page.md and its figures                     the paper's figure beside ours
"""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vitral import distributed
from vitral.advice import argument
from vitral.data.open import open_data
from vitral.data.part import is_part
from vitral.data.source import DataSet
from vitral.described import read_object
from vitral.errors import ImageError, StorageError, StudyError, TrainingInterrupted, UnreadableImagesError
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.layout import RUNS
from vitral.outputs import check_folder
from vitral.progress import show
from vitral.studies.claims import in_turn
from vitral.studies.paper.layout import Setting, by_operations, paced
from vitral.studies.paper.pages import write_pages
from vitral.studies.paper.paper_study import Begun, PaperStudy
from vitral.studies.paper.registry import experiment_named
from vitral.studies.paper.scale import scale_named
from vitral.studies.paper.work import SHOTS
from vitral.studies.speech import PYTHON, Speech
from vitral.studies.study import by_main, plan_study, run_study
from vitral.training.planning.durations import HOUR
from vitral.training.planning.durations import seconds as read_seconds
from vitral.training.records.run_folder import STUDY_CELLS, STUDY_FILES

ASKED = "experiment.json"
RUNS_EACH = 3
FEWEST_RUNS = 2
INTERRUPTED = 130  # as shells have it after Ctrl-C


def study(
    name: str,
    data: str | Path,
    *,
    transfer: str | Path | None = None,
    budget: str = "laptop",
    runs: int = RUNS_EACH,
    time: str | float | None = None,
    out: str | Path | None = None,
    plan: bool = False,
    speech: Speech = PYTHON,
    listener: Listener = show,
) -> PaperStudy:
    """Repeat an experiment of the paper on any data, and draw what came out beside what the paper found.

    The same call goes on with what was interrupted, and several processes may share its folder.

    Args:
        name: "data-size", "scaling", "shapes", "patches", "position", "head", "optimizer", "resolution",
            "self-supervision" or "starts".
        data: what the networks learn, as `finetune` takes it; every image has one class.
        transfer: other data: what decides is then, as in most of the paper's ablations, how well ridge regression on the frozen
            features of five of its images a class does, and no longer the accuracy on the data's own test images.
        budget: "laptop", "h200" or "cluster": which networks, and how long.
        runs: seeds of every arm, at least two.
        time: what the whole study may take, such as "40m"; only where the budget leaves the number of steps to the machine.
        out: the folder; runs/study-NAME if None.
        plan: only say what would be done and what it would cost; nothing is written.
        speech: in whose words the page says how it was made.
        listener: hears of plan, progress and problems.

    Raises:
        StudyError: no such study or budget, too few runs or too little time, the folder holds another study, or every run
            failed.
        DataError: the data cannot be read, or have not one class an image.
        ImageError: an image cannot be read.
        StorageError: something cannot be written.
    """
    folder = RUNS / f"study-{name}" if out is None else Path(out)
    setting = _setting(name, data, transfer, budget, runs, listener)
    begun = by_main(lambda: _kept(setting, folder, time, plan, listener))
    begun = begun or _begin(setting, folder, time, plan, listener)
    setting = replace(setting, lengths=begun.lengths)
    design = setting.design(begun.steps, begun.seconds)
    planned = PaperStudy(setting, folder, begun, plan_study(design, folder))
    if plan:
        return planned
    for line in planned.head():
        listener(Message(line))
    try:
        finished = replace(planned, study=run_study(design, folder, listener=listener))
    except KeyboardInterrupt as stop:
        raise TrainingInterrupted(
            "Interrupted between two runs", advice=f"the same study in '{folder}' goes on", exit_code=INTERRUPTED
        ) from stop
    by_main(lambda: write_pages(finished, speech))
    return finished


def _setting(
    name: str, data: str | Path, transfer: str | Path | None, budget: str, runs: int, listener: Listener
) -> Setting:
    experiment, scale = experiment_named(name), scale_named(budget)
    if runs < FEWEST_RUNS:
        raise StudyError(
            f"A study makes claims, and {runs} run{'s'[: runs != 1]} an arm says nothing of chance: "
            f"give {argument('runs')} at least {FEWEST_RUNS}."
        )
    dataset = _open(str(data), listener)
    if not dataset.task.exclusive:
        raise StudyError(f"The images of '{data}' have not one class each, which the paper's experiments need.")
    setting = Setting(
        experiment, scale, str(data), dataset, None if transfer is None else str(transfer), tuple(range(runs))
    )
    if is_part(str(data)) and setting.train_images.keys() != {"1"}:
        raise StudyError(f"The study '{name}' takes shares of the data itself; name the whole instead of '{data}'.")
    if transfer is not None:
        _check_transfer(str(transfer), listener)
    return setting


def _open(data: str, listener: Listener) -> DataSet:
    """Open what the runs learn, every one of them from all images.

    Raises:
        DataError: no such data.
        ImageError: an image cannot be read.
    """
    try:
        return open_data(data, listener=listener)
    except UnreadableImagesError as error:
        raise ImageError(f"{error.found}. Fix or remove them: a study leaves no images out.") from error


def _check_transfer(transfer: str, listener: Listener) -> None:
    """Refuse data on which no run could be scored: a slip of the hand must not cost an hour of training.

    Raises:
        StudyError: the images have not one class each, there is nothing to score on, or a class has too few.
    """
    data = open_data(transfer, verify=False, hold_out=False, listener=listener)
    train = data.splits.get("train")
    if not data.task.exclusive or train is None or train.endless or not {"test", "validation"} & data.splits.keys():
        raise StudyError(
            f"'{transfer}' cannot say how good features are: that takes images of one class each, some to learn from and "
            "others to score."
        )
    fewest = min(Counter(train.labels()).values())
    if len(set(train.labels())) < len(data.class_names) or fewest < SHOTS:
        raise StudyError(
            f"'{transfer}' has a class of fewer than {SHOTS} training images, as many as 5-shot accuracy takes."
        )


def _question(setting: Setting) -> dict[str, Any]:
    return {
        "study": setting.experiment.name,
        "budget": setting.scale.name,
        "data": setting.spec,
        "fingerprint": setting.data.fingerprint,
        "transfer": setting.transfer,
    }


def _kept(setting: Setting, folder: Path, time: str | float | None, plan: bool, listener: Listener) -> Begun | None:
    """Return how the study in a folder began; None where none did, or of a plan, which needs no folder, another.

    Raises:
        StudyError: it began with something else.
    """
    begun = _read(folder)
    if begun is None:
        return None
    differences = [
        f"{key} {begun.asked.get(key)!r}, now {value!r}"
        for key, value in _question(setting).items()
        if begun.asked.get(key) != value
    ]
    if differences and plan:
        return None
    if differences:
        raise StudyError(
            f"The study in '{folder}' began with something else ({'; '.join(differences)}); name another folder with "
            f"{argument('out')}."
        )
    if time is not None:
        listener(Message(f"The study in '{folder}' goes on with the length of its runs; the time has no part in that."))
    return begun


def _read(folder: Path) -> Begun | None:
    kept = read_object(folder / ASKED)
    if not kept:
        return None
    try:
        seconds = {str(name): float(value) for name, value in kept["seconds"].items()}
        steps, asked = kept["steps"], kept.get("time")
        return Begun(
            dict(kept["asked"]),
            None if steps is None else int(steps),
            seconds,
            None if asked is None else float(asked),
            {str(name): float(value) for name, value in kept.get("lengths", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StudyError(f"'{folder / ASKED}' is damaged; name another folder with {argument('out')}.") from error


def _begin(setting: Setting, folder: Path, time: str | float | None, plan: bool, listener: Listener) -> Begun:
    """Return how a new study begins: measured by all processes of a job together, and unless it is only planned, kept."""
    if not plan:
        by_main(lambda: _check(folder))
    measured = distributed.broadcast(_measured(setting, time, listener))
    return measured if plan else by_main(lambda: _keep(measured, folder))


def _check(folder: Path) -> None:
    """Refuse a folder with anything else in it, but for a study that another process has just begun there.

    Raises:
        StorageError: it holds something else.
    """
    try:
        check_folder(folder, own=(ASKED, STUDY_CELLS, *STUDY_FILES), replace=False)
    except StorageError:
        if _read(folder) is None:
            raise


def _keep(measured: Begun, folder: Path) -> Begun:
    """Write down how a study begins, unless another process that shares the folder was first: then it begins as that says."""
    with in_turn(folder / STUDY_CELLS):
        first = _read(folder)
        if first is None:
            write_file(folder / ASKED, json.dumps(asdict(measured), indent=2))
        return first or measured


def _measured(setting: Setting, time: str | float | None, listener: Listener) -> Begun:
    asked, hours = _question(setting), setting.scale.hours
    if hours is None:
        if time is not None:
            raise StudyError(
                f"The recipes of the budget '{setting.scale.name}' say how long its runs are; leave {argument('time')} out."
            )
        return Begun(asked, None, by_operations(setting))
    given = None if time is None else read_seconds(time)
    pace = paced(setting, hours * HOUR if given is None else given, listener)
    return Begun(asked, pace.steps, pace.seconds, given, pace.lengths)
