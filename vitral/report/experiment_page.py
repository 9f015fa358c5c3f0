"""The pages of studies: a study's own, and that of one of the paper's experiments, its figure and ours side by side."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from vitral.advice import in_markdown, printable
from vitral.files import write_file
from vitral.report.chart import Chart, Published
from vitral.report.chart_plot import chart_plot
from vitral.report.page import drawing_file
from vitral.report.plots import comparison_plot
from vitral.report.study import Study, markdown_table, table_rows
from vitral.report.template import render_page
from vitral.training.settings.durations import rounded

SPREAD = "Mean ± standard deviation (n − 1) over the runs of each arm; an error bar is one standard deviation to either side."


@dataclass(frozen=True)
class ExperimentPage:
    """What a study of the paper's has found, beside what the paper reports.

    `shows` is what runs of this size can show and what not, `seconds` the time that all runs took together, and `drawings` are
    those of the trained networks, each with its title.
    """

    study: Study
    question: str
    paper: Published
    ours: Chart
    shows: str
    conclusion: str
    command: str
    machine: str
    seconds: float
    drawings: tuple[tuple[str, Markup], ...] = ()


def write_study(study: Study, table: Path, page: Path) -> None:
    """Write a study's table as a Markdown file, and its page as an HTML file.

    Raises:
        StorageError: A file cannot be written.
    """
    write_file(table, printable(markdown_table(study), lines=True))
    heading, *rows = table_rows(study)
    plot = comparison_plot(study)
    write_file(page, render_page("study.html", "study", study=study, heading=heading, rows=rows, plot=plot))


def write_experiment(page: ExperimentPage, path: Path) -> None:
    """Write the page as one self-contained HTML file; one that is there is replaced.

    Raises:
        StorageError: It cannot be written.
    """
    html = render_page(
        "experiment.html",
        "study",
        page=page,
        paper_plot=None if page.paper.chart is None else chart_plot(page.paper.chart),
        our_plot=chart_plot(page.ours),
        rows=table_rows(page.study),
        time=rounded(page.seconds),
        spread=SPREAD,
    )
    write_file(path, html)


def write_experiment_markdown(page: ExperimentPage, path: Path) -> None:
    """Write the page as Markdown, with its charts beside it as NAME-paper.svg and NAME-ours.svg; what is there is replaced.

    Raises:
        StorageError: A file cannot be written.
    """
    charts = {"ours": page.ours} | ({} if page.paper.chart is None else {"paper": page.paper.chart})
    plots = {name: chart_plot(chart) for name, chart in charts.items()}
    plots |= {f"network-{number}": plot for number, (_, plot) in enumerate(page.drawings)}
    for name, plot in plots.items():
        write_file(_drawing(path, name), drawing_file(plot))
    write_file(path, printable("\n\n".join(_markdown(page, path)) + "\n", lines=True))


def _markdown(page: ExperimentPage, path: Path) -> list[str]:
    """Return the Markdown's paragraphs."""
    remarks = [f"- {in_markdown(remark)}" for remark in page.study.remarks()]
    return [
        f"# {in_markdown(page.study.title)}",
        f"**{in_markdown(page.question)}**",
        *(["\n".join(remarks)] if remarks else []),
        in_markdown(page.conclusion),
        *_figures(page, path),
        *_networks(page, path),
        "## What runs of this size can show",
        in_markdown(page.shows),
        "## All figures",
        _table(table_rows(page.study)),
        SPREAD,
        "## How it was made",
        _fenced(page.command),
        f"On {in_markdown(page.machine)}; all runs together took {rounded(page.seconds)}.",
    ]


def _figures(page: ExperimentPage, path: Path) -> list[str]:
    """Return the paper's figure and ours, side by side where there are two, their notes, and their values."""
    ours, paper = page.ours, page.paper.chart
    notes = [in_markdown(text) for text in (f"The paper, {page.paper.source}. {page.paper.note}", ours.note) if text]
    if paper is None:
        return [_linked(path, "ours", ours.title), *notes, _values(ours)]
    images = [[paper.title, ours.title], [_linked(path, "paper", paper.title), _linked(path, "ours", ours.title)]]
    return [
        _rows([list(map(in_markdown, images[0])), ["---", "---"], images[1]]),
        *notes,
        _values(paper),
        _values(ours),
    ]


def _networks(page: ExperimentPage, path: Path) -> list[str]:
    """Return the drawings of the networks, two in a row."""
    if not page.drawings:
        return []
    cells = [
        (in_markdown(title), _linked(path, f"network-{number}", title))
        for number, (title, _) in enumerate(page.drawings)
    ]
    pairs = [cells[start : start + 2] for start in range(0, len(cells), 2)]
    rows = [[cell[part] for cell in pair] + [""] * (2 - len(pair)) for pair in pairs for part in (0, 1)]
    return ["## The networks", _rows([["", ""], ["---", "---"], *rows])]


def _linked(path: Path, name: str, title: str) -> str:
    return f"![{in_markdown(title)}]({_drawing(path, name).name})"


def _values(chart: Chart) -> str:
    """Return a chart's values as a table that is folded away."""
    return f"<details><summary>Values: {in_markdown(chart.title)}</summary>\n\n{_table(chart.rows())}\n\n</details>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    heading, *others = ([in_markdown(text) for text in row] for row in rows)
    return _rows([heading, ["---", *["---:"] * (len(heading) - 1)], *others])


def _rows(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _fenced(command: str) -> str:
    """Return a command as a block of code, whatever backticks it has."""
    longest = max((len(run) for run in re.findall("`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{command}\n{fence}"


def _drawing(path: Path, name: str) -> Path:
    return path.with_name(f"{path.stem}-{name}.svg")
