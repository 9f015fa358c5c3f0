"""`vitral table`: the paper's Table 2 of one's own runs."""

from typing import Literal

from vitral.advice import printable
from vitral.cli.process import importing


def table(
    runs: list[str], /, *, format: Literal["text", "markdown", "latex", "html"] = "text", json: bool = False
) -> None:
    """Print the scores of finished runs as the paper's Table 2: mean ± deviation over seeds.

    Args:
        runs: Run folders, or folders of several seeds of one recipe.
        format: Text, markdown, latex (with booktabs) or html (a page).
        json: Print JSON for programs.
    """
    with importing():
        from vitral.cli.console import print_json, print_lines, print_table
        from vitral.report.score_table import FORMATS
        from vitral.studies.paper_table import table as tabulate

    found = tabulate(*runs)
    if json:
        print_json(found.to_json())
        return
    if format != "text":
        print_lines(*FORMATS[format](found).splitlines())
        return
    headings = [[""], *([printable(line) for line in column.heading()] for column in found.columns)]
    columns = zip(headings, zip(*found.rows(), strict=True), strict=True)
    width = sum(max(map(len, (*heading, *cells))) + 2 for heading, cells in columns)  # what is folded cannot be read
    print_table(["\n".join(heading) for heading in headings], found.rows(), least_width=width)
    print_lines(*found.notes)
