"""The paper's Table 2 of the user's runs: mean ± standard deviation over the seeds, the published figures beside them.

Finished runs are taken as their folders describe them; no weights are loaded.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.advice import argument
from vitral.classifier.metadata import RANDOM
from vitral.described import read_object
from vitral.errors import StudyError, VitralError
from vitral.evaluation.published import CITATION, paper_dataset, paper_results
from vitral.models.families import config_from_json, describe
from vitral.paths import CLASSIFIER, DESCRIPTION, EVALUATION_FILE, RECIPE_FILE, is_folder, look_at
from vitral.report.score_table import Column, Score, ScoreTable
from vitral.tasks.registry import described_task
from vitral.tasks.shown import photos_of
from vitral.tasks.task import Figure
from vitral.training.candidates.result import PIXELS
from vitral.training.plan import read_plan
from vitral.training.records.run_folder import REQUEST, STUDY_FILE, holds_run, read_run
from vitral.training.settings.recipe import Recipe, load_recipe, may_change

LENGTH = {"steps", "schedule.bends"}  # may change when a run continues, and make it another
SPLITS = ("test", "validation", "train")  # one of which a run scores itself on
MOST_DIFFERENCES = 3  # settings that a column's heading names
FINGERPRINT = 8  # letters of a fingerprint that tell two versions of the data apart
FROM_SCRATCH = "from scratch"


@dataclass(frozen=True)
class FinishedRun:
    """A run that has its score: the value of the figure that compares networks of its task, on the images of a split.

    `start` is as the user gave it, empty for random weights, and `start_path` its path on disk, links followed; empty if it is
    no path, or nothing is there any more. The fingerprint is the data's, empty if they have none. The recipe is as resolved;
    None for a linear layer, which was fitted in closed form by the `method` of that name. `remark` is a line that a reader must
    know.
    """

    folder: Path
    model: str
    start: str
    data: str
    fingerprint: str
    classes: int
    split: str
    images: int
    seed: int
    recipe: Recipe | None
    figure: Figure
    score: float
    remark: str = ""
    start_path: str = ""
    method: str = ""

    def settings(self) -> dict[str, Any]:
        """Return the recipe's settings by dotted name, without the seed and what changes no result."""
        if self.recipe is None:
            return {"name": self.method}
        free = {"seed", *may_change()} - LENGTH
        return {key: value for key, value in self.recipe.leaves.items() if key not in free}

    def identity(self) -> str:
        """Return the identity of the data, whatever path was given: the fingerprint, or the name if there is none."""
        return self.fingerprint or self.data

    def origin(self) -> str:
        """Return the identity of the start, whatever path was given."""
        return self.start_path or self.start

    def question(self) -> tuple[str, ...]:
        """Return what repetitions of a run have in common: all but the seed."""
        return (self.model, self.origin(), self.identity(), json.dumps(self.settings(), sort_keys=True))


def finished_runs(folder: str | Path) -> list[FinishedRun]:
    """Return the run in a folder, or those of a study: of the seeds of one recipe, or of several arms.

    Raises:
        StudyError: There is no such folder, no run in it, or one that has no score yet.
    """
    path = Path(folder)
    if not is_folder(path):
        raise StudyError(f"There is no folder '{path}'; name a run folder, or that of several seeds of one.")
    if holds_run(path):
        return [read_finished(path)]
    inside = sorted(entry for entry in path.iterdir() if holds_run(entry)) if (path / STUDY_FILE).is_file() else []
    if not inside:
        raise StudyError(f"'{path}' holds no run; name a run folder, or that of several seeds of one.")
    return [read_finished(run) for run in inside]


def read_finished(folder: Path) -> FinishedRun:
    """Return a finished run as its folder describes it.

    Raises:
        StudyError: It is not finished, or its files are damaged.
    """
    scores, described = read_object(folder / EVALUATION_FILE), read_object(folder / CLASSIFIER / DESCRIPTION)
    if not scores or not described:
        resume = argument("resume", True)
        raise StudyError(f"The run in '{folder}' has no score yet; finish it by {resume}, or leave it out.")
    try:
        return _read(folder, read_run(folder), scores, described)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration, VitralError) as error:
        raise StudyError(f"The files of the run in '{folder}' are damaged ({error}); leave it out.") from error


