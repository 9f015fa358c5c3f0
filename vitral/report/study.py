"""The result of a study: figures of several arms over several seeds, and their table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vitral.report.written import markdown_lines
from vitral.tasks.shown import NO_VALUE, percent
from vitral.tasks.task import Figure


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN of no value."""
    return statistics.fmean(values) if values else math.nan


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation (n - 1); NaN of fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else math.nan


@dataclass(frozen=True)
class StudyArm:
    """One side of a comparison, with the figures of every finished run by name, such as {"top1": 0.94}."""

    name: str
    runs: tuple[Mapping[str, float], ...]

    def values(self, figure: str) -> tuple[float, ...]:
        """Return a figure of every run that has it."""
        return tuple(run[figure] for run in self.runs if figure in run)

    def mean(self, figure: str) -> float:
        """Return the mean over the runs; NaN without one."""
        return mean(self.values(figure))

    def deviation(self, figure: str) -> float:
        """Return the standard deviation over the runs (n - 1); NaN for fewer than two."""
        return deviation(self.values(figure))


@dataclass(frozen=True)
class Failure:
    """A run that failed: its name, which is the arm's with the seed, and the reason in one line."""

    run: str
    error: str


@dataclass(frozen=True)
class Study:
    """The result of a study so far: the figure that decides, one of the runs', and the arms in the study's order.

    An arm without a finished run has no figures; `left` is the number of runs that have not ended.
    """

    title: str
    headline: Figure
    arms: tuple[StudyArm, ...]
    failures: tuple[Failure, ...] = ()
    left: int = 0

    @property
    def complete(self) -> bool:
        """Whether every run has its figures."""
        return not self.left and not self.failures

    def arm(self, name: str) -> StudyArm:
        """Return an arm by its name."""
        return next(arm for arm in self.arms if arm.name == name)

    def figures(self) -> list[str]:
        """Return the names of all figures, the headline first."""
        every = dict.fromkeys([self.headline.name, *(name for arm in self.arms for run in arm.runs for name in run)])
        return [name for name in every if any(arm.values(name) for arm in self.arms)]

    def remarks(self) -> list[str]:
        """Return what a reader of the figures must know, one line each: runs that have not ended, and failed runs."""
        runs = sum(len(arm.runs) for arm in self.arms)
        left = f"{self.left} of {runs + self.left + len(self.failures)} runs have not ended yet."
        return [
            *([left] if self.left else []),
            *(f"{failure.run} failed: {failure.error}" for failure in self.failures),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values, with mean and deviation of every figure."""
        return {
            "title": self.title,
            "headline": self.headline.name,
            "arms": [
                {
                    "name": arm.name,
                    "runs": [dict(run) for run in arm.runs],
                    "mean": {name: arm.mean(name) for name in self.figures()},
                    "deviation": {name: arm.deviation(name) for name in self.figures()},
                }
                for arm in self.arms
            ],
            "failures": [asdict(failure) for failure in self.failures],
            "left": self.left,
        }


def table_rows(study: Study, figures: Sequence[str] | None = None) -> list[list[str]]:
    """Return the table of some figures or all: a heading, then of every arm the name, each mean ± deviation, the runs."""
    names = study.figures() if figures is None else figures
    titles = (study.headline.title if name == study.headline.name else name for name in names)
    rows = ([arm.name, *(_cell(study, arm, name) for name in names), str(len(arm.runs))] for arm in study.arms)
    return [["arm", *titles, "runs"], *rows]


def markdown_table(study: Study) -> str:
    """Return the table as Markdown, with the title above it and the remarks below."""
    heading, *rows = table_rows(study)
    lines = markdown_lines(heading, rows)
    remarks = [f"- {remark}" for remark in study.remarks()]
    return "\n".join([f"# {study.title}", "", *lines, *(["", *remarks] if remarks else []), ""])


def _cell(study: Study, arm: StudyArm, figure: str) -> str:
    """Return mean and deviation; for one run only its figure."""
    middle, spread = arm.mean(figure), arm.deviation(figure)
    share = study.headline.is_share and figure == study.headline.name
    if math.isnan(middle):
        return NO_VALUE
    text = percent(middle, 2) if share else f"{middle:.4g}"
    if math.isnan(spread):
        return text
    return f"{text} ± {percent(spread, 2) if share else f'{spread:.2g}'}"
