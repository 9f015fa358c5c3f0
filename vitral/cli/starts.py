"""`vitral finetune --starts`: starts side by side, and nothing trained."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from vitral.cli.command_line import COMMANDS
from vitral.cli.console import ConsoleListener, print_json, print_line, print_table
from vitral.cli.wording import flag
from vitral.errors import StudyError
from vitral.report.start_table import COLUMNS, StartTable
from vitral.studies.compare_starts import starts as compare_starts
from vitral.training.planning.request import ask

TAKEN = ("out", "image_size", "time", "seed", "classes", "skip_bad_images", "offline", "started")  # with --starts
WIDTH = 100  # characters of the table


def compare(data: str | None, names: str, asked: Mapping[str, Any], *, overwrite: bool, json: bool) -> None:
    """Compare starts and print the table.

    Args:
        data: the data's name, path or address.
        names: of the starts, with commas between them.
        asked: the other flags by the names of their arguments; what trains is refused.
        overwrite: whether files in --out may be replaced.
        json: whether to print JSON for programs.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    for name, value in asked.items():
        if name not in TAKEN and value not in (None, False, ()):
            raise StudyError(f"--starts compares and trains nothing, so {flag(name)} cannot go with it.")
    data = ask("fine-tune", data).required_data()
    taken = {name: asked[name] for name in TAKEN}
    with ExitStack() as display:
        listener = display.enter_context(ConsoleListener())
        show = partial(_show, display, json=json)
        compare_starts(data, names, **taken, overwrite=overwrite, listener=listener, speech=COMMANDS, told=show)


def _show(display: ExitStack, table: StartTable, *, json: bool) -> None:
    display.close()  # while bars are drawn, they take what is printed
    if json:
        print_json(table.to_json())
        return
    print_line(f"Starts compared on {table.data}")
    print_line(table.judged())
    print_table(list(COLUMNS), table.cells(), texts=("licence",), least_width=WIDTH)
    for line in (*table.verdict(), *table.remarks()):
        print_line(line)
    if table.next:
        print_line("Next:")
        print_line(f"  {table.next}")
