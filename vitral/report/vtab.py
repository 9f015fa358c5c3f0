"""VTAB-1k's table: a network's 19 tasks in their groups, beside the published numbers."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitral.advice import counted
from vitral.data.vtab.tasks import GROUPS, TASKS
from vitral.report.written import markdown_lines
from vitral.tasks.shown import NO_VALUE, Presentable, number_text

JSON_FILE = "vtab.json"
TABLE_FILE = "vtab.md"
KIND = "vitral-vtab"
# Of the paper's Table 9: 2,500 steps at 384 pixels on 1,000 images, in the order of `TASKS`, percent.
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "ViT-H/14 JFT": (
        *(95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9),
        *(83.3, 96.7, 91.4, 76.6),
        *(91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2),
    ),
    "ViT-L/16 JFT": (
        *(95.4, 81.9, 74.3, 99.7, 96.7, 63.5, 87.4),
        *(83.6, 96.5, 89.7, 77.1),
        *(86.4, 63.1, 49.7, 74.5, 60.5, 82.2, 36.2, 51.1),
    ),
    "ViT-L/16 I21k": (
        *(90.8, 84.1, 74.1, 99.3, 92.7, 61.0, 80.9),
        *(82.5, 95.6, 85.2, 75.3),
        *(70.3, 56.1, 41.9, 74.7, 64.9, 79.9, 30.5, 41.7),
    ),
}
# Of BiT (arXiv 1912.11370, Table 1) only the means of the 19 tasks are published, percent; by groups those of a later run of
# its authors (big_transfer, README) are. Of AugReg none is known here.
BIT = {"BiT-L R152x4": 76.29, "BiT-M R152x4": 70.64}
BIT_AGAIN = "73.5 (natural 80.8, specialised 85.7, structured 61.1)"
COLUMNS = ("task", "accuracy", "images", *PUBLISHED)


@dataclass(frozen=True)
class TaskScore:
    """One task.

    Attributes:
        title: The paper's name for it.
        group: "natural", "specialised" or "structured".
        accuracies: The accuracy of each run, 0 to 1; none where there is no run.
        images: The number of images scored; None where nothing was.
        source: The source of its images; empty where there are none.
        problem: The reason why there is no accuracy, in one line; empty if there is one.
    """

    name: str
    title: str
    group: str
    accuracies: tuple[float, ...] = ()
    images: int | None = None
    source: str = ""
    problem: str = ""

    @property
    def mean(self) -> float:
        """The mean over the runs, 0 to 1; NaN without one."""
        return statistics.fmean(self.accuracies) if self.accuracies else math.nan

    def text(self) -> str:
        """Return mean and standard deviation (n - 1) for people, percent."""
        if not self.accuracies:
            return NO_VALUE
        spread = f" ± {100 * statistics.stdev(self.accuracies):.1f}" if len(self.accuracies) > 1 else ""
        return f"{100 * self.mean:.1f}{spread}"


@dataclass(frozen=True, repr=False)
class VtabTable(Presentable):
    """A network on VTAB-1k.

    Attributes:
        scores: The scores of the wanted tasks, in VTAB's order.
        left: The number of runs that have not ended yet.
        most: The number of test images of each task at most; None for all.
    """

    classifier: str
    protocol: str
    scores: tuple[TaskScore, ...]
    left: int = 0
    most: int | None = None

    def sentence(self) -> str:
        """Return in one line what was found; `print` shows the table."""
        return f"{self.classifier}, {self.title()}"

    def __str__(self) -> str:
        """Return the table as Markdown."""
        return self.markdown()

    def of(self, group: str) -> list[TaskScore]:
        """Return the tasks of a group that have an accuracy."""
        return [score for score in self.scores if score.group == group and score.accuracies]

    def mean(self, group: str | None = None) -> float:
        """Return the plain mean of a group's tasks, or of all, 0 to 1; NaN unless every one of VTAB's has an accuracy."""
        scored = [score for name in GROUPS if group in (None, name) for score in self.of(name)]
        whole = sum(group in (None, task.group) for task in TASKS)
        return statistics.fmean(score.mean for score in scored) if len(scored) == whole else math.nan

    def title(self) -> str:
        """Return what the figures are of, in one sentence without a full stop."""
        done = sum(bool(score.accuracies) for score in self.scores)
        return f"{done} of VTAB-1k's {len(TASKS)} tasks, {self.protocol} protocol"

    def how(self) -> str:
        """Return how the figures came about, in one sentence."""
        if self.protocol == "light":
            return (
                "A linear probe in closed form on frozen features of 1,000 training images, its penalty by leaving out one "
                "image at a time. The published columns are of fine-tuned networks."
            )
        return "All weights trained for 2,500 steps on 1,000 images at 384 pixels, as the paper's Table 9."

    def cells(self) -> list[list[str]]:
        """Return the rows as texts, in the order of `COLUMNS`: the tasks of each group and its mean, then the mean of all."""
        scored = {score.name: score for score in self.scores}
        published = [dict(zip((task.name for task in TASKS), row, strict=True)) for row in PUBLISHED.values()]
        rows = []
        for group in GROUPS:
            mine = [task for task in TASKS if task.group == group]
            for task in mine:
                score = scored.get(task.name)
                ours = [NO_VALUE, NO_VALUE] if score is None else [score.text(), number_text(score.images)]
                rows.append([task.title, *ours, *(f"{row[task.name]:.1f}" for row in published)])
            means = (statistics.fmean(row[task.name] for task in mine) for row in published)
            rows.append([f"mean of {group}", self._mean(group), "", *(f"{mean:.1f}" for mean in means)])
        whole = map(statistics.fmean, PUBLISHED.values())
        return [*rows, ["mean of all", self._mean(None), "", *(f"{mean:.1f}" for mean in whole)]]

    def _mean(self, group: str | None) -> str:
        mean = self.mean(group)
        return NO_VALUE if math.isnan(mean) else f"{100 * mean:.1f}"

    def remarks(self) -> list[str]:
        """Return what a reader must know, one line each."""
        sources: dict[str, list[str]] = {}
        for score in self.scores:
            if score.source:
                sources.setdefault(score.source, []).append(score.name)
        fewest = min((score.images for score in self.scores if score.images), default=0)
        unsure = (
            f"An accuracy of {fewest:,} images is uncertain by up to {98 / math.sqrt(max(fewest, 1)):.1f} points (95%)."
        )
        bit = ", ".join(f"{name} {mean}" for name, mean in BIT.items())
        return [
            *(f"{score.name} has no accuracy: {score.problem}" for score in self.scores if score.problem),
            *self._short_of_images(),
            *([f"{counted(self.left, 'run')} not ended yet."] if self.left else []),
            *(f"{', '.join(names)}: {source}." for source, names in sources.items()),
            *([unsure] if fewest else []),
            f"Mean of all of BiT, as published: {bit}; a later run of R152x4 by its authors: {BIT_AGAIN}. Our sources have no "
            "figures of BiT by task, and none of AugReg on VTAB.",
        ]

    def _short_of_images(self) -> list[str]:
        """Return a line for each task of which fewer images were there than VTAB has."""
        sizes = {task.name: task.scored for task in TASKS}
        wanted = {name: size if self.most is None else min(size, self.most) for name, size in sizes.items()}
        return [
            f"{score.name} was scored on {score.images:,} images, for there are no more; VTAB has {sizes[score.name]:,}."
            for score in self.scores
            if score.images is not None and score.images < wanted[score.name]
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        means = {group: self.mean(group) for group in GROUPS} | {"all": self.mean()}
        known = {name: None if math.isnan(mean) else mean for name, mean in means.items()}
        return {"kind": KIND, **super().to_json(), "means": known, "remarks": self.remarks()}

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rows = markdown_lines(COLUMNS, self.cells())
        remarks = [f"- {line}" for line in self.remarks()]
        return "\n".join([f"# {self.classifier}: {self.title()}", "", self.how(), "", *rows, "", *remarks, ""])


def unscored(names: Sequence[str]) -> list[TaskScore]:
    """Return tasks without an accuracy yet, in VTAB's order."""
    return [TaskScore(task.name, task.title, task.group) for task in TASKS if task.name in names]
