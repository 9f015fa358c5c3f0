"""A study of the paper's, as planned or as far as it has come."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.report.chart import Axis, Chart, Point, Series, plain_number
from vitral.report.study import Study
from vitral.studies.design import Cell
from vitral.studies.paper.experiment import TrialResult, by_series
from vitral.studies.paper.experiment_plan import ExperimentPlan
from vitral.studies.paper.operations import H200
from vitral.studies.paper.work import VALIDATION
from vitral.studies.run_study import StudyCost
from vitral.training.settings.durations import HOUR, rounded


@dataclass(frozen=True)
class PaperStudy:
    """A study of the paper's in the folder of its runs and pages, with the cost of what was left when it began.

    It has the figures found, unless it is only a plan.
    """

    laid_out: ExperimentPlan
    folder: Path
    cost: StudyCost
    study: Study | None = None

    @property
    def found(self) -> Study:
        """The figures found; a plan has none."""
        assert self.study is not None, "a plan has no results"
        return self.study

    def cells(self) -> list[Cell]:
        """Return the runs."""
        return self.laid_out.design().cells(self.folder)

    def head(self) -> tuple[str, ...]:
        """Return the question and the amount of work, one line each."""
        plan = self.laid_out
        steps = plan.record.steps
        flops = len(plan.seeds) * sum(plan.facts(trial).operations.total for trial in plan.trials())
        length = f"{steps:,} steps of a whole run" if steps else f"the steps of the recipe '{plan.scale.recipe}'"
        return (
            f"{plan.experiment.title}: {plan.experiment.question}",
            f"Budget {plan.scale.name}: {length}, {len(plan.seeds)} seeds, {plain_number(flops)} FLOPs in all.",
        )

    def plan(self) -> tuple[str, ...]:
        """Return what is to be done and what it costs, one line each."""
        plan = self.laid_out
        hours = len(plan.seeds) * sum(plan.facts(trial).operations.hours(H200) for trial in plan.trials())
        gpus = plan.scale.gpus
        many = f", and {gpus} of them at best {rounded(hours * HOUR / gpus)}" if gpus > 1 else ""
        by_operations = (
            f"By their operations all runs would take one {H200.name} about {rounded(hours * HOUR)}{many}, at "
            f"{H200.share:.0%} of its peak: {H200.source}."
        )
        return (*self.head(), *self.cost.lines(), by_operations)

    def results(self) -> tuple[TrialResult, ...]:
        """Return the results of the trials that are drawn and have any."""
        plan, found = self.laid_out, self.found
        name = found.headline.name
        return tuple(
            TrialResult(trial, plan.facts(trial), arm.values(name), arm.values(VALIDATION))
            for trial, arm in zip(plan.trials(), found.arms, strict=True)
            if trial.series and arm.values(name)
        )

    def chart(self) -> Chart:
        """Return our figure."""
        plan, headline, results = self.laid_out, self.found.headline, self.results()
        experiment = plan.experiment
        series = [
            Series(
                name,
                tuple(Point(experiment.place(each.trial, each.facts), each.mean, each.deviation) for each in mine),
                "joined" if experiment.joined else "dots",
            )
            for name, mine in by_series(results).items()
        ]
        values = Axis(headline.title, percent=headline.is_share)
        return Chart(f"Ours, on {plan.data.name}", experiment.x, values, (*series, *experiment.curves(results)))

    def conclusion(self) -> str:
        """Return what came out, in a paragraph."""
        experiment, results = self.laid_out.experiment, self.results()
        return experiment.conclude(results) if results else "No run has ended yet."

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        plan = self.laid_out
        values = {
            "study": plan.experiment.name,
            "question": plan.experiment.question,
            "budget": plan.scale.name,
            "data": plan.spec,
            "transfer": plan.transfer,
            "seeds": list(plan.seeds),
            "steps": plan.record.steps,
            "folder": str(self.folder),
            "seconds": self.cost.seconds,
            "trials": [
                {"name": trial.name, "label": trial.label, **plan.facts(trial).to_json()} for trial in plan.trials()
            ],
        }
        if self.study is None:
            return values
        return values | {
            "conclusion": self.conclusion(),
            "chart": self.chart().to_json(),
            "result": self.study.to_json(),
        }
