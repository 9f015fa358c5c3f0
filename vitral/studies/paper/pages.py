"""What a study of the paper's leaves for readers and programs: the page in two forms, and every run as a row."""

from collections.abc import Mapping

from markupsafe import Markup

from vitral.advice import call
from vitral.classifier.load import load
from vitral.explanation.network import position_similarity
from vitral.paths import CLASSIFIER
from vitral.report.experiment_page import ExperimentPage, write_experiment, write_experiment_markdown
from vitral.report.plots import position_plot
from vitral.report.written import Cell, write_rows_parquet
from vitral.studies.paper.experiment import published
from vitral.studies.paper.paper_study import PaperStudy
from vitral.studies.rows import RunRow, read_rows
from vitral.training.records.run_folder import environment
from vitral.training.settings.durations import written

ROWS = "rows.parquet"
PAGE = "page.html"
MARKDOWN = "page.md"


def write_pages(result: PaperStudy) -> None:
    """Write the page of a finished study, as HTML and as Markdown with its figures, and the rows of all runs.

    Raises:
        StorageError: A file cannot be written.
    """
    plan = result.laid_out
    experiment = plan.experiment
    rows = read_rows(result.cells())
    page = ExperimentPage(
        study=result.found,
        question=experiment.question,
        paper=published(experiment.name),
        ours=result.chart(),
        shows=plan.scale.shows,
        conclusion=result.conclusion(),
        command=_command(result),
        machine=_machine(),
        seconds=sum(row.seconds for row in rows.values()),
        drawings=_positions(result, rows) if experiment.draws_positions else (),
    )
    write_experiment(page, result.folder / PAGE)
    write_experiment_markdown(page, result.folder / MARKDOWN)
    write_rows_parquet(_table(result, rows), result.folder / ROWS)


def _positions(result: PaperStudy, rows: Mapping[str, RunRow]) -> tuple[tuple[str, Markup], ...]:
    """Return how similar the position embeddings of each trial's first network are, if it has any."""
    drawings = []
    for cell in result.cells():
        if not cell.first or cell.name not in rows or not rows[cell.name].done:
            continue
        similarity = position_similarity(load(cell.folder / CLASSIFIER).model)
        if similarity is not None:
            title = f"Position embeddings: {result.laid_out.named(cell.arm).label}, seed {cell.seed}"
            drawings.append((title, position_plot(similarity)))
    return tuple(drawings)


def _table(result: PaperStudy, rows: Mapping[str, RunRow]) -> list[dict[str, Cell]]:
    """Return each run with its request, the facts of its trial, and its figures."""
    plan = result.laid_out
    table: list[dict[str, Cell]] = []
    for cell in result.cells():
        if cell.name not in rows:
            continue
        row, trial = rows[cell.name], plan.named(cell.arm)
        request = plan.request(trial)
        table.append(
            {
                "study": plan.experiment.name,
                "arm": trial.name,
                "series": trial.series,
                "label": trial.label,
                "seed": cell.seed,
                "data": request.data,
                "recipe": request.recipe,
                "changes": " ".join(request.overrides),
                **plan.facts(trial).to_json(),
                "seconds": row.seconds,
                "error": row.error or None,
                **row.figures,
            }
        )
    return table


def _command(result: PaperStudy) -> str:
    """Return what one types for the study; the steps that its time paid for on this machine follow as a comment."""
    plan = result.laid_out
    record = plan.record
    given = {
        "transfer": plan.transfer,
        "budget": plan.scale.name,
        "runs": len(plan.seeds),
        "time": None if record.time is None else written(record.time),
        "skip_bad_images": plan.skip_bad_images,
    }
    words = [repr(plan.experiment.name), repr(plan.spec)]
    words += [f"{name}={value!r}" for name, value in given.items() if value is not None]
    typed = call(f"vitral.study({', '.join(words)})").strip("`")
    return typed + (f"  # {record.steps:,} steps" if record.steps else "")


def _machine() -> str:
    facts = environment()
    accelerator = f", {facts['accelerator']}" if "accelerator" in facts else ""
    return f"{facts['processor']}, {facts['cores']} cores{accelerator}, torch {facts['torch']}"
