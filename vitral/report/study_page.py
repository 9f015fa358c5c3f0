"""A study's table as Markdown, and the page with its figure."""

from pathlib import Path

from vitral.files import write_file
from vitral.printable import printable
from vitral.report.page import page_environment
from vitral.report.plots import comparison_plot
from vitral.report.study import Study, markdown_table, table_rows


def write_study(study: Study, table: Path, page: Path) -> None:
    """Write a study's table and its page.

    Args:
        study: the result so far.
        table: the Markdown file.
        page: the HTML file.

    Raises:
        StorageError: a file cannot be written.
    """
    write_file(table, printable(markdown_table(study), lines=True))
    environment, style = page_environment()
    heading, *rows = table_rows(study)
    html = environment.get_template("study.html").render(
        kind="study", study=study, style=style, heading=heading, rows=rows, plot=comparison_plot(study)
    )
    write_file(page, printable(html, lines=True))
