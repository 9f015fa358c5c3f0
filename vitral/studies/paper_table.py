"""The paper's Table 2 of the user's runs: mean ± standard deviation over the seeds, the published figures beside them."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from vitral.advice import argument
from vitral.errors import StudyError
from vitral.evaluation.published import CITATION, paper_dataset, paper_results
from vitral.report.score_table import Column, Score, ScoreTable
from vitral.studies.finished import FinishedRun, finished_runs

MOST_DIFFERENCES = 3  # settings that a column's heading names
FINGERPRINT = 8  # letters of a fingerprint that tell two versions of the data apart
FROM_SCRATCH = "from scratch"


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
    heading = f"from {start}" if start else FROM_SCRATCH
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
    apart = [key for key in settings[0] if any(each.get(key) != settings[0][key] for each in settings)]
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
    return f"{run.model} on {names[run.identity()]}: {count}; {run.images:,} {run.split} images."