def _read(folder: Path, run: dict[str, Any], scores: dict[str, Any], described: dict[str, Any]) -> FinishedRun:
    figure, known = described_task(described).headline, described["provenance"]["scores"]
    split = next(split for split in SPLITS if f"{split}/{figure.name}" in known)
    source = described["provenance"]["source"]
    method = str(described["provenance"].get("training", {}).get("method", "")).partition(",")[0]
    recipe = None if method else load_recipe(folder / RECIPE_FILE)
    start = "" if source.startswith(RANDOM) or method == PIXELS else str(run.get("from") or source)
    plan = read_plan(folder)
    return FinishedRun(
        folder=folder,
        model=describe(config_from_json(described["architecture"])),
        start=start,
        start_path=_on_disk(start, run),
        data=str(run["data"]),
        fingerprint=str(run["data_fingerprint"] or ""),
        classes=len(described["class_names"]),
        split=split,
        images=int(scores["num_examples"]),
        seed=recipe.seed if recipe else plan.recipe.seed if plan else 0,
        recipe=recipe,
        figure=figure,
        score=float(known[f"{split}/{figure.name}"]),
        remark=str(scores.get("choice", {}).get("sentence", "")),
        method=method,
    )


def _on_disk(start: str, run: dict[str, Any]) -> str:
    """Return the path of a start that was given in the folder in which the run began."""
    request = run.get(REQUEST)
    path = Path(str(request.get("where", "")) if isinstance(request, dict) else "", start)
    return str(path.resolve()) if start and look_at(path) is not None else ""


def table(*runs: str | Path) -> ScoreTable:
    """Return the scores of finished runs in the form of the paper's Table 2.

    Runs of one recipe that differ in the seed alone are one score, mean ± standard deviation. If a model and a dataset are the
    paper's, its figures stand to the right.

    Args:
        runs: The run folders, or folders of several runs such as a fine-tuning with several seeds makes.

    Raises:
        StudyError: There is no such folder, no run in it, a run without a score, or two datasets of one name.
    """
    if not runs:
        raise StudyError("Which runs? Name run folders, or a folder of several seeds of one.")
    found, notes = _distinct(run for folder in runs for run in finished_runs(folder))
    names = _dataset_names(found)
    return ScoreTable(
        datasets=tuple(dict.fromkeys(names[run.identity()] for run in found)),
        columns=tuple(column for model in _by_model(found) for column in _beside(model, names)),
        notes=(*_notes(found, names), *notes),
    )


def _distinct(runs: Iterable[FinishedRun]) -> tuple[list[FinishedRun], list[str]]:
    """Return the runs without those named twice or with a seed repeated, and what was left out, one line each."""
    distinct: dict[tuple[tuple[str, ...], int], FinishedRun] = {}
    notes, seen = [], set()
    for run in runs:
        if run.folder.resolve() in seen:
            continue
        seen.add(run.folder.resolve())
        first = distinct.setdefault((run.question(), run.seed), run)
        if first is not run:
            notes.append(f"{run.folder} repeats seed {run.seed} of {first.folder}, and is not counted.")
    return list(distinct.values()), notes


