"""What a study of the paper's leaves for readers and programs: the page in two forms, and every run as a row."""

from markupsafe import Markup

from vitral.advice import call
from vitral.classifier.load import load
from vitral.explanation.embeddings import position_similarity
from vitral.layout import CLASSIFIER
from vitral.report.experiment_page import ExperimentPage, write_experiment, write_experiment_markdown
from vitral.report.plots import position_plot
from vitral.report.written import Cell, write_rows_parquet
from vitral.studies.paper.paper_study import PaperStudy, known
from vitral.studies.rows import read_row, read_rows
from vitral.studies.speech import PYTHON, Speech
from vitral.training.planning.durations import written
from vitral.training.records.environment import environment

ROWS, PAGE, MARKDOWN = "rows.parquet", "page.html", "page.md"


def write_pages(result: PaperStudy, speech: Speech = PYTHON) -> None:
    """Write the page, as HTML and as Markdown with its figures, and the rows of all runs.

    Args:
        result: what was found.
        speech: in whose words the page says how it was made.

    Raises:
        StorageError: a file cannot be written.
    """
    assert result.study is not None, "a plan has no page"
    setting = result.setting
    rows = read_rows(setting.design(result.begun.steps, result.begun.seconds).cells(result.folder))
    page = ExperimentPage(
        study=result.study,
        question=setting.experiment.question,
        paper=result.published(),
        ours=result.chart(),
        shows=setting.scale.shows,
        conclusion=result.conclusion(),
        command=_command(result, speech),
        machine=_machine(),
        seconds=sum(row.seconds for row in rows.values()),
        drawings=_positions(result) if setting.experiment.draws_positions else (),
    )
    write_experiment(page, result.folder / PAGE)
    write_experiment_markdown(page, result.folder / MARKDOWN)
    write_rows_parquet(_rows(result), result.folder / ROWS)


def _positions(result: PaperStudy) -> tuple[tuple[str, Markup], ...]:
    """Return how alike the position embeddings of each trial's first network are; of those that have some."""
    setting = result.setting
    trials = {trial.name: trial for trial in setting.trials()}
    drawings = []
    for cell in setting.design(result.begun.steps, result.begun.seconds).cells(result.folder):
        row = read_row(cell)
        if not cell.first or row is None or not row.done:
            continue
        similarity = position_similarity(load(cell.folder / CLASSIFIER).model)
        if similarity is not None:
            drawings.append(
                (f"Position embeddings: {trials[cell.arm].label}, seed {cell.seed}", position_plot(similarity))
            )
    return tuple(drawings)


def _rows(result: PaperStudy) -> list[dict[str, Cell]]:
    """Return each run with what was asked, what is known of its trial, and its figures."""
    setting = result.setting
    trials = {trial.name: trial for trial in setting.trials()}
    cells = setting.design(result.begun.steps, result.begun.seconds).cells(result.folder)
    rows = read_rows(cells)
    table: list[dict[str, Cell]] = []
    for cell in cells:
        if cell.name not in rows:
            continue
        row, trial = rows[cell.name], trials[cell.arm]
        asked = setting.asked(trial, result.begun.steps)
        facts = setting.facts(trial, result.begun.steps)
        said: dict[str, Cell] = {
            "study": setting.experiment.name,
            "arm": trial.name,
            "series": trial.series,
            "label": trial.label,
            "seed": cell.seed,
            "data": asked.data,
            "recipe": asked.recipe,
            "changes": " ".join(asked.overrides),
        }
        said |= known(facts)
        said |= {"seconds": row.seconds, "error": row.error or None}
        said |= row.figures
        table.append(said)
    return table


def _command(result: PaperStudy, speech: Speech) -> str:
    """Return what one types for the study; the steps that its time paid for on this machine follow as a comment."""
    setting, time = result.setting, result.begun.time
    given = {
        "transfer": setting.transfer,
        "budget": setting.scale.name,
        "runs": len(setting.seeds),
        "time": None if time is None else written(time),
    }
    words = [repr(setting.experiment.name), repr(setting.spec)]
    words += [f"{name}={value!r}" for name, value in given.items() if value is not None]
    typed = call(f"vitral.study({', '.join(words)})").strip("`")
    return typed + (f"  # {result.begun.steps:,} steps" if result.begun.steps else "")


def _machine() -> str:
    facts = environment()
    accelerator = f", {facts['accelerator']}" if "accelerator" in facts else ""
    return f"{facts['processor']}, {facts['cores']} cores{accelerator}, torch {facts['torch']}"
