"""Training runs as the work of a study's arms, and one fine-tuning with several seeds: a score with its standard deviation.

OUT/
  runs.toml        the recipe of all of them, as resolved for the first
  runs.json        the request, and the weights that they start from
  run-0/, run-1/   the runs, each a run folder by its seed
  study.json, cells/, rows.jsonl, study.md, study.html   as in any study
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vitral import distributed
from vitral.described import read_object
from vitral.errors import StudyError, UsageError
from vitral.events import Event, Listener, Message, Progress, ignore, show
from vitral.files import write_file
from vitral.outputs import check_folder
from vitral.paths import CLASSIFIER
from vitral.report.study import Study
from vitral.studies.design import Arm, Cell, Design
from vitral.studies.run_study import run_study
from vitral.tasks.shown import Presentable
from vitral.training.candidates.result import RunResult
from vitral.training.records.run_folder import STUDY_CELLS, STUDY_FILES, holds_run, make_free_folder
from vitral.training.request import Request
from vitral.training.run import run_request
from vitral.training.session import Run, Session
from vitral.training.starting.opening import looked_at
from vitral.training.starting.prepare import prepare
from vitral.weights.named.table import without_network

NOWHERE = Path("estimate")  # a run folder that is named and never made
RECIPE = "runs.toml"
REQUEST = "runs.json"
ARM = "run"


@dataclass(frozen=True)
class Training:
    """A pre-training or a fine-tuning, without its seed and its folder.

    If its arm follows another, the source of the request is the name of the network that the other trains, so that the time of
    the run can be estimated before they exist.
    """

    request: Request

    def question(self) -> Mapping[str, Any]:
        """Return the request, without the folder in which it was made."""
        return {name: value for name, value in self.request.stored().items() if name != "where"}

    def seconds(self) -> float:
        """Return the expected seconds of the training steps, measured on one of them."""
        return prepare(looked(self.request)).cost.seconds

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        """Train and return the scores; the frozen features, which no seed changes, are scored by the arm's first run."""
        return carry_out(self.request_of(cell), cell.folder, named(listener, cell.name)).evaluation.scores()

    def request_of(self, cell: Cell) -> Request:
        """Return the request of one run."""
        return replace(
            self.request,
            seed=self.request.seed if cell.seed is None else cell.seed,
            source=self.request.source if cell.source is None else str(cell.source / CLASSIFIER),
            baselines=self.request.baselines and cell.first,
            where=str(Path.cwd()),
        )


def looked(request: Request, *, verify: bool = True, listener: Listener = ignore) -> Session:
    """Return a request with its data, for a plan: nothing is written; `verify` decodes all images beforehand.

    Raises:
        VitralError: The request is wrong.
    """
    return looked_at(replace(request, exact=True, out=NOWHERE, resume=False), verify=verify, listener=listener)


def carry_out(request: Request, folder: Path, listener: Listener, *, verify: bool = True) -> RunResult:
    """Carry out a run in a folder, or continue it there; return the result of a finished one.

    `verify` decodes all images beforehand; several runs on the same data need that once.

    Raises:
        VitralError: The run failed.
    """
    request = replace(request, exact=True, out=folder, resume=holds_run(folder))
    return run_request(request, verify=verify, listener=listener)


def named(listener: Listener, task: str) -> Listener:
    """Return a listener that renames a run's progress and drops its messages, which would be the same for many runs."""

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train":
            listener(replace(event, task=task))
        elif isinstance(event, Message) and event.warning:
            listener(replace(event, verdict=False))  # no summary at the end repeats it

    return listen


@dataclass(frozen=True)
class Repeated(Presentable):
    """What several runs of one recipe gave, in the folder of their folders."""

    folder: Path
    seeds: tuple[int, ...]
    study: Study

    def lines(self) -> tuple[str, ...]:
        """Return the score as mean ± standard deviation, the single scores, and what failed, one line each."""
        figure, arm = self.study.headline, self.study.arms[0]
        values = [figure.text(value) for value in arm.values(figure.name)]
        title = figure.title.capitalize()
        if len(values) == 1:
            result = f"{title} {values[0]}, of one run: one run has no standard deviation, two or more give one."
        else:
            mean, deviation = (figure.text(value) for value in (arm.mean(figure.name), arm.deviation(figure.name)))
            result = f"{title} {mean} ± {deviation} over {len(values)} runs of one recipe: {', '.join(values)}"
        return (result, *self.study.remarks())

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; the deviation of a single run is null."""
        figure, arm = self.study.headline, self.study.arms[0]
        name, deviation = figure.name, arm.deviation(figure.name)
        return {
            "folder": str(self.folder),
            "seeds": list(self.seeds),
            "figure": name,
            "mean": arm.mean(name),
            "deviation": None if math.isnan(deviation) else deviation,
            "runs": [dict(run) for run in arm.runs],
            "failures": [asdict(failure) for failure in self.study.failures],
        }


def repeat(request: Request, runs: int, *, listener: Listener = show) -> Repeated:
    """Carry out one fine-tuning with several seeds, or continue that in the request's folder, runs/NAME if it names none.

    Recipe and starting weights are decided once, so that the runs differ in the seed alone.

    Args:
        request: The fine-tuning; its seed, or the recipe's, is the first.
        runs: The number of runs, at least one.
        listener: Receives messages and progress.

    Raises:
        StudyError: The request does not have a single recipe, the folder began with another, or every run failed.
        StorageError: The folder holds something else.
        VitralError: The input is wrong; one line that names the thing.
    """
    if request.budget_seconds is not None or request.sweep or request.quick:
        raise UsageError(
            "Several runs repeat one recipe; a time budget, a sweep or a quick classifier would give each another. Name the "
            "length instead, such as steps=1000 among the overrides."
        )
    with without_network(request.offline):
        run = prepare(looked(request, listener=listener))
        data = run.data
        seeds = tuple(range(run.recipe.seed, run.recipe.seed + runs))
        folder = distributed.by_main(lambda: make_free_folder(data.name)) if request.out is None else Path(request.out)
        pinned = distributed.by_main(lambda: _pinned(folder, request, run, seeds))
        for line in run.lines():
            listener(Message(line))
        arms = (Arm(ARM, Training(pinned), seeds, label=run.plan.start),)
        design = Design(f"{runs} runs of one recipe on {data.name}", data.task.headline, arms)
        return Repeated(folder, seeds, run_study(design, folder, listener=listener))


def _pinned(folder: Path, request: Request, run: Run, seeds: tuple[int, ...]) -> Request:
    """Return the request of each run: the recipe and the start of the first, which the folder keeps."""
    if holds_run(folder):
        raise StudyError(f"'{folder}' holds a single run; name another folder for several.")
    runs = [f"{ARM}-{seed}" for seed in seeds]
    before = read_object(folder / REQUEST)
    others = [entry.name for entry in folder.glob(f"{ARM}-*")] if before else []
    check_folder(folder, own=(RECIPE, REQUEST, STUDY_CELLS, *STUDY_FILES, *runs, *others), replace=bool(before))
    asked = json.loads(json.dumps(replace(request, where="").stored()))
    if before and before.get("asked") != asked:
        raise StudyError(f"The runs in '{folder}' began with something else; name another folder for these.")
    if not before:
        write_file(folder / RECIPE, run.recipe.to_toml())
        write_file(folder / REQUEST, json.dumps({"asked": asked, "start": run.plan.start}, indent=2))
    start = str(before.get("start", run.plan.start))
    return replace(
        request, source=start, model=None, recipe=str(folder / RECIPE), overrides=(), image_size=None, seed=None
    )
