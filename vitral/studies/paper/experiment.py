"""An experiment of the paper: a question, the arms that answer it at a given scale, and how their results are read.

What the paper reports of it, with where it stands, is read from published.toml.
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from vitral.report.chart import Axis, Chart, Point, Published, Series
from vitral.report.study import deviation, mean
from vitral.studies.paper.operations import Operations
from vitral.studies.paper.scale import Scale

CHANCE = 0.05  # probability that equal arms are called different, over all comparisons of one statement
FILE = "published.toml"


@dataclass(frozen=True)
class Trial:
    """One arm as the experiment states it.

    Attributes:
        name: The name of its folders: letters, digits and a few signs.
        series: The series of the figure that it belongs to; empty if it is not drawn, and others only start from it.
        at: The place in the figure; None if its facts give it.
        changes: The changes to the recipe, such as "position=none".
        kind: "fine-tune" if its weights are scored, "pre-train" if others only start from them.
        tuned: Whether it follows the recipe of fine-tuning.
        share: The share of the training images; "1" for all.
        length: The number of steps, as a factor of the study's.
        data: The data that it learns from; empty for the study's own.
        timed: Whether it takes as long as the first trial with this flag, in however many steps.
    """

    name: str
    series: str
    label: str
    at: float | str | None = None
    changes: tuple[str, ...] = ()
    kind: Literal["fine-tune", "pre-train"] = "fine-tune"
    tuned: bool = False
    share: str = "1"
    length: float = 1.0
    after: str = ""
    data: str = ""
    timed: bool = False


@dataclass(frozen=True)
class TrialFacts:
    """What is known of a trial before it runs.

    Attributes:
        tokens: The number of tokens of the encoder, the class token among them; 0 for a network without an encoder.
        train_images: The number of different images to learn from.
        before: The number of operations of the training that it starts from.
    """

    parameters: int
    tokens: int
    train_images: int
    operations: Operations
    before: float = 0.0

    @property
    def flops(self) -> float:
        """Operations of all training that led to its weights."""
        return self.before + self.operations.total

    def to_json(self) -> dict[str, int | float]:
        """Return the facts as JSON values."""
        return {
            "parameters": self.parameters,
            "tokens": self.tokens,
            "train_images": self.train_images,
            "macs": self.operations.macs,
            "images": self.operations.images,
            "flops": self.flops,
        }


@dataclass(frozen=True)
class TrialResult:
    """What a trial has found: the deciding figure of each finished run, higher is better.

    `judged` is the same on validation images; empty if there are no images besides those that decide.
    """

    trial: Trial
    facts: TrialFacts
    values: tuple[float, ...]
    judged: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """The mean over the seeds; NaN without a run."""
        return mean(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation over the seeds (n - 1); NaN for fewer than two."""
        return deviation(self.values)

    def text(self) -> str:
        """Return mean and deviation in percent."""
        spread = "" if math.isnan(self.deviation) else f" ± {self.deviation * 100:.1f}"
        return f"{self.mean * 100:.1f}{spread}%"


Results = Sequence[TrialResult]


@dataclass(frozen=True)
class Experiment:
    """A question of the paper, the arms that answer it, and how their results are read.

    Attributes:
        name: The name on the command line.
        question: The question, one sentence.
        trials: Returns the arms at a scale, in the order in which they begin.
        conclude: Returns a paragraph on the results of the trials that are drawn and have any.
        at: Returns the place in the figure of a trial that does not state its own.
        joined: Whether a line joins the points of a series.
        curves: Returns the curves that are fitted to the results and drawn with them.
        draws_positions: Whether the page shows how similar the position embeddings of each network are (paper Figure 10).
    """

    name: str
    title: str
    question: str
    x: Axis
    trials: Callable[[Scale], Sequence[Trial]]
    conclude: Callable[[Results], str]
    at: Callable[[TrialFacts], float] = lambda facts: facts.flops
    joined: bool = True
    curves: Callable[[Results], tuple[Series, ...]] = lambda results: ()
    draws_positions: bool = False

    def place(self, trial: Trial, facts: TrialFacts) -> float | str:
        """Return where a trial stands in the figure."""
        return self.at(facts) if trial.at is None else trial.at