def _dataset_names(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return the name of each dataset's row: the paper's or its own, with a part of the fingerprint if two share it."""
    titles: dict[str, str] = {}
    for run in runs:
        known = paper_dataset(run.data, run.classes)
        if known is not None:
            titles[run.identity()] = known.title
        else:
            titles.setdefault(run.identity(), run.data)
    several = {title for title in titles.values() if list(titles.values()).count(title) > 1}
    names = {data: f"{title} ({data[:FINGERPRINT]})" if title in several else title for data, title in titles.items()}
    for data, name in names.items():
        first = next(other for other in names if names[other] == name)
        if first != data:
            raise StudyError(f"Two datasets are both called '{name}' here; make a table of each.")
    return names


def _by_model(runs: Sequence[FinishedRun]) -> list[list[FinishedRun]]:
    """Return the runs of each model, in the order in which they were named."""
    return [[run for run in runs if run.model == model] for model in dict.fromkeys(run.model for run in runs)]


def _beside(runs: Sequence[FinishedRun], names: dict[str, str]) -> list[Column]:
    """Return the columns of one model: ours, one for each start, and to their right the paper's."""
    starts = _start_names(runs)
    ours = [
        column
        for origin, start in starts.items()
        for column in _columns([run for run in runs if run.origin() == origin], start, names)
    ]
    return [*ours, *_published(runs, names)]


def _start_names(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return the name of each start: as first given, or its path if another was given by the same name."""
    typed: dict[str, str] = {}
    for run in runs:
        typed.setdefault(run.origin(), run.start)
    texts = list(typed.values())
    return {origin: text if texts.count(text) == 1 else origin for origin, text in typed.items()}


def _repeated(runs: Sequence[FinishedRun]) -> list[list[FinishedRun]]:
    """Return the runs in groups that differ in the seed alone."""
    groups: dict[tuple[str, ...], list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(run.question(), []).append(run)
    return list(groups.values())


def _columns(runs: Sequence[FinishedRun], start: str, names: dict[str, str]) -> list[Column]:
    """Return the columns of one model and start: one, or one for each recipe where a dataset has scores of several."""
    groups = _repeated(runs)
    method = groups[0][0].method if len(groups) == 1 else ""
    heading = ", ".join(filter(None, [f"from {start}" if start else "" if method else FROM_SCRATCH, method]))
    scores = []
    for group in groups:
        values = [run.score for run in group]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        score = Score(statistics.fmean(values), deviation, len(values), group[0].figure.is_share)
        scores.append((names[group[0].identity()], score))
    if len(dict(scores)) == len(scores):
        return [Column(runs[0].model, heading, dict(scores))]
    return [
        Column(runs[0].model, f"{heading}, {settings}", {name: score})
        for (name, score), settings in zip(scores, _headings(groups), strict=True)
    ]


def _headings(groups: Sequence[Sequence[FinishedRun]]) -> list[str]:
    """Return the settings in which the recipes of several groups differ."""
    settings = [group[0].settings() for group in groups]
    shared = [key for key in settings[0] if all(key in each for each in settings)]
    apart = [key for key in shared if any(each[key] != settings[0][key] for each in settings)]
    ranked = sorted((key for key in apart if key != "name"), key=lambda key: "." in key)  # such as "steps" first
    named = ranked[:MOST_DIFFERENCES] or apart
    return [", ".join(f"{key}={each.get(key)}" for key in named) for each in settings]


def _published(runs: Sequence[FinishedRun], names: dict[str, str]) -> list[Column]:
    """Return what the paper reports of the model of some runs on their datasets."""
    rows = {names[run.identity()]: known.name for run in runs if (known := paper_dataset(run.data, run.classes))}
    columns = []
    for result in paper_results(runs[0].model):
        scores = {row: Score(*result.scores[name]) for row, name in rows.items() if name in result.scores}
        if scores:
            columns.append(Column(result.title, result.pretraining, scores, f"Table {result.table}"))
    return columns


def _notes(runs: Sequence[FinishedRun], names: dict[str, str]) -> list[str]:
    groups = _repeated(runs)
    figures = dict.fromkeys(run.figure.title for run in runs)
    notes = [
        f"Our figures: {' and '.join(figures)}, mean ± standard deviation (n - 1) over runs that differ in the seed alone.",
        *(_runs_of(group, names) for group in groups),
    ]
    if any(len(group) == 1 for group in groups):
        notes.append(f"One run has no standard deviation; repeat it with another {argument('seed')} to have one.")
    published = any(_published(model, names) for model in _by_model(runs))
    if published:
        notes.append(f"Published: {CITATION}; Table 2 is the mean ± standard deviation of three fine-tunings.")
    for run in {run.identity(): run for run in runs}.values():
        known = paper_dataset(run.data, run.classes)
        if known is not None and published and run.images != known.images:
            notes.append(
                f"{known.title}: ours is of {run.images:,} {run.split} images, the paper's of {known.images:,}."
            )
    return [*notes, *(f"{run.folder}: {run.remark}" for run in runs if run.remark)]


def _runs_of(group: Sequence[FinishedRun], names: dict[str, str]) -> str:
    run, seeds = group[0], [str(run.seed) for run in group]
    count = f"{len(seeds)} runs, seeds {', '.join(seeds)}" if len(seeds) > 1 else f"1 run, seed {seeds[0]}"
    return f"{run.model} on {names[run.identity()]}: {count}; {photos_of(run.split, run.images)}."
