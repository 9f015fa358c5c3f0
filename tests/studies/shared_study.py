"""A study whose runs take a moment, for several processes that share it: what they do is told line by line in a file."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.events import Listener, ignore
from vitral.studies.design import Arm, Cell, Design
from vitral.studies.run_study import run_study
from vitral.tasks.task import Figure

SEEDS = (0, 1, 2, 3)
SCORE = Figure("score", "score", is_share=False)


@dataclass(frozen=True)
class Telling:
    """Work that says in a file when it begins and ends.

    Attributes:
        factor: the figure is this times the seed.
        log: the file.
        lasts: seconds of a run; endless where a file of the run's name and ".stuck" is there.
        expected: seconds that it is said to take.
    """

    factor: float
    log: Path
    lasts: float = 0.0
    expected: float = 0.0

    def question(self) -> Mapping[str, Any]:
        return {"factor": self.factor}

    def seconds(self) -> float | None:
        return self.expected

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        self.tell(f"begin {cell.name} {os.getpid()}")
        time.sleep(self.lasts)
        while self.log.with_name(f"{cell.name}.stuck").exists():
            time.sleep(0.05)
        self.tell(f"end {cell.name} {os.getpid()}")
        return {"score": self.factor * (cell.seed or 0)}

    def tell(self, line: str) -> None:
        with open(self.log, "ab") as file:
            file.write(line.encode() + b"\n")  # in one write, which appending keeps whole


def design(folder: Path, lasts: float = 0.0, seeds: tuple[int, ...] = SEEDS) -> Design:
    """Two arms of several seeds, the second after the first."""
    log = folder / "log"
    arms = (Arm("one", Telling(1.0, log, lasts), seeds), Arm("two", Telling(2.0, log, lasts), seeds, after="one"))
    return Design("Two arms", SCORE, arms)


def told(folder: Path, what: str) -> list[str]:
    """Return the names of the runs of which it was told that they began, or ended, in order."""
    lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    return [line.split()[1] for line in lines if line.split()[0] == what]


def take_part(folder: Path, lasts: float, others: int) -> None:
    """Be one process of several, once so many are there."""
    (folder / f"here-{os.getpid()}").touch()
    while len(list(folder.glob("here-*"))) < others:
        time.sleep(0.01)
    run_study(design(folder, lasts), folder / "study", listener=ignore)
