"""Carry out a study: many runs, one question, by as many processes and machines as share its folder; and how long it will take.

Every process takes the first run that is ready and that nobody works on, carries it out, writes its row, and looks again, until
nothing is left. A process that dies loses its claim, and another, or a restart, continues its run.
"""

import contextlib
import json
import statistics
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral import distributed
from vitral.advice import counted
from vitral.described import read_object
from vitral.errors import StudyError, TrainingInterrupted, VitralError
from vitral.events import Listener, Message, show
from vitral.files import write_file
from vitral.outputs import check_location
from vitral.report.experiment_page import write_study
from vitral.report.study import Failure, Study, StudyArm
from vitral.studies.design import Cell, Design
from vitral.studies.rows import RunRow, claim_folder, claimed, in_turn, read_row, read_rows, write_row, write_table
from vitral.training.records.run_folder import STUDY_CELLS, STUDY_FILE, STUDY_PAGE, STUDY_TABLE
from vitral.training.settings.durations import rounded

POLL_SECONDS = 1.0  # between two checks whether a process that works on the last runs has died


@dataclass(frozen=True)
class ArmCost:
    """How many runs an arm has, how many of them are not finished, and the seconds of a run.

    These are the mean of the finished ones, or the expected seconds; None if unknown.
    """

    name: str
    runs: int
    left: int
    seconds: float | None


@dataclass(frozen=True)
class StudyCost:
    """What is left of a study, by its arms in order, and how long it will take on this machine alone."""

    arms: tuple[ArmCost, ...]

    @property
    def left(self) -> int:
        """Runs that are not finished."""
        return sum(arm.left for arm in self.arms)

    @property
    def seconds(self) -> float | None:
        """The seconds of all that is left; None if part of it is unknown."""
        left = [arm for arm in self.arms if arm.left]
        known = [arm.left * arm.seconds for arm in left if arm.seconds is not None]
        return sum(known, 0.0) if len(known) == len(left) else None

    def fitting(self, budget_seconds: float) -> int:
        """Return how many of the runs left fit into a budget, in order; a run of unknown length counts as fitting."""
        fits, free = 0, budget_seconds
        for arm in self.arms:
            for _ in range(arm.left):
                if (arm.seconds or 0.0) <= free:
                    free -= arm.seconds or 0.0
                    fits += 1
        return fits

    def lines(self) -> list[str]:
        """Return what is left as lines for the user."""
        runs = sum(arm.runs for arm in self.arms)
        done = f", {runs - self.left} of them finished" if self.left < runs else ""
        total = f" What is left takes about {rounded(self.seconds)} on this machine." if self.seconds else ""
        head = f"{counted(len(self.arms), 'arm')}, {counted(runs, 'run')}{done}.{total}"
        return [head, *(_line(arm) for arm in self.arms if arm.left and arm.seconds is not None)]


def _line(arm: ArmCost) -> str:
    return f"  {arm.name}: {counted(arm.left, 'run')} of about {rounded(arm.seconds or 0.0)}"


def cost_of(design: Design, cells: Sequence[Cell], rows: Mapping[str, RunRow]) -> StudyCost:
    """Return what is left of a study, by the rows of what has ended; only arms with something left are measured."""
    arms = []
    for arm in design.arms:
        mine = [rows.get(cell.name) for cell in cells if cell.arm == arm.name]
        took = [row.seconds for row in mine if row is not None and row.done]
        left = len(mine) - len(took)
        seconds = statistics.fmean(took) if took else arm.work.seconds() if left else None
        arms.append(ArmCost(arm.name, len(mine), left, seconds))
    return StudyCost(tuple(arms))


def plan_study(design: Design, folder: str | Path) -> StudyCost:
    """Return what is left of a study and how long it will take; nothing is written."""
    cells = design.cells(Path(folder))
    rows = distributed.by_main(lambda: read_rows(cells))  # the same in every process, since they measure together
    return distributed.broadcast(cost_of(design, cells, rows))


