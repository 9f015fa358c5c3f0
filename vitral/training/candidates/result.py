"""What a run tried, which of it is delivered, and what its folder and its classifier tell of the run.

Of several classifiers the best on the validation split is kept, among equals the one whose start was trained furthest.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vitral.advice import counted
from vitral.classifier.classifier import Classifier
from vitral.classifier.metadata import BASELINE, BASELINE_IMAGES, CLASS_IMAGES, SCORED_IMAGES, Provenance
from vitral.data.loader import TrainingBatches
from vitral.data.source import DataSet
from vitral.evaluation.baselines import Baselines
from vitral.files import write_file
from vitral.images.drawing import contact_sheet
from vitral.notebook import curve, table
from vitral.tasks.dense import DenseTask
from vitral.tasks.drawn_regions import drawn_regions
from vitral.tasks.shown import COUNTED
from vitral.tasks.task import Figure, Result, classes_of
from vitral.training.loop import TrainingResult
from vitral.training.plan import ALL, ANEW, FINER, FRESH, LAST, Plan
from vitral.training.records.data_record import Further, data_changes, keep_data
from vitral.training.records.run_folder import environment, git_state, read_run, update_run
from vitral.training.resume import RESUMED
from vitral.training.scoring.diagnosis import Diagnosis, merged, too_late
from vitral.training.session import Run

# The candidates in closed form:
PROBE = "linear probe"
PIXELS = "linear model on pixels"
# How a sentence names them, where their names would not do:
TITLES = {
    PROBE: "last layer alone",
    PIXELS: "linear model on pixels",
    LAST: "last blocks trained",
    ALL: "all weights trained",
    ANEW: "trained as from scratch",
    FRESH: "network from scratch",
    FINER: "network of larger images",
}
DRAWN = 32  # images on the contact sheet


@dataclass(frozen=True)
class Candidate:
    """A classifier that a run could deliver, and how good it is.

    Attributes:
        name: what it is called: "linear probe", "trained network".
        figure: the task's headline figure.
        images: that the figure is of.
        split: which images those are: "validation", or "training" where each was left out of the fit that judged it.
        safe_figure: The figure of these and of the training images, each left out of the fit that judges it, where that is
            lower: of few images a figure is chance. None where there is no such figure.
    """

    name: str
    figure: float
    images: int
    split: str = "validation"
    safe_figure: float | None = None

    @property
    def expected(self) -> float:
        """The lower of its figures, which is the surer one."""
        return self.figure if self.safe_figure is None else self.safe_figure

    @property
    def title(self) -> str:
        """What it is, for people."""
        return TITLES.get(self.name, self.name)

    def is_perfect(self, headline: Figure) -> bool:
        """Tell whether it is right about every photo, by a figure that counts those."""
        return headline.counts and self.figure == 1

    def text(self, headline: Figure) -> str:
        """Return the figure for people, where it is known of how many photos it is: their number, or the figure itself."""
        counts = headline.counts and self.images < COUNTED
        return f"{round(self.figure * self.images):,}" if counts else headline.text(self.figure)

    def reached(self, headline: Figure) -> str:
        """Return the figure and what it is of: "24 of 27 validation photos right"."""
        fair = ", each left out of the fit that judges it" if self.split == "training" else ""
        return headline.reached(self.figure, self.images, self.split) + fair


@dataclass(frozen=True)
class Choice:
    """What was tried and what of it is kept.

    Attributes:
        candidates: what was tried, the cheapest first.
        best: The name of the one that is delivered.
        headline: What their figures are.
    """

    candidates: tuple[Candidate, ...]
    best: str
    headline: Figure

    @property
    def trained(self) -> bool:
        """Whether the one that is delivered was trained, and is not in closed form."""
        return self.best not in (PROBE, PIXELS)

    @property
    def kept(self) -> Candidate:
        """The one that is delivered."""
        return next(candidate for candidate in self.candidates if candidate.name == self.best)

    def sentence(self) -> str:
        """Return what is selected, its figure, and what the others reached, in one sentence."""
        others = [candidate for candidate in self.candidates if candidate.name != self.best]
        beside = ", ".join(f"{candidate.title} {candidate.text(self.headline)}" for candidate in others)
        selected = f"Selected: {self.kept.title}, {self.kept.reached(self.headline)}"
        better = any(self.headline.improves(candidate.figure, self.kept.figure) for candidate in others)
        chance = "; a single photo more may be chance" if better else ""
        return f"{selected} ({beside}){chance}." if beside else f"{selected}."

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        candidates = [asdict(candidate) for candidate in self.candidates]
        return {"kept": self.best, "candidates": candidates, "sentence": self.sentence()}


def choose(candidates: Sequence[Candidate], headline: Figure) -> Choice:
    """Return the choice among candidates, the cheapest first: what was trained further is kept where it is no worse.

    Where as many photos are right, those of validation may be like those of training, and cannot tell; others can. What learned
    from scratch must have two photos more: of two dozen, a single photo is chance. One is enough where the layer in closed form
    is as far behind by what it makes of the training photos, too. Once it is ahead it stays where others are only as good.
    Likewise a start that was trained may have one photo fewer than that layer, where it has more than those photos promise.
    """
    best = candidates[0]
    for candidate in candidates[1:]:
        if _replaces(candidate, best, headline):
            best = candidate
    return Choice(tuple(candidates), best.name, headline)


def _replaces(candidate: Candidate, best: Candidate, headline: Figure) -> bool:
    """Tell whether a candidate is selected, and not the best of those before it."""
    if not headline.counts:
        return headline.improves(candidate.figure, best.figure)
    images = min(candidate.images, best.images)
    ahead, safely = ((candidate.figure - figure) * images for figure in (best.figure, best.expected))
    if candidate.name in (ANEW, FRESH) or best.name == PIXELS:
        return ahead > 0.5 and safely > 1.5
    if best.name == FRESH:
        return ahead > 0.5
    return ahead > -0.5 or (ahead > -1.5 and safely > 0.5)


def write_description(run: Run, further: Further) -> None:
    """Write into the run folder how the run began, and with which further data; how it began is written once."""
    began = run.classifier.provenance
    start = {"from": None if run.kind == "pre-train" else run.plan.start, "source": began.source}
    if "environment" in read_run(run.folder):
        update_run(run.folder, start)  # which may have been chosen anew, where nothing was trained before
        return
    update_run(
        run.folder,
        {
            **asked(run),
            "further_data": {
                name: {"data": data.name, "fingerprint": data.fingerprint} for name, data in further.items()
            },
            **start,
            "class_names": list(run.data.class_names),
            "images": run.data.counts(),
            "notes": list(run.data.notes),
            "bad_images": [dataclasses.asdict(bad) for bad in run.data.bad_images],
            "environment": environment(),
            "git": git_state(),
        },
    )
    keep_data(run.folder, run.data, further)


def asked(run: Run) -> dict[str, Any]:
    """Return the kind of a run and its data, as its folder and its classifiers tell them."""
    counts = {CLASS_IMAGES: list(images)} if (images := run.data.class_images()) else {}
    return {"kind": run.kind, "data": run.request.required_data(), "data_fingerprint": run.data.fingerprint, **counts}


def remarks_on(run: Run) -> tuple[str, ...]:
    """Return why running the recipe again would not give the same weights, one line each."""
    remarks = [f"the data changed after step {change.get('after_step')}" for change in data_changes(run.folder)]
    if read_run(run.folder).get(RESUMED):
        remarks.append("it was gone on with by other means (threads, versions or processor; see run.json)")
    return tuple(remarks)


def write_training_images(folder: Path, data: DataSet, batches: TrainingBatches, *, keep: bool) -> None:
    """Draw images of the first batch, as augmented, with their class names.

    Args:
        folder: The run folder.
        data: Where they are from.
        batches: What the network learns from.
        keep: Whether a sheet that is there stays.
    """
    path = folder / "images" / "training.png"
    if keep and path.is_file():
        return
    batch = batches.batch(0)
    images = list(batch.images[:DRAWN].permute(0, 2, 3, 1).numpy())
    labels = [data.splits["train"].label(index) for index in batch.indices[:DRAWN].tolist()]
    names = [", ".join(data.class_names[number] for number in classes_of(label)) for label in labels]
    if isinstance(data.task, DenseTask):
        how: Any = {"counted": data.task.counted, "legend": False}
        seen = zip(images, batch.labels, strict=False)
        images = [drawn_regions(image, regions, data.class_names, **how) for image, regions in seen]
    write_file(path, contact_sheet(images, names))


def provenance(run: Run, training: TrainingResult, scores: Mapping[str, float], choice: Choice | None) -> Provenance:
    """Return where a run's trained classifier comes from: start, data, recipe, length and machine, and what else was tried."""
    began = run.classifier.provenance
    return Provenance(
        source=began.source,
        training={
            **asked(run),
            "data_changes": data_changes(run.folder),
            "steps": training.steps,
            "skipped_batches": list(training.skipped),
            "recipe": run.recipe.model_dump(mode="json"),
            "environment": environment(),
            **choice_entry(choice),
        },
        scores=scores,
    )


