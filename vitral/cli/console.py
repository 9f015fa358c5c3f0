"""What the commands share in showing: progress bars on standard error, tables and JSON on standard output."""

import json
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from vitral.classifier.classifier import Classifier
from vitral.distributed import is_main
from vitral.events import Event, Message
from vitral.events import Progress as ProgressEvent

FIGURES = {
    "loss": "loss {:.3f}",
    "accuracy": "accuracy {:.1%}",
    "validation/accuracy": "validation {:.1%}",
    "images_per_second": "{:.0f} images/s",
}


class ConsoleListener:
    """Draws a job's events: messages as lines, progress as bars with the time left; use it as a context manager."""

    def __init__(self) -> None:
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

    def __enter__(self) -> "ConsoleListener":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.progress.live.is_started:  # a display that never began would still end in an empty line
            self.progress.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if not is_main():
            return
        if isinstance(event, Message):
            style = "yellow" if event.warning else None
            self.progress.console.print(event.text, style=style, markup=False, soft_wrap=True)
        elif isinstance(event, ProgressEvent):
            self._advance(event)

    def note(self, classifier: Classifier) -> None:
        """Show what a user should know of a classifier."""
        for note in classifier.provenance.notes:
            self(Message(note, warning=True))

    def _advance(self, event: ProgressEvent) -> None:
        figures = "  ".join(FIGURES[name].format(value) for name, value in event.figures.items() if name in FIGURES)
        self.progress.start()  # at the first bar; after that it does nothing
        if event.task not in self.tasks:
            self.tasks[event.task] = self.progress.add_task(event.task, total=event.total, figures=figures)
        self.progress.update(self.tasks[event.task], completed=event.done, total=event.total, figures=figures)
        if event.done >= event.total:
            # A finished task may come again, as evaluation does after every epoch; it then gets a bar of its own.
            del self.tasks[event.task]


def print_json(value: Any) -> None:  # noqa: ANN401  # whatever JSON holds
    """Print a value as JSON for a program to read; not-a-number becomes null."""
    if not is_main():
        return
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(columns: list[str], rows: list[list[str]], *, title: str | None = None) -> None:
    """Print a table; columns after the first are right-aligned."""
    if not is_main():
        return
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def print_line(text: str) -> None:
    """Print one line to standard output."""
    if is_main():
        print(text)
