"""A study of the paper's, as planned or as far as it has come."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vitral.report.chart import Axis, Chart, Point, Published, Series, plain_number
from vitral.report.study import Study
from vitral.studies.cost import StudyCost
from vitral.studies.paper.experiment import Facts, Result
from vitral.studies.paper.layout import Setting
from vitral.studies.paper.published import published
from vitral.studies.paper.work import VALIDATION
from vitral.training.planning.durations import HOUR, rounded
from vitral.training.planning.operations import H200


@dataclass(frozen=True)
class Begun:
    """What a study's folder keeps of how it began.

    Attributes:
        asked: the study, budget and data.
        steps: of a whole trial; None where the recipes say.
        seconds: that a run of each trial was expected to take.
        time: seconds that were asked for all; None where nothing was said.
        lengths: factors of some trials' lengths.
    """

    asked: dict[str, Any]
    steps: int | None
    seconds: dict[str, float]
    time: float | None = None
    lengths: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperStudy:
    """A study of the paper's, as planned or as far as it has come.

    Attributes:
        setting: what was asked.
        folder: of its runs and pages.
        begun: how it began.
        cost: of what was left.
        study: what was found; None of a plan.
    """

    setting: Setting
    folder: Path
    begun: Begun
    cost: StudyCost
    study: Study | None = None

    def head(self) -> tuple[str, ...]:
        """Return the question, and how much is to be done, a line each."""
        setting, steps = self.setting, self.begun.steps
        facts = [setting.facts(trial, steps) for trial in setting.trials()]
        flops = len(setting.seeds) * sum(each.operations.total for each in facts)
        length = f"{steps:,} steps of a whole run" if steps else f"the steps of the recipe '{setting.scale.recipe}'"
        return (
            f"{setting.experiment.title}: {setting.experiment.question}",
            f"Budget {setting.scale.name}: {length}, {len(setting.seeds)} seeds, {plain_number(flops)} FLOPs in all.",
        )

    def plan(self) -> tuple[str, ...]:
        """Return what is to be done and what it costs, a line each."""
        return (*self.head(), *self.cost.lines(), self.on_gpu())

    def on_gpu(self) -> str:
        """Return what all runs would take a GPU, by their operations."""
        facts = [self.setting.facts(trial, self.begun.steps) for trial in self.setting.trials()]
        hours = len(self.setting.seeds) * sum(each.operations.hours(H200) for each in facts)
        gpus = self.setting.scale.gpus
        many = f", and {gpus} of them at best {rounded(hours * HOUR / gpus)}" if gpus > 1 else ""
        return (
            f"By their operations all runs would take one {H200.name} about {rounded(hours * HOUR)}{many}, at "
            f"{H200.share:.0%} of its peak: {H200.source}."
        )

    def results(self) -> tuple[Result, ...]:
        """Return what came of the trials that are drawn and have a result."""
        assert self.study is not None, "a plan has no results"
        name = self.study.headline.name
        return tuple(
            Result(trial, self.setting.facts(trial, self.begun.steps), arm.values(name), arm.values(VALIDATION))
            for trial, arm in zip(self.setting.trials(), self.study.arms, strict=True)
            if trial.series and arm.values(name)
        )

    def chart(self) -> Chart:
        """Return our figure."""
        assert self.study is not None, "a plan has no figure"
        experiment, headline = self.setting.experiment, self.study.headline
        series: dict[str, list[Point]] = {}
        results = self.results()
        for result in results:
            place = experiment.place(result.trial, result.facts)
            series.setdefault(result.trial.series, []).append(Point(place, result.mean, result.deviation))
        drawn: Literal["joined", "dots"] = "joined" if experiment.joined else "dots"
        return Chart(
            f"Ours, on {self.setting.data.name}",
            experiment.x,
            Axis(headline.title, percent=headline.is_share),
            (*(Series(name, tuple(points), drawn) for name, points in series.items()), *experiment.curves(results)),
        )

    def conclusion(self) -> str:
        """Return in a paragraph what came out."""
        results = self.results()
        return self.setting.experiment.conclude(results) if results else "No run has ended yet."

    def published(self) -> Published:
        """Return what the paper says."""
        return published(self.setting.experiment.name)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        setting = self.setting
        plan = {
            "study": setting.experiment.name,
            "question": setting.experiment.question,
            "budget": setting.scale.name,
            "data": setting.spec,
            "transfer": setting.transfer,
            "seeds": list(setting.seeds),
            "steps": self.begun.steps,
            "folder": str(self.folder),
            "seconds": self.cost.seconds,
            "trials": [
                {"name": trial.name, "label": trial.label, **known(setting.facts(trial, self.begun.steps))}
                for trial in setting.trials()
            ],
        }
        if self.study is None:
            return plan
        return plan | {"conclusion": self.conclusion(), "chart": self.chart().to_json(), "result": self.study.to_json()}


def known(facts: Facts) -> dict[str, int | float]:
    """Return what is known of a trial before it runs, by name."""
    return {
        "parameters": facts.parameters,
        "tokens": facts.tokens,
        "train_images": facts.train_images,
        "macs": facts.operations.macs,
        "images": facts.operations.images,
        "flops": facts.flops,
    }
