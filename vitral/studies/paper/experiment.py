"""An experiment of the paper: a question, the arms that answer it at a given scale, and how their results are read."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from vitral.report.chart import Axis, Series
from vitral.studies.paper.scale import Scale
from vitral.training.planning.operations import Operations

CHANCE = 0.05  # that equal arms are called different, over all comparisons of one statement


@dataclass(frozen=True)
class Trial:
    """One arm as the experiment states it.

    Attributes:
        name: letters, digits and a few signs: folders are named after it.
        series: to which it belongs in the figure; empty for one that is not drawn, which others start from.
        label: how the table calls it.
        at: where it stands in the figure; None where its facts say.
        changes: to the recipe, such as "position=none".
        kind: whether its weights are scored ("fine-tune") or are only to start from ("pre-train").
        tuned: whether it follows the recipe of fine-tuning.
        share: of the training images; "1" for all.
        length: of the study's steps.
        after: the trial that it starts from.
        data: that it learns from, in place of the study's; empty for those.
        timed: whether it takes as long as the first trial that is, however many steps that is.
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
class Facts:
    """What is known of a trial before it runs.

    Attributes:
        parameters: of the network.
        tokens: that the encoder has, the class token among them; 0 of a network without an encoder.
        train_images: different images it learns from.
        operations: of its training.
        before: operations of the training that it starts from.
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


@dataclass(frozen=True)
class Result:
    """What came of a trial.

    Attributes:
        trial: what was done.
        facts: of it.
        values: the deciding figure, higher is better, a run each; empty of a trial without a finished run.
        judged: the same on validation images; empty where there are no others than those that decide.
    """

    trial: Trial
    facts: Facts
    values: tuple[float, ...]
    judged: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """The mean over the seeds; NaN without a run."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation over the seeds (n - 1); NaN of fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan

    def text(self) -> str:
        """Return mean and deviation in percent."""
        spread = "" if math.isnan(self.deviation) else f" ± {self.deviation * 100:.1f}"
        return f"{self.mean * 100:.1f}{spread} %"


Results = Sequence[Result]


@dataclass(frozen=True)
class Experiment:
    """A study of the paper's.

    Attributes:
        name: of the command.
        title: of the page.
        question: in a sentence.
        x: of the figure.
        trials: the arms at a scale, in the order in which they are begun.
        conclude: a plain paragraph on what came out, of the trials that are drawn and have a result.
        at: where a trial stands in the figure that does not say it itself.
        joined: whether a line joins the points of a series.
        curves: what is fitted to the results and drawn with them.
        draws_positions: whether the page shows how alike the position embeddings of each network are (paper Figure 10).
    """

    name: str
    title: str
    question: str
    x: Axis
    trials: Callable[[Scale], Sequence[Trial]]
    conclude: Callable[[Results], str]
    at: Callable[[Facts], float] = lambda facts: facts.flops
    joined: bool = True
    curves: Callable[[Results], tuple[Series, ...]] = lambda results: ()
    draws_positions: bool = False

    def place(self, trial: Trial, facts: Facts) -> float | str:
        """Return where a trial stands in the figure."""
        return self.at(facts) if trial.at is None else trial.at


def chance(first: Result, second: Result) -> float:
    """Return how likely a difference as large is of equal arms: Welch's t-test, two-sided; 1 where the seeds cannot tell."""
    if min(len(first.values), len(second.values)) < 2 or not first.deviation + second.deviation:
        return 1.0
    from scipy.stats import ttest_ind_from_stats  # half a second of start-up for all who ask no such question

    # By means and deviations, since of an arm whose seeds agree it warns where it is given the values.
    stated = [(result.mean, result.deviation, len(result.values)) for result in (first, second)]
    return float(ttest_ind_from_stats(*stated[0], *stated[1], equal_var=False).pvalue)


def differs(first: Result, second: Result) -> bool:
    """Tell whether two means differ by more than chance."""
    return chance(first, second) < CHANCE


def against(first: Result, second: Result) -> str:
    """Say how two results compare: a difference, and whether the seeds decide it."""
    points = (first.mean - second.mean) * 100
    what = f"{first.trial.label} {first.text()} against {second.trial.label} {second.text()}"
    if differs(first, second):
        return f"{what}: {abs(points):.1f} points {'more' if points > 0 else 'fewer'}"
    return f"{what}: a difference that the seeds do not decide"


def best(results: Results) -> Result:
    """Return the result with the highest mean."""
    return max(results, key=lambda result: result.mean)


def selected(results: Results) -> Result:
    """Return the result that validation images choose, so that those that decide have no part in the choice.

    Where there are no other images, the figure that decides is the figure that chooses; `how_selected` says so.
    """
    return max(results, key=lambda result: statistics.fmean(result.judged or result.values))


def how_selected(results: Results) -> str:
    """Say by which images a choice was made."""
    if all(result.judged for result in results):
        return "chosen by validation images"
    return "chosen by the same images that score, which flatters them"


def by_series(results: Results) -> dict[str, list[Result]]:
    """Return the results by the series that they belong to, in order."""
    series: dict[str, list[Result]] = {}
    for result in results:
        series.setdefault(result.trial.series, []).append(result)
    return series


def ranked(results: Results) -> str:
    """Say which result is best, and from which others the seeds tell it.

    All comparisons together call equal arms different at most once in twenty times (Holm's procedure).
    """
    top = best(results)
    others = sorted((result for result in results if result is not top), key=lambda result: chance(top, result))
    beaten = 0
    while beaten < len(others) and chance(top, others[beaten]) < CHANCE / (len(others) - beaten):
        beaten += 1
    said = f"Best is {top.trial.label} with {top.text()}."
    if not others:
        return said
    if beaten == len(others):
        return f"{said} It beats {'the other' if beaten == 1 else f'all {beaten} others'} by more than chance."
    equal = ", ".join(result.trial.label for result in results if result in others[beaten:])
    beats = f"; it beats the other{f' {beaten}' if beaten > 1 else ''}" if beaten else ""
    return f"{said} The seeds do not tell it from {equal}{beats}."


def capital(sentence: str) -> str:
    """Return a sentence that begins with a capital letter: names of arms do not."""
    return sentence[:1].upper() + sentence[1:]


def at_edge(result: Result, results: Results) -> str:
    """Say that the best of several rates is the smallest or largest of them; empty if it is not."""
    rates = [each.trial.at for each in results if isinstance(each.trial.at, float)]
    return ", at the edge of those tried" if rates and result.trial.at in (min(rates), max(rates)) else ""
