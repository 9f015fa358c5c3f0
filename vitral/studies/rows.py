"""What a study has found so far: a row per run, each a file of its own, all of them in one table, and claims on its runs.

STUDY/
  study.json           the arms and what each does; the same study continues in the folder, and no other
  cells/NAME/row.json  what came of a run, written once and whole; next to it lies the claim of who works on it
  NAME/                the run's own folder
  rows.jsonl           all rows, a line each, anew after every run
  study.md, .html      the table, and with the figure, when nothing is left to do

The row lies in the folder in which the claim is taken: a network disk may report a file as missing for a while, but not after
this process has written into its folder, which taking the claim does. A claim is a lock that ends with its process.
"""

import contextlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vitral.errors import TrainingError
from vitral.files import storage_errors, write_file
from vitral.outputs import locked
from vitral.studies.design import Cell
from vitral.training.records.run_folder import STUDY_CELLS, STUDY_ROWS

TURN_SECONDS = 0.05  # between two attempts
PATIENCE = 300.0  # seconds to wait for work of milliseconds
ROW = "row.json"


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Claim a folder for the block, and tell whether that was possible: not while a living process holds it.

    Raises:
        StorageError: Nothing can be written there.
    """
    with contextlib.ExitStack() as stack:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        mine = False
        with contextlib.suppress(TrainingError):
            stack.enter_context(locked(folder))
            mine = True
        yield mine


@contextlib.contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Hold a folder for the block, after those who held it before.

    Raises:
        StorageError: Nothing can be written there.
        TrainingError: Another process held it for minutes.
    """
    until = time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        while not stack.enter_context(claimed(folder)):
            if time.monotonic() > until:
                stack.enter_context(locked(folder))  # its error names the holder
            time.sleep(TURN_SECONDS)
        yield


@dataclass(frozen=True)
class RunRow:
    """What came of a run: its figures by name, or the reason of a failure in one line, with the traceback of an unexpected one.

    The seconds are of the last attempt; attempts are counted from 1.
    """

    arm: str
    seed: int | None
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    attempt: int = 1
    traceback: str = ""

    @property
    def done(self) -> bool:
        """Whether the run gave its figures."""
        return not self.error


def claim_folder(cell: Cell) -> Path:
    """Return the folder of a cell's claim and row."""
    return cell.folder.parent / STUDY_CELLS / cell.name


def read_row(cell: Cell) -> RunRow | None:
    """Return the row of a cell; None if it has not ended yet or the file is damaged."""
    try:
        values = json.loads((claim_folder(cell) / ROW).read_text(encoding="utf-8"))
        figures = {name: math.nan if value is None else float(value) for name, value in values.pop("figures").items()}
        return RunRow(figures=figures, **values)
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None


def read_rows(cells: Sequence[Cell]) -> dict[str, RunRow]:
    """Return the rows of those cells that have ended, by the cells' names."""
    rows = ((cell.name, read_row(cell)) for cell in cells)
    return {name: row for name, row in rows if row is not None}


def write_row(cell: Cell, row: RunRow) -> None:
    """Write the row of a cell; only the holder of its claim does.

    Raises:
        StorageError: It cannot be written.
    """
    write_file(claim_folder(cell) / ROW, _line(row))


def write_table(folder: Path, cells: Sequence[Cell]) -> None:
    """Write all rows into one file, in the design's order.

    Raises:
        StorageError: It cannot be written.
    """
    with in_turn(folder / STUDY_CELLS):  # else an older view could be written over a newer one
        rows = read_rows(cells)
        write_file(folder / STUDY_ROWS, "".join(_line(rows[cell.name]) for cell in cells if cell.name in rows))


def _line(row: RunRow) -> str:
    values = asdict(row)
    values["figures"] = {name: value if math.isfinite(value) else None for name, value in row.figures.items()}
    return json.dumps(values, allow_nan=False) + "\n"
