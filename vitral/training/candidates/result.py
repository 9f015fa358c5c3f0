"""What a run gave."""

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral.classifier.classifier import Classifier
from vitral.evaluation.baselines import Baselines
from vitral.notebook import curve, table
from vitral.tasks.task import Result
from vitral.training.candidates.choice import Choice
from vitral.training.candidates.description import choice_entry
from vitral.training.loop import TrainingResult
from vitral.training.plan import Plan
from vitral.training.scoring.diagnosis import Diagnosis, merged, too_late
from vitral.training.session import Run


@dataclass(frozen=True)
class RunResult:
    """What a run gave.

    Attributes:
        run: what was asked, decided and trained on.
        training: steps, history and speed.
        classifier: the finished classifier.
        classifier_folder: where it lies.
        baselines: scores of the frozen features, where they were asked for.
        evaluation: scores on the test split, or on the validation split of a source without one.
        seconds: the whole run's time.
        diagnosis: what is wrong with the result, the worst first; empty if nothing is.
        choice: what was tried and what of it the classifier is; None where only one thing was to be tried.
    """

    run: Run
    training: TrainingResult
    classifier: Classifier
    classifier_folder: Path
    baselines: Baselines | None
    evaluation: Result
    seconds: float
    diagnosis: tuple[Diagnosis, ...] = ()
    choice: Choice | None = None

    @property
    def plan(self) -> Plan:
        """What was decided before the first step."""
        return self.run.plan

    @property
    def failed(self) -> bool:
        """Whether the result is of no use."""
        return any(finding.failed for finding in self.diagnosis)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        losses = [row["loss"] for row in self.training.history if "loss" in row]
        return table(f"Run {self.run.folder}", self._facts(), below=curve(losses, "training loss by step"))

    def _facts(self) -> list[tuple[str, str]]:
        return [
            *(("Beware" if finding.failed else "Note", finding.sentence()) for finding in merged(self.diagnosis)),
            *(("Kept", line) for line in self.choice_lines()),
            ("Result", self.evaluation.sentence(self.split)),
            ("Length", f"{self.training.steps:,} steps in {self.seconds:.0f} s"),
            ("Classifier", str(self.classifier_folder)),
        ]

    def choice_lines(self) -> tuple[str, ...]:
        """Return what was tried and what of it was kept, in one sentence; nothing where there was no choice."""
        return () if self.choice is None else (self.choice.sentence(),)

    def at_its_end(self) -> "RunResult":
        """Return the result with the time that the command took by now, and with that called late if it is."""
        clock, diagnosis = self.run.clock, self.diagnosis
        if (seconds := clock.overrun()) is not None and clock.seconds is not None:
            diagnosis = (*diagnosis, too_late(seconds, clock.seconds))
        return replace(self, seconds=clock.spent(), diagnosis=diagnosis)

    def __repr__(self) -> str:
        """Return what came out in three lines; `to_json` gives the figures."""
        run, data = self.run, self.run.data
        done = f"{run.kind} on {data.name}, {self.training.steps:,} steps, {self.seconds:.0f} s"
        return f"RunResult: {done}\n{self.evaluation.sentence(self.split)}\nclassifier in {self.classifier_folder}"

    @property
    def split(self) -> str:
        """The split that `evaluation` is of."""
        data = self.run.data
        return data.scored_split()

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON values."""
        return {
            "diagnosis": [dataclasses.asdict(finding) for finding in self.diagnosis],
            "folder": str(self.run.folder),
            "classifier": str(self.classifier_folder),
            "steps": self.training.steps,
            "seconds": self.seconds,
            "baselines": None if self.baselines is None else dataclasses.asdict(self.baselines),
            **choice_entry(self.choice),
            "split": self.split,
            "evaluation": self.evaluation.to_json(),
        }
