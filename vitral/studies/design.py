"""What a study is to do: arms times seeds, many runs and one question. Nothing of it has happened yet."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vitral.events import Listener
from vitral.tasks.task import Figure

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=+-]*")  # an arm's: it names folders
OWN_SEED = (None,)  # for an arm of one run, whose work brings its seed


@dataclass(frozen=True)
class Cell:
    """One run of a study: an arm with a seed.

    Attributes:
        arm: its name.
        seed: of every random choice; None for the work's own.
        folder: where the run goes. After a kill it holds what the killed process left, and the run continues with that.
        source: the folder of the run whose result this one starts from; None where its arm follows no other.
        first: whether it is the first of its arm: what no seed changes is done by it alone.
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
    """What every cell of an arm does."""

    def question(self) -> Mapping[str, Any]:
        """Return as JSON values what makes the arm what it is: a study that began with other ones is not resumed."""
        ...

    def seconds(self) -> float | None:
        """Return what one cell is expected to take on this machine; None where that cannot be said beforehand."""
        ...

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        """Carry out a cell, or continue with it where its folder holds a beginning, and return its figures by name.

        Under torchrun every process calls this, and the main one's figures count.

        Raises:
            VitralError: the run failed; the study continues with the others.
            TrainingInterrupted: the user stops; so does the study.
        """
        ...


@dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    Attributes:
        name: letters, digits and a few signs, since folders are named after it.
        work: what is done.
        seeds: one run each.
        after: the arm whose run of the same seed, or whose only run, must be finished before: what this one starts from.
        label: how a table or a figure calls it; the name if empty.
    """

    name: str
    work: Work
    seeds: tuple[int | None, ...]
    after: str = ""
    label: str = ""


@dataclass(frozen=True)
class Design:
    """A study before it begins.

    Attributes:
        title: the heading of its page.
        headline: the figure that decides; its name is one of those that the runs give.
        arms: in the order in which they are shown and, as far as one does not wait for another, begun.
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
        """Return the runs of the study in a folder, in the order in which they are begun."""
        return [
            Cell(arm.name, seed, folder / _name(arm, seed), self._source(folder, arm, seed), seed == arm.seeds[0])
            for arm in self.arms
            for seed in arm.seeds
        ]

    def _source(self, folder: Path, arm: Arm, seed: int | None) -> Path | None:
        if not arm.after:
            return None
        before = self.arm(arm.after)
        same = seed if seed in before.seeds else _only(before.seeds)
        return folder / _name(before, same)


def _name(arm: Arm, seed: int | None) -> str:
    return arm.name if seed is None else f"{arm.name}-{seed}"


def _only(seeds: Sequence[int | None]) -> int | None:
    (seed,) = seeds
    return seed
