"""Output shared by the commands: progress bars on standard error, tables and JSON on standard output."""

import sys
from collections.abc import Collection, Iterable, Sequence
from json import dumps
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from vitral.advice import printable, printable_json
from vitral.events import Event, Message, PlainLines, readable
from vitral.events import Progress as ProgressEvent
from vitral.tasks.shown import Presentable
from vitral.torchrun import is_main

if TYPE_CHECKING:
    from vitral.classifier.metadata import Provenance


class ConsoleListener:
    """Draws a job's events: messages as lines, progress as bars with the time left; use it as a context manager.

    Without a terminal, as in a log, progress is an occasional plain line.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
        )
        self.tasks: dict[str, TaskID] = {}
        self.finished: dict[str, TaskID] = {}
        self.lines = PlainLines(sys.stderr)

    def __enter__(self) -> "ConsoleListener":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        live = self.progress.live
        if live.is_started:  # a display that never started would still print an empty line
            self.progress.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if not is_main():
            return
        if isinstance(event, Message):
            if event.verdict or (event.detail and not self.verbose):
                return  # a verdict is printed with the result
            style = "yellow" if event.warning else None
            self.console.print(printable(event.text), style=style, markup=False, soft_wrap=True)
        elif not self.console.is_terminal:
            self.lines(event)
        elif isinstance(event, ProgressEvent):
            self._advance(event)

    def note(self, provenance: "Provenance") -> None:
        """Show what a user should know of a classifier: its notes, and why its own scores cast doubt on it."""
        for note in provenance.notes:
            self(Message(note, warning=True))
        for doubt in (provenance.doubt(), provenance.shortfall()):
            if doubt and doubt not in provenance.notes:
                self(Message(doubt, warning=True))
                break

    def _advance(self, event: ProgressEvent) -> None:
        figures = readable(event.figures)
        self.progress.start()  # does nothing after the first bar
        shown = {task.id: task.completed for task in self.progress.tasks}
        if event.task in self.tasks and event.done < shown[self.tasks[event.task]]:  # that one was given up
            self.finished[event.task] = self.tasks.pop(event.task)
        if event.task not in self.tasks:
            if event.task in self.finished:  # a repeated task, such as validation, replaces its old bar
                self.progress.remove_task(self.finished.pop(event.task))
            self.tasks[event.task] = self.progress.add_task(event.task, total=event.total, figures=figures)
        self.progress.update(self.tasks[event.task], completed=event.done, total=event.total, figures=figures)
        if event.done >= event.total:
            self.finished[event.task] = self.tasks.pop(event.task)


def print_json(value: Any) -> None:  # noqa: ANN401  # any JSON value
    """Print a value as JSON for programs.

    Raises:
        ValueError: A number in it is not finite.
    """
    if is_main():
        print(printable_json(dumps(value, indent=2, ensure_ascii=False, allow_nan=False)))


def _heading(title: str) -> str:
    """Return a column's title as it stands in a terminal: lower case, but for words such as "AP" and "mean IoU"."""
    return " ".join(word if sum(map(str.isupper, word)) > 1 else word.lower() for word in title.split())


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, texts: Collection[str] = (), least_width: int = 0
) -> None:
    """Print a table; columns after the first are right-aligned.

    Args:
        columns: The headers.
        rows: The cells.
        texts: The further columns that are left-aligned.
        least_width: The least characters in a line, also for a narrower terminal or none; columns are then closer.
    """
    if not is_main():
        return
    table = Grid(box=None, pad_edge=False, collapse_padding=least_width > 0, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index and column not in texts else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, least_width)
    console.print(table)


def print_lines(*lines: str) -> None:
    """Print lines to standard output."""
    if is_main():
        for line in lines:
            print(printable(line))


def print_styled(line: str, style: str) -> None:
    """Print a line to standard output, in a style of rich's where that is a terminal."""
    if is_main():
        Console(highlight=False).print(printable(line), style=style, markup=False, soft_wrap=True)


def print_result(result: Presentable, *, json: bool, below: Iterable[str] = ()) -> None:
    """Print the result of a command as JSON for programs, or for people with some lines below the tables."""
    if json:
        print_json(result.to_json())
        return
    print_lines(*result.lines())
    for table in result.tables():
        columns = [_heading(column) for column in table.columns]
        print_lines(*filter(None, [table.title]))
        print_table(columns, table.rows, texts=columns[: table.names])
        print_lines(*filter(None, [table.note]))
    print_lines(*below)