def run_study(
    design: Design,
    folder: str | Path,
    *,
    budget_seconds: float | None = None,
    started: float | None = None,
    listener: Listener = show,
) -> Study:
    """Carry out what is left of a study, and write its table and page.

    Runs that failed before are tried once more; those that fail now are reported and do not stop the others.

    Args:
        design: The study.
        folder: The folder; a study that began there continues. Several processes may share it.
        budget_seconds: The budget; no run begins that is expected to end after it, and the rest stays for another time. None
            for no limit.
        started: The `time.monotonic()` at which the budget began; None for now.
        listener: Receives the plan, then the runs.

    Returns:
        What was found; `complete` tells whether that is all.

    Raises:
        StudyError: The folder holds another study, not one run fits the budget, or every run failed.
        StorageError: Something cannot be written.
        TrainingInterrupted: The user stops; the same call continues.
    """
    until = None if budget_seconds is None else (time.monotonic() if started is None else started) + budget_seconds
    path = Path(folder)
    distributed.by_main(lambda: _begin(design, path))
    cost = plan_study(design, path)
    _announce(design, cost, None if until is None else until - time.monotonic(), listener)
    _Worker(design, path, cost, until, listener).work()
    study = distributed.by_main(lambda: _conclude(design, path))
    if not any(arm.runs for arm in study.arms) and study.failures:
        raise StudyError(f"Every run of the study in '{path}' failed; the first so: {study.failures[0].error}")
    return study


def _conclude(design: Design, folder: Path) -> Study:
    """Return what a study has found so far, and write its table and figure."""
    cells = design.cells(folder)
    write_table(folder, cells)  # a kill may have come between a row and the table
    with in_turn(folder / STUDY_CELLS):  # else an older view could be written over a newer one
        rows = read_rows(cells)
        ended = [(cell, rows[cell.name]) for cell in cells if cell.name in rows]
        arms = tuple(
            StudyArm(
                arm.label or arm.name, tuple(row.figures for cell, row in ended if cell.arm == arm.name and row.done)
            )
            for arm in design.arms
        )
        failures = tuple(Failure(cell.name, row.error) for cell, row in ended if not row.done)
        study = Study(design.title, design.headline, arms, failures, left=len(cells) - len(rows))
        write_study(study, folder / STUDY_TABLE, folder / STUDY_PAGE)
    return study


def reopen(folder: Path) -> None:
    """Forget what a study found, but keep its runs: each continues where it ended, with the same settings or others."""
    for row in (folder / STUDY_CELLS).glob("*/row.json"):
        row.unlink(missing_ok=True)
    (folder / STUDY_FILE).unlink(missing_ok=True)


def _begin(design: Design, folder: Path) -> None:
    """Write the settings of the arms, or check them against those of the beginning; arms and seeds may be added."""
    check_location(folder)
    with in_turn(folder / STUDY_CELLS):
        now = {arm.name: json.loads(json.dumps(arm.work.question())) for arm in design.arms}
        kept = read_object(folder / STUDY_FILE).get("arms")
        before = kept if isinstance(kept, dict) else {}
        for name in before.keys() & now.keys():
            if before[name] != now[name]:
                raise StudyError(
                    f"The study in '{folder}' began with another '{name}' ({_difference(before[name], now[name])}); "
                    "name another folder for this one."
                )
        if before != before | now:
            write_file(folder / STUDY_FILE, json.dumps({"title": design.title, "arms": before | now}, indent=2))


def _difference(before: object, now: object) -> str:
    if not isinstance(before, dict) or not isinstance(now, dict):
        return f"{before}, now {now}"
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    return "; ".join(f"{name} {before.get(name)}, now {now.get(name)}" for name in names)


def _announce(design: Design, cost: StudyCost, free: float | None, listener: Listener) -> None:
    """Announce the runs and their cost; warn of a budget that is too short for all, and refuse one too short for any."""
    for line in cost.lines():
        listener(Message(line))
    if free is None or not cost.left or (fitting := cost.fitting(free)) >= cost.left:
        return
    if not fitting:
        least = min((arm.seconds for arm in cost.arms if arm.left and arm.seconds is not None), default=0.0)
        raise StudyError(
            f"The time for '{design.title}', {rounded(max(free, 0.0))}, is too short for a single run of it: the shortest "
            f"takes about {rounded(least)}. Give it more time, or make the runs shorter."
        )
    listener(
        Message(
            f"The budget is too short for all of it: about {fitting} of {cost.left} runs fit. The others stay for "
            "another time, or for other processes that share the folder.",
            warning=True,
        )
    )