def choice_entry(choice: Choice | None) -> dict[str, Any]:
    """Return the entry of a classifier's description for what was tried and what of it is delivered; empty without a choice."""
    return {} if choice is None else {"choice": choice.to_json()}


def named_scores(evaluation: Result, baselines: Baselines | None, split: str) -> dict[str, float]:
    """Return a run's scores and those of its baselines, named by the split, with how many images each are of."""
    scores = {f"{split}/{name}": value for name, value in evaluation.scores().items()}
    if baselines is None or baselines.split != split:
        return scores
    beside = dataclasses.asdict(baselines).items()
    figures = {f"{split}{BASELINE}{name}": value for name, value in beside if isinstance(value, float)}
    counts = {f"{split}{SCORED_IMAGES}": evaluation.num_examples, f"{split}{BASELINE_IMAGES}": baselines.num_test}
    return {**scores, **figures, **counts}


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
        late: that the command took longer than its time budget, in one sentence; empty where it did not.
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
    late: str = ""

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
            *(("Choice", line) for line in self.choice_lines()),
            *([("Note", self.late)] if self.late else []),
            ("Result", self.evaluation.sentence(self.split)),
            ("Length", f"{counted(self.training.steps, 'step')} in {self.seconds:.0f} s"),
            ("Classifier", str(self.classifier_folder)),
        ]

    @property
    def trained(self) -> bool:
        """Whether the classifier was trained, and is not a linear layer in closed form."""
        return self.choice is None or self.choice.trained

    def choice_lines(self) -> tuple[str, ...]:
        """Return what was tried and what of it was kept, in one sentence; nothing where there was no choice."""
        return () if self.choice is None else (self.choice.sentence(),)

    def at_its_end(self) -> "RunResult":
        """Return the result with the time that the command took by now, and with that called late if it is."""
        clock, late = self.run.clock, ""
        if (seconds := clock.overrun()) is not None and clock.seconds is not None:
            late = too_late(seconds, clock.seconds)
        return replace(self, seconds=clock.spent(), late=late)

    def __repr__(self) -> str:
        """Return what came out in three lines; `to_json` gives the figures."""
        run, data = self.run, self.run.data
        done = f"{run.kind} on {data.name}, {counted(self.training.steps, 'step')}, {self.seconds:.0f} s"
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
            "late": self.late,
            "folder": str(self.run.folder),
            "classifier": str(self.classifier_folder),
            "steps": self.training.steps,
            "seconds": self.seconds,
            "baselines": None if self.baselines is None else dataclasses.asdict(self.baselines),
            **choice_entry(self.choice),
            "split": self.split,
            "evaluation": self.evaluation.to_json(),
        }
