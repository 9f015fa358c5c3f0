"""What is left of a study and how long it will take."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vitral.studies.design import Cell, Design
from vitral.studies.rows import RunRow
from vitral.training.settings.durations import rounded


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
        head = f"{len(self.arms)} arms, {runs} runs{done}.{total}"
        return [head, *(_line(arm) for arm in self.arms if arm.left and arm.seconds is not None)]


def _line(arm: ArmCost) -> str:
    return f"  {arm.name}: {arm.left} {'run' if arm.left == 1 else 'runs'} of about {rounded(arm.seconds or 0.0)}"


def cost_of(design: Design, cells: Sequence[Cell], rows: Mapping[str, RunRow]) -> StudyCost:
    """Return what is left of a study; only arms with something left are measured.

    Args:
        design: The study.
        cells: The runs of the study.
        rows: The rows of those that have ended, by name.
    """
    arms = []
    for arm in design.arms:
        mine = [rows.get(cell.name) for cell in cells if cell.arm == arm.name]
        took = [row.seconds for row in mine if row is not None and row.done]
        left = len(mine) - len(took)
        seconds = statistics.fmean(took) if took else arm.work.seconds() if left else None
        arms.append(ArmCost(arm.name, len(mine), left, seconds))
    return StudyCost(tuple(arms))
