"""A study's table as Markdown, and the page with its figure."""

from pathlib import Path

from markupsafe import Markup
from matplotlib.ticker import FuncFormatter, MaxNLocator

from vitral.files import write_file
from vitral.printable import printable
from vitral.report.page import page_environment
from vitral.report.plots import SERIES, new_axes, plain, to_svg
from vitral.report.study import Study, markdown_table, table_rows

ROOMY, CLOSE = 0.62, 0.34  # inches for an arm, of few and of many
FEW_ARMS = 8


def write_study(study: Study, table: Path, page: Path) -> None:
    """Write a study's table and its page.

    Args:
        study: what was found so far.
        table: the Markdown file.
        page: the HTML file.

    Raises:
        StorageError: a file cannot be written.
    """
    write_file(table, printable(markdown_table(study), lines=True))
    environment, style = page_environment()
    heading, *rows = table_rows(study)
    html = environment.get_template("study.html").render(
        study=study, style=style, heading=heading, rows=rows, plot=study_plot(study)
    )
    write_file(page, printable(html, lines=True))


def study_plot(study: Study) -> Markup | None:
    """Draw the headline of each arm: a dot a run, the mean as a bar across, one standard deviation either way.

    None where no run has that figure yet.
    """
    figure_name = study.headline
    shown = [arm for arm in study.arms if arm.values(figure_name)]
    if not shown:
        return None
    figure, axes = new_axes(height=0.7 + (ROOMY if len(shown) <= FEW_ARMS else CLOSE) * len(shown))
    for row, arm in enumerate(shown):
        colour, values, mean = SERIES[row % len(SERIES)], arm.values(figure_name), arm.mean(figure_name)
        if len(values) > 1:
            deviation = arm.deviation(figure_name)
            axes.plot([mean - deviation, mean + deviation], [row, row], color=colour, linewidth=7, alpha=0.25)
        axes.plot([mean] * 2, [row - 0.24, row + 0.24], color=colour, linewidth=2)
        axes.scatter(values, [row] * len(values), s=26, color=colour, zorder=3)
    axes.set_yticks(range(len(shown)), [plain(arm.name) for arm in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.set_xlabel(plain(figure_name))
    return to_svg(figure, f"{figure_name}: " + "; ".join(f"{arm.name} {arm.mean(figure_name):.4g}" for arm in shown))
