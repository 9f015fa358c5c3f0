"""A study of the paper's: one of its experiments, listed by name, on a user's data, at a size that a budget pays for.

OUT/
  experiment.json     the question, and how long the runs are: the same study continues in the folder, and no other
  TRIAL-SEED/         the runs, each a run folder
  cells/, study.json, rows.jsonl, study.md, study.html   as in any study
  rows.parquet        every run with its facts and figures
  page.html, page.md and its figures                     the paper's figure beside ours
"""

import json
import signal
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

from vitral import distributed
from vitral.advice import argument
from vitral.data.bad_images import left_out
from vitral.data.open import open_data
from vitral.data.part import is_part
from vitral.described import read_described, read_object
from vitral.errors import StorageError, StudyError, TrainingInterrupted, VitralError
from vitral.events import Listener, Message, show
from vitral.files import write_file
from vitral.outputs import check_folder
from vitral.paths import RUNS
from vitral.studies.paper.ablations import HEAD, OPTIMIZER, PATCHES, POSITION, RESOLUTION, SHAPES
from vitral.studies.paper.experiment_plan import ExperimentPlan, StudyRecord, by_operations, paced
from vitral.studies.paper.pages import write_pages
from vitral.studies.paper.paper_study import PaperStudy
from vitral.studies.paper.pretraining import SELF_SUPERVISION, STARTS
from vitral.studies.paper.scale import SCALES, chosen
from vitral.studies.paper.scaling import DATA_SIZE, SCALING
from vitral.studies.paper.work import SHOTS
from vitral.studies.rows import in_turn
from vitral.studies.run_study import plan_study, run_study
from vitral.training.records.run_folder import STUDY_CELLS, STUDY_FILES
from vitral.training.settings.durations import HOUR
from vitral.training.settings.durations import seconds as read_seconds

RECORD = "experiment.json"
RUNS_EACH = 3
FEWEST_RUNS = 2


_LISTED = (DATA_SIZE, SCALING, SHAPES, PATCHES, POSITION, HEAD, OPTIMIZER, RESOLUTION, SELF_SUPERVISION, STARTS)
EXPERIMENTS = {experiment.name: experiment for experiment in _LISTED}


def study(
    name: str,
    data: str | Path,
    *,
    transfer: str | Path | None = None,
    budget: str = "laptop",
    runs: int = RUNS_EACH,
    time: str | float | None = None,
    skip_bad_images: bool | None = None,
    out: str | Path | None = None,
    plan: bool = False,
    listener: Listener = show,
) -> PaperStudy:
    """Repeat an experiment of the paper on any data, and draw the result beside the paper's.

    The same call continues what was interrupted, and several processes may share its folder.

    Args:
        name: The experiment: "data-size", "scaling", "shapes", "patches", "position", "head", "optimizer", "resolution",
            "self-supervision" or "starts".
        data: The data to learn from, as `finetune` takes them, with one class an image.
        transfer: Other data. The deciding figure is then, as in most of the paper's ablations, the accuracy of ridge
            regression on the frozen features of five of its images a class, instead of the accuracy on the test images.
        budget: The networks and the length: "laptop", "h200" or "cluster".
        runs: The number of seeds of every arm, at least two.
        time: The time for the whole study, such as "40m"; only if the budget leaves the number of steps to the machine.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        out: The folder; runs/study-NAME if None.
        plan: Whether only to return what would be done and what it would cost; nothing is written.
        listener: Receives the plan, progress and problems.

    Raises:
        StudyError: There is no such experiment or budget, too few runs or too little time, the folder holds another study, or
            every run failed.
        DataError: The data cannot be read, or an image does not have exactly one class.
        ImageError: An image cannot be read.
        StorageError: Something cannot be written.
    """
    folder = RUNS / f"study-{name}" if out is None else Path(out)
    laid_out = _laid_out(name, data, transfer, budget, runs, skip_bad_images, listener)
    record = distributed.by_main(lambda: _resumed(laid_out, folder, time, plan, listener))
    record = record or _begin(laid_out, folder, time, plan, listener)
    laid_out = replace(laid_out, record=record)
    design = laid_out.design()
    result = PaperStudy(laid_out, folder, plan_study(design, folder))
    if plan:
        return result
    for line in result.head():
        listener(Message(line))
    try:
        result = replace(result, study=run_study(design, folder, listener=listener))
    except KeyboardInterrupt as stop:
        raise TrainingInterrupted(
            f"{str(stop).rstrip('.') or 'Interrupted'} between two runs",
            advice=f"the same study in '{folder}' continues",
            exit_code=128 + getattr(stop, "number", signal.SIGINT),
        ) from stop
    distributed.by_main(lambda: write_pages(result))
    return result


