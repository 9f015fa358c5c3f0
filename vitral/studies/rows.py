"""What a study has found so far: a row per run, each a file of its own, and all of them in one table for programs.

STUDY/
  study.json           the arms and what each does; the same study continues in the folder, and no other
  cells/NAME/row.json  what came of a run, written once and whole; next to it lies the claim of who works on it
  NAME/                the run's own folder
  rows.jsonl           all rows, a line each, anew after every run
  study.md, .html      the table, and with the figure, when nothing is left to do

The row lies in the folder that the claim is taken in: a network disk may continue saying for a while that a file is not there,
but not after one has written into its folder oneself, which taking the claim does.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vitral.files import write_file
from vitral.studies.claims import in_turn
from vitral.studies.design import Cell
from vitral.training.records.run_folder import STUDY_CELLS, STUDY_ROWS

ROW = "row.json"


@dataclass(frozen=True)
class Row:
    """What came of a run.

    Attributes:
        arm: its arm.
        seed: its seed.
        figures: by name; empty where it failed.
        seconds: that the attempt took which ended it.
        error: why it failed, one line; empty if it did not.
        attempt: the number of the attempt, from 1.
        traceback: where an error came from that is no user's.
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
    """Return where a cell's claim and its row lie."""
    return cell.folder.parent / STUDY_CELLS / cell.name


def read_row(cell: Cell) -> Row | None:
    """Return what came of a cell; None if it has not ended yet, or what was written of it is damaged."""
    try:
        said = json.loads((claim_folder(cell) / ROW).read_text(encoding="utf-8"))
        figures = {name: math.nan if value is None else float(value) for name, value in said.pop("figures").items()}
        return Row(figures=figures, **said)
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None


def read_rows(cells: Sequence[Cell]) -> dict[str, Row]:
    """Return what came of those cells that have ended, by the cells' names."""
    rows = ((cell.name, read_row(cell)) for cell in cells)
    return {name: row for name, row in rows if row is not None}


def write_row(cell: Cell, row: Row) -> None:
    """Write what came of a cell; only who holds its claim does.

    Raises:
        StorageError: it cannot be written.
    """
    write_file(claim_folder(cell) / ROW, _line(row))


def write_table(folder: Path, cells: Sequence[Cell]) -> None:
    """Write all rows into one file, in the design's order.

    Raises:
        StorageError: it cannot be written.
    """
    with in_turn(folder / STUDY_CELLS):  # else an older view could be written over a newer one
        rows = read_rows(cells)
        write_file(folder / STUDY_ROWS, "".join(_line(rows[cell.name]) for cell in cells if cell.name in rows))


def _line(row: Row) -> str:
    values = asdict(row)
    values["figures"] = {name: value if math.isfinite(value) else None for name, value in row.figures.items()}
    return json.dumps(values, allow_nan=False) + "\n"
