"""Scores in the form of the paper's Table 2, one row a dataset and one column a model, as text, Markdown, LaTeX and HTML."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vitral.advice import printable
from vitral.report.template import render_page
from vitral.report.written import markdown_lines
from vitral.tasks.shown import NO_VALUE, Presentable

TITLE = "Scores by dataset and model"
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


@dataclass(frozen=True)
class Score:
    """What several runs of one recipe scored.

    Attributes:
        deviation: The standard deviation over the runs (n - 1); None for a single run, which has none.
        runs: The number of runs; 0 where a paper does not give it.
        share: Whether the score lies between 0 and 1 and is written in per cent.
    """

    mean: float
    deviation: float | None = None
    runs: int = 0
    share: bool = True

    def text(self) -> str:
        """Return mean ± deviation, shares in per cent without the sign, as papers print them."""
        scale, digits = (100, 2) if self.share else (1, 4)
        mean = f"{scale * self.mean:.{digits}f}"
        return mean if self.deviation is None else f"{mean} ± {scale * self.deviation:.{digits}f}"


@dataclass(frozen=True)
class Column:
    """A model's scores by dataset.

    `start` is what it started from, or how it differs from its neighbour; `source` is where published scores are printed, such
    as "Table 2", and empty for our own.
    """

    model: str
    start: str
    scores: Mapping[str, Score]
    source: str = ""

    def heading(self) -> tuple[str, str, str]:
        """Return the three lines above the column."""
        return self.model, self.start, f"paper, {self.source}" if self.source else "ours"


@dataclass(frozen=True, repr=False)
class ScoreTable(Presentable):
    """Our models on datasets, one a row; the paper's columns stand to the right of ours.

    The notes are what a reader must know of the figures, one line each.
    """

    datasets: tuple[str, ...]
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return in one line what is in it; `print` shows the table."""
        return f"{len(self.datasets)} datasets, {len(self.columns)} models"

    def __str__(self) -> str:
        """Return the table as Markdown."""
        return self.markdown()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        heading = "".join(f"<th>{'<br>'.join(map(_html, column.heading()))}</th>" for column in self.columns)
        rows = "".join(f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>" for row in self.rows())
        notes = "".join(f"<div>{_html(note)}</div>" for note in self.notes)
        return f"<table><thead><tr><th></th>{heading}</tr></thead><tbody>{rows}</tbody></table>{notes}"

    def rows(self) -> list[list[str]]:
        """Return each dataset's name and scores as texts."""
        return [
            [name, *(column.scores[name].text() if name in column.scores else NO_VALUE for column in self.columns)]
            for name in self.datasets
        ]

    def markdown(self) -> str:
        """Return the table as Markdown, the notes below it."""
        heading = ["", *(", ".join(filter(None, column.heading())) for column in self.columns)]
        return "\n".join([*markdown_lines(heading, self.rows()), "", *(f"- {note}" for note in self.notes), ""])

    def latex(self) -> str:
        """Return the table as LaTeX for the package booktabs, the notes below it."""
        headings = zip(*(column.heading() for column in self.columns), strict=True)
        body = [_latex_row(row) for row in self.rows()]
        return "\n".join(
            [
                r"% \usepackage{booktabs}",
                rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
                r"\toprule",
                *(_latex_row(["", *line]) for line in headings),
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                *(rf"\\ {{\small {_latex(note)}}}" for note in self.notes),
                "",
            ]
        )

    def page(self) -> str:
        """Return the table as a self-contained HTML page."""
        heading = ["Dataset", *(column.heading() for column in self.columns)]
        return render_page("table.html", "table", title=TITLE, heading=heading, rows=self.rows(), notes=self.notes)


FORMATS: Mapping[str, Callable[[ScoreTable], str]] = {
    "markdown": ScoreTable.markdown,
    "latex": ScoreTable.latex,
    "html": ScoreTable.page,
}


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in printable(text))


def _html(text: str) -> str:
    return html.escape(printable(text))