def _laid_out(
    name: str,
    data: str | Path,
    transfer: str | Path | None,
    budget: str,
    runs: int,
    skip_bad_images: bool | None,
    listener: Listener,
) -> ExperimentPlan:
    experiment, scale = chosen("study", name, EXPERIMENTS), chosen("budget", budget, SCALES)
    if runs < FEWEST_RUNS:
        raise StudyError(
            f"A study makes claims, and {runs} run{'s'[: runs != 1]} an arm says nothing of chance: "
            f"give {argument('runs')} at least {FEWEST_RUNS}."
        )
    dataset = open_data(data, skip_bad_images=skip_bad_images, listener=listener)
    for note in left_out(dataset.bad_images):
        listener(Message(note, warning=True))
    if not dataset.task.exclusive:
        raise StudyError(f"The images of '{data}' have not one class each, which the paper's experiments need.")
    other = None if transfer is None else str(transfer)
    laid_out = ExperimentPlan(experiment, scale, str(data), dataset, other, tuple(range(runs)))
    if is_part(str(data)) and laid_out.train_images.keys() != {"1"}:
        raise StudyError(f"The study '{name}' takes shares of the data itself; name the whole instead of '{data}'.")
    if other is not None:
        _check_transfer(other, listener)
    asked = {
        "study": experiment.name,
        "budget": scale.name,
        "data": str(data),
        "fingerprint": dataset.fingerprint,
        "transfer": other,
    }
    return replace(laid_out, record=StudyRecord(asked), skip_bad_images=skip_bad_images)


def _check_transfer(transfer: str, listener: Listener) -> None:
    """Refuse data on which no run could be scored: a typing mistake must not cost an hour of training."""
    data = open_data(transfer, verify=False, hold_out=False, listener=listener)
    train = data.splits.get("train")
    if not data.task.exclusive or train is None or train.endless or not {"test", "validation"} & data.splits.keys():
        raise StudyError(
            f"'{transfer}' cannot say how good features are: that takes images of one class each, some to learn from and "
            "others to score."
        )
    counts = Counter(train.labels())
    if len(counts) < len(data.class_names) or min(counts.values()) < SHOTS:
        raise StudyError(
            f"'{transfer}' has a class of fewer than {SHOTS} training images, as many as 5-shot accuracy takes."
        )


def _resumed(
    laid_out: ExperimentPlan, folder: Path, time: str | float | None, plan: bool, listener: Listener
) -> StudyRecord | None:
    """Return how the study in a folder began; None if none did, or for the plan of another, which needs no folder."""
    record = _read(folder)
    if record is None:
        return None
    before, asked = record.asked, laid_out.record.asked
    differences = [f"{key} {before.get(key)!r}, now {now!r}" for key, now in asked.items() if before.get(key) != now]
    if differences and plan:
        return None
    if differences:
        raise StudyError(
            f"The study in '{folder}' began with something else ({'; '.join(differences)}); name another folder with "
            f"{argument('out')}."
        )
    if time is not None:
        listener(Message(f"The study in '{folder}' continues with the length of its runs, whatever time is given."))
    return record


def _read(folder: Path) -> StudyRecord | None:
    values = read_object(folder / RECORD)
    try:
        return read_described(StudyRecord, values, RECORD) if values else None
    except VitralError as error:
        raise StudyError(f"'{folder / RECORD}' is damaged; name another folder with {argument('out')}.") from error


def _begin(
    laid_out: ExperimentPlan, folder: Path, time: str | float | None, plan: bool, listener: Listener
) -> StudyRecord:
    """Return how a new study begins: measured by all processes of a job together, and written unless it is only planned."""
    if not plan:
        distributed.by_main(lambda: _check(folder))
    measured = distributed.broadcast(_measured(laid_out, time, listener))
    return measured if plan else distributed.by_main(lambda: _keep(measured, folder))


def _check(folder: Path) -> None:
    """Refuse a folder with anything else in it, but for a study that another process has just begun there."""
    try:
        check_folder(folder, own=(RECORD, STUDY_CELLS, *STUDY_FILES), replace=False)
    except StorageError:
        if _read(folder) is None:
            raise


def _keep(measured: StudyRecord, folder: Path) -> StudyRecord:
    """Write how a study begins; if another process that shares the folder was first, return how that one began."""
    with in_turn(folder / STUDY_CELLS):
        first = _read(folder)
        if first is None:
            write_file(folder / RECORD, json.dumps(asdict(measured), indent=2))
        return first or measured


def _measured(laid_out: ExperimentPlan, time: str | float | None, listener: Listener) -> StudyRecord:
    scale = laid_out.scale
    if scale.hours is None:
        if time is not None:
            raise StudyError(
                f"The recipes of the budget '{scale.name}' say how long its runs are; leave {argument('time')} out."
            )
        return replace(laid_out.record, seconds=by_operations(laid_out))
    given = None if time is None else read_seconds(time)
    paid = paced(laid_out, scale.hours * HOUR if given is None else given, listener)
    return replace(paid.record, time=given)
