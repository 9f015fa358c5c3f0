"""A study before it begins: arms times seeds, many runs and one question."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vitral.events import Listener
from vitral.tasks.task import Figure

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=+-]*")  # of an arm, after which folders are named
OWN_SEED = (None,)  # for an arm of one run with a seed of its own


@dataclass(frozen=True)
class Cell:
    """One run of a study: an arm with a seed.

    Attributes:
        seed: The seed of every random choice; None for the work's own.
        folder: The run folder. After a kill it holds what the killed process left, and the run continues from that.
        source: The folder of the run whose result this one starts from; None if its arm follows no other.
        first: Whether it is the first of its arm, which alone does what no seed changes.
    """

    arm: str
    seed: int | None
    folder: Path
    source: Path | None = None
    first: bool = True

    @property
    def name(self) -> str:
        """The arm's name, with the seed where there is one; no other cell of the study has it."""
        return self.folder.name


class Work(Protocol):
    """The work of every cell of an arm."""

    def question(self) -> Mapping[str, Any]:
        """Return the settings of the arm as JSON values; a study that began with others is not resumed."""
        ...

    def seconds(self) -> float | None:
        """Return the expected seconds of a cell on this machine; None if unknown."""
        ...

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        """Carry out a cell, or continue it if its folder holds a beginning, and return its figures by name.

        Under torchrun every process calls this, and the figures of the main one count.

        Raises:
            VitralError: The run failed; the study continues with the others.
            TrainingInterrupted: The user stops the study.
        """
        ...


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: the work of its runs, one for each seed.

    Its folders have the name, of letters, digits and a few signs; tables and figures have the label, or else the name. Of the
    arm that it comes after, the run of the same seed, or the only run, is what it starts from and must be finished before.
    """

    name: str
    work: Work
    seeds: tuple[int | None, ...]
    after: str = ""
    label: str = ""


@dataclass(frozen=True)
class Design:
    """A study before it begins: the heading of its page, and the figure that decides, one of those that the runs give.

    The arms are in the order in which they are shown and begun, unless one waits for another.
    """

    title: str
    headline: Figure
    arms: tuple[Arm, ...]

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        assert all(NAME.fullmatch(name) for name in names), names
        cells = [_name(arm, seed) for arm in self.arms for seed in arm.seeds]
        assert len(set(cells)) == len(cells), "two runs would have one folder"
        for place, arm in enumerate(self.arms):
            assert not arm.after or arm.after in names[:place], f"{arm.name} follows no arm before it"

    def arm(self, name: str) -> Arm:
        """Return an arm by its name."""
        return next(arm for arm in self.arms if arm.name == name)

    def cells(self, folder: Path) -> list[Cell]:
        """Return the runs of the study in a folder, in the order in which they begin."""
        return [
            Cell(arm.name, seed, folder / _name(arm, seed), self._source(folder, arm, seed), seed == arm.seeds[0])
            for arm in self.arms
            for seed in arm.seeds
        ]

    def _source(self, folder: Path, arm: Arm, seed: int | None) -> Path | None:
        if not arm.after:
            return None
        before = self.arm(arm.after)
        if seed not in before.seeds:
            (seed,) = before.seeds
        return folder / _name(before, seed)


def _name(arm: Arm, seed: int | None) -> str:
    return arm.name if seed is None else f"{arm.name}-{seed}"
