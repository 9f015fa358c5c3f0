"""The events of a job as plain text: lines now and then for a log, one line that is written over in a notebook.

`show` is for those who pass no listener of their own; `vitral.events.ignore` is silence.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from vitral.events import Event, Message, Progress, Scalars
from vitral.printable import printable

FIGURES = {
    "loss": "loss {:.3f}",
    "accuracy": "accuracy {:.1%}",
    "validation/accuracy": "validation {:.1%}",
    "validation/map": "validation {:.1%}",
    "images_per_second": "{:.0f} images/s",
}
OFTEN, SELDOM, PATIENCE = 10.0, 30.0, 60.0  # seconds between lines at first, and when the job is so many seconds old
BAR = 24  # characters
REDRAWN = 0.2  # seconds between two states of a bar
TELLING = 2.0  # seconds of a task that must be seen before they tell how long the rest of it takes


def readable(figures: dict[str, float]) -> str:
    """Return figures as people read them beside a bar; those without a form are left out."""
    return "  ".join(FIGURES[name].format(value) for name, value in figures.items() if name in FIGURES)


@dataclass
class _Task:
    """A task since it was first heard of, which may be late in it: a run that goes on begins in the middle."""

    began: float
    first: int
    said: bool = False

    def left(self, event: Progress, now: float) -> str:
        """Return about how long the rest takes, at the pace that was seen; nothing as long as too little was."""
        seconds, done = now - self.began, event.done - self.first
        if done <= 0 or seconds < TELLING or event.done >= event.total:
            return ""
        left = seconds / done * (event.total - event.done)
        return f"{left / 60:.0f} min left" if left >= 100 else f"{left:.0f} s left"


class PlainLines:
    """Writes messages at once, and of a task's progress a line every 10 seconds at first, every 30 later.

    Args:
        stream: where to; None for standard error as it is at that time.
        clock: gives seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self._began: float | None = None
        self._last = self._heard = 0.0
        self._tasks: dict[str, _Task] = {}
        self._validation: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Write of an event what is due."""
        if isinstance(event, Message):
            self._write(f"Warning: {event.text}" if event.warning else event.text)
        elif isinstance(event, Scalars):
            self._validation |= {name: value for name, value in event.values.items() if name.startswith("validation/")}
        else:
            self._advance(event)

    def _advance(self, event: Progress) -> None:
        now = self.clock()
        if self._began is None or now - self._heard > PATIENCE:  # another job
            self._began = self._last = now
        self._heard = now
        task = self._tasks.setdefault(event.task, _Task(now, event.done))
        finished = event.done >= event.total
        wait = OFTEN if now - self._began < PATIENCE else SELDOM
        if now - self._last >= wait or (finished and task.said):
            figures = event.figures | (self._validation if event.task == "train" else {})
            parts = [f"{event.task} {event.done}/{event.total}", readable(figures), task.left(event, now)]
            self._write("  ".join(part for part in parts if part))
            self._last, task.said = now, True
        if finished:
            del self._tasks[event.task]

    def _write(self, line: str) -> None:
        print(printable(line), file=self.stream or sys.stderr, flush=True)


class NotebookBar:
    """Writes messages as lines, and progress as one line that is written over: what a notebook shows as a bar.

    Args:
        stream: where to; None for standard output as it is at that time.
        clock: gives seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self._tasks: dict[str, _Task] = {}
        self._drawn = 0.0
        self._width = 0

    def __call__(self, event: Event) -> None:
        """Write an event."""
        if isinstance(event, Message):
            self._write(f"Warning: {printable(event.text)}" if event.warning else printable(event.text), end="\n")
        elif isinstance(event, Progress):
            self._advance(event)

    def _advance(self, event: Progress) -> None:
        now = self.clock()
        task = self._tasks.setdefault(event.task, _Task(now, event.done))
        finished = event.done >= event.total
        if finished or now - self._drawn >= REDRAWN:
            filled = BAR * event.done // max(event.total, 1)
            bar = "█" * filled + "░" * (BAR - filled)
            parts = [
                f"{event.task} {bar} {event.done}/{event.total}",
                readable(event.figures),
                task.left(event, now),
            ]
            self._write("  ".join(part for part in parts if part), end="\n" if finished else "")
            self._drawn = now
        if finished:
            del self._tasks[event.task]

    def _write(self, text: str, *, end: str) -> None:
        padding = " " * max(0, self._width - len(text))
        print(f"\r{text}{padding}" if self._width else text, end=end, file=self.stream or sys.stdout, flush=True)
        self._width = 0 if end else len(text)


def in_notebook() -> bool:
    """Tell whether a notebook's kernel runs this; IPython is asked where it is loaded, and never imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


_lines, _bar = PlainLines(), NotebookBar()


def show(event: Event) -> None:
    """Write an event where the user is: the listener of those who pass none."""
    (_bar if in_notebook() else _lines)(event)
