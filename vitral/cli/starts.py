"""`vitral starts`: starts side by side, and nothing trained."""

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from vitral.cli.options import USUAL
from vitral.cli.process import began, importing
from vitral.cli.training_options import Json, StartsOptions

if TYPE_CHECKING:
    from vitral.report.start_table import StartTable

WIDTH = 100  # characters of the table


def starts(
    options: StartsOptions | None = None,
    names: Annotated[str, Parameter(("--from", "--source"), group=USUAL)] = "auto",
    *,
    json: Json = False,
) -> None:
    """Compare starts by linear probes on the data, which is best for these images; nothing is trained.

    Args:
        options: The request.
        names: NAME,NAME: published weights, files or folders; "auto" for those that are here or worth a download.
        json: Print JSON for programs.
    """
    with importing():
        from vitral.cli.command_line import SPEECH
        from vitral.cli.console import ConsoleListener
        from vitral.studies.compare_starts import starts_request

    with ExitStack() as display:
        listener = display.enter_context(ConsoleListener())
        told = partial(_show, display, json=json)
        starts_request(
            (options or StartsOptions()).request(), names, started=began(), listener=listener, speech=SPEECH, told=told
        )


def _show(display: ExitStack, table: "StartTable", *, json: bool) -> None:
    from vitral.cli.console import print_json, print_lines, print_table
    from vitral.report.start_table import COLUMNS

    display.close()  # while bars are drawn, they take what is printed
    if json:
        print_json(table.to_json())
        return
    print_lines(f"Starts compared on {table.data}", table.judged())
    print_table(list(COLUMNS), table.cells(), texts=("licence",), least_width=WIDTH)
    print_lines(*table.verdict(), *table.remarks())
    if table.next:
        print_lines("Next:", f"  {table.next}")