def chance(first: TrialResult, second: TrialResult) -> float:
    """Return the probability of so large a difference between equal arms: Welch's t-test, two-sided; 1 if seeds cannot tell."""
    if min(len(first.values), len(second.values)) < 2 or not first.deviation + second.deviation:
        return 1.0
    from scipy.stats import ttest_ind_from_stats  # half a second of start-up for all other commands

    # By means and deviations: given the values, it warns if the seeds of an arm agree.
    stated = [(result.mean, result.deviation, len(result.values)) for result in (first, second)]
    return float(ttest_ind_from_stats(*stated[0], *stated[1], equal_var=False).pvalue)


def differs(first: TrialResult, second: TrialResult) -> bool:
    """Tell whether two means differ by more than chance."""
    return chance(first, second) < CHANCE


def against(first: TrialResult, second: TrialResult) -> str:
    """Return in words how two results differ, and whether the seeds decide it."""
    points = (first.mean - second.mean) * 100
    what = f"{first.trial.label} {first.text()} against {second.trial.label} {second.text()}"
    if differs(first, second):
        return f"{what}: {abs(points):.1f} points {'more' if points > 0 else 'fewer'}"
    return f"{what}: a difference that the seeds do not decide"


def best(results: Results) -> TrialResult:
    """Return the result with the highest mean."""
    return max(results, key=lambda result: result.mean)


def selected(results: Results) -> TrialResult:
    """Return the best result on validation images, so that the images that decide have no part in the choice.

    Without validation images the deciding figure chooses too, and `how_selected` says so.
    """
    return max(results, key=lambda result: mean(result.judged or result.values))


def how_selected(results: Results) -> str:
    """Return in words which images made a choice."""
    if all(result.judged for result in results):
        return "chosen by validation images"
    return "chosen by the same images that score, which flatters them"


def by_series(results: Results) -> dict[str, list[TrialResult]]:
    """Return the results by the series that they belong to, in order."""
    names = dict.fromkeys(result.trial.series for result in results)
    return {name: [result for result in results if result.trial.series == name] for name in names}


def ranked(results: Results) -> str:
    """Return in words which result is best, and which others it beats by more than chance.

    All comparisons together call equal arms different at most once in twenty times (Holm's procedure).
    """
    top = best(results)
    others = sorted((result for result in results if result is not top), key=lambda result: chance(top, result))
    beaten = 0
    while beaten < len(others) and chance(top, others[beaten]) < CHANCE / (len(others) - beaten):
        beaten += 1
    sentence = f"Best is {top.trial.label} with {top.text()}."
    if not others:
        return sentence
    if beaten == len(others):
        return f"{sentence} It beats {'the other' if beaten == 1 else f'all {beaten} others'} by more than chance."
    equal = ", ".join(result.trial.label for result in results if result in others[beaten:])
    beats = f"; it beats the other{f' {beaten}' if beaten > 1 else ''}" if beaten else ""
    return f"{sentence} The seeds do not tell it from {equal}{beats}."


def at_edge(result: TrialResult, results: Results) -> str:
    """Return in words that the best of several rates is the smallest or largest of them; empty if it is not."""
    rates = [each.trial.at for each in results if isinstance(each.trial.at, float)]
    return ", at the edge of those tried" if rates and result.trial.at in (min(rates), max(rates)) else ""


def published(name: str) -> Published:
    """Return what the paper reports on a study's question.

    Raises:
        KeyError: The paper's experiments have no such name.
    """
    report = _content()[name]
    return Published(report["source"], report["note"], _chart(report["chart"]) if "chart" in report else None)


def _chart(chart: Mapping[str, Any]) -> Chart:
    y = Axis(**chart["y"])
    return Chart(chart["title"], Axis(**chart["x"]), y, tuple(_series(series, y) for series in chart["series"]))


def _series(series: Mapping[str, Any], y: Axis) -> Series:
    scale = 100 if y.percent else 1
    points = tuple(_point(*point, scale=scale) for point in series["points"])
    return Series(series["name"], points, series.get("drawn", "joined"))


def _point(x: float | str, y: float, deviation: float | str = "", label: str = "", *, scale: int) -> Point:
    return Point(x, y / scale, None if isinstance(deviation, str) else deviation / scale, label)


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / FILE).read_text(encoding="utf-8"))