class _Worker:
    """One process that works on a study; under torchrun, one job, in which the main process decides."""

    def __init__(self, design: Design, folder: Path, cost: StudyCost, until: float | None, listener: Listener) -> None:
        self.design, self.folder, self.listener, self.until = design, folder, listener, until
        self.cells = design.cells(folder)
        self.seconds = {arm.name: arm.seconds or 0.0 for arm in cost.arms}
        self.before = read_rows(self.cells)  # failures among them are tried again
        self.waits = False

    def work(self) -> None:
        """Take one run after the other until none is left for this process."""
        while True:
            with contextlib.ExitStack() as claim:
                cell, wait = distributed.by_main(lambda: self._take(claim))
                if cell is not None:
                    self._carry_out(cell)
                elif not wait:
                    return
            if wait:
                if not self.waits:
                    what = "Other processes work on what is left; waiting for them, or for one that dies."
                    self.listener(Message(what))
                self.waits = True
                time.sleep(POLL_SECONDS)

    def _take(self, claim: contextlib.ExitStack) -> tuple[Cell | None, bool]:
        """Claim the first cell that is ready, fits the time, and that nobody works on; tell whether to wait for others."""
        rows, wait = read_rows(self.cells), False
        for cell in self.cells:
            if self._settled(cell, rows.get(cell.name)) or not self._ready(cell, rows) or not self._fits(cell):
                continue
            if not claim.enter_context(claimed(claim_folder(cell))):
                wait = True
                continue
            if not self._settled(cell, read_row(cell)):
                return cell, False
            claim.close()  # somebody finished it while we looked
        return None, wait

    def _settled(self, cell: Cell, row: RunRow | None) -> bool:
        """Tell whether a cell is done, or has failed since this process began."""
        return row is not None and (row.done or row != self.before.get(cell.name))

    def _ready(self, cell: Cell, rows: dict[str, RunRow]) -> bool:
        """Tell whether the run that the cell starts from is done."""
        before = None if cell.source is None else rows.get(cell.source.name)
        return cell.source is None or (before is not None and before.done)

    def _fits(self, cell: Cell) -> bool:
        return self.until is None or time.monotonic() + self.seconds[cell.arm] <= self.until

    def _carry_out(self, cell: Cell) -> None:
        """Run a cell and write its row. An error is one; a kill or Ctrl-C writes nothing, and the cell stays open."""
        began, before = time.monotonic(), self.before.get(cell.name)
        figures: dict[str, float] = {}
        error = trace = ""
        try:
            figures = dict(self.design.arm(cell.arm).work.run(cell, self.listener))
        except TrainingInterrupted as stop:
            raise TrainingInterrupted(
                f"{stop.done}, in '{cell.name}'",
                advice=f"the same study in '{self.folder}' continues with it",
                exit_code=stop.exit_code,
            ) from stop
        except VitralError as failure:
            error = " ".join(str(failure).split())
        except Exception as failure:  # it must not cost the other runs of a night
            if distributed.world() > 1:
                raise  # the other processes of the job do not know of it
            error, trace = f"{type(failure).__name__}: {' '.join(str(failure).split())}", traceback.format_exc()
        attempt = 1 if before is None else before.attempt + 1
        row = RunRow(cell.arm, cell.seed, figures, round(time.monotonic() - began, 3), error, attempt, trace)
        distributed.by_main(lambda: self._write(cell, row))
        if error:
            self.listener(Message(f"{cell.name} failed, and the study continues without it: {error}", warning=True))
        elif (headline := self.design.headline).name in figures:
            figure = headline.text(figures[headline.name])
            self.listener(Message(f"{cell.name}: {headline.title} {figure} after {rounded(row.seconds)}."))

    def _write(self, cell: Cell, row: RunRow) -> None:
        write_row(cell, row)
        write_table(self.folder, self.cells)
