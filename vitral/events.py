"""Events of a long job, reported to a listener; the command line draws them, a program may collect them.

A job takes one `Listener` and calls it with the events below. It never prints; `show`, the default listener, writes them as
plain text: occasional lines for a log, one line that is overwritten in a notebook. `ignore` is silent.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from vitral.advice import counted, printable

FIGURES = {
    "loss": "loss {:.3f}",
    "accuracy": "accuracy {:.1%}",
    "validation/accuracy": "validation {:.1%}",
    "validation/map": "validation {:.1%}",
    "validation/ap": "validation AP {:.1%}",
    "validation/miou": "validation mean IoU {:.1%}",
    "validation/pq": "validation PQ {:.1%}",
    "images_per_second": "{:.0f} images/s",
}
OFTEN = 10.0  # seconds between lines at first
SELDOM = 30.0  # seconds between lines of a job that is older than PATIENCE
PATIENCE = 60.0  # seconds
BAR = 24  # characters
REDRAWN = 0.2  # seconds between two redraws of a bar
NAMED = 3  # images that cannot be read
TELLING = 2.0  # seconds of a task that must be seen before the rest is estimated


@dataclass(frozen=True)
class Message:
    """A line for the user.

    Attributes:
        text: The line.
        warning: Whether something may be wrong.
        verdict: Whether the line judges the job's result; a command prints such lines itself at the end.
        detail: Whether the line is for those who want to know everything; it is written with `--verbose` alone.
    """

    text: str
    warning: bool = False
    verdict: bool = False
    detail: bool = False


@dataclass(frozen=True)
class Progress:
    """The progress of a named task.

    Attributes:
        task: The task's name, as users see it ("fine-tune", "evaluate").
        done: The number of finished units.
        total: The number of all units; equal to `done` when the task ends.
        figures: The figures next to the bar, such as loss, accuracy and images/s.
    """

    task: str
    done: int
    total: int
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scalars:
    """Figures measured at an optimizer step, for a log."""

    step: int
    values: dict[str, float]


Event = Message | Progress | Scalars
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Ignore every event."""


@contextmanager
def skipping(listener: Listener) -> Iterator[Callable[[object], None]]:
    """Have a function that says, by its error, that an image is left out: of the first ones, and at the end how many more.

    The others are details, for those who want to know everything.
    """
    count = 0

    def skip(error: object) -> None:
        nonlocal count
        count += 1
        listener(Message(f"Skipped: {error}", warning=True, detail=count > NAMED))

    yield skip
    if count > NAMED:
        listener(Message(f"Skipped: {counted(count - NAMED, 'more image')}.", warning=True))


def few_shot_name(shots: int) -> str:
    """Return the name, in logs, of the accuracy that so many images a class give on frozen features."""
    return f"validation/few_shot_{shots}"


def shots_of(name: str) -> int | None:
    """Return of how many images a class a figure of that name is; None for another kind of figure."""
    match = re.fullmatch(r"validation/few_shot_(\d+)", name)
    return int(match[1]) if match else None


def readable(figures: dict[str, float]) -> str:
    """Return figures formatted for people, next to a bar; those without a format are left out."""
    formats = {name: f"{shots}-shot {{:.1%}}" for name in figures if (shots := shots_of(name))} | FIGURES
    return "  ".join(formats[name].format(value) for name, value in figures.items() if name in formats)


@dataclass
class _Task:
    """A task since it was first reported, which may be midway: a resumed run begins in the middle."""

    began: float
    first: int
    done: int
    shown: bool = False

    def time_left(self, event: Progress, now: float) -> str:
        """Return about how long the rest takes, at the pace seen so far; nothing while too little was seen."""
        seconds, done = now - self.began, event.done - self.first
        if done <= 0 or seconds < TELLING or event.done >= event.total:
            return ""
        remaining = seconds / done * (event.total - event.done)
        return f"{remaining / 60:.0f} min left" if remaining >= 100 else f"{remaining:.0f} s left"


def _task(tasks: dict[str, _Task], event: Progress, now: float) -> _Task:
    """Return an event's task; one that was further is over, such as a training that was given up before this one."""
    task = tasks.get(event.task)
    if task is None or event.done < task.done:
        task = tasks[event.task] = _Task(now, event.done, event.done)
    task.done = event.done
    return task


class PlainLines:
    """Writes messages at once, and a task's progress every 10 seconds at first, every 30 later.

    Args:
        stream: The stream to write to; None for the standard error of that moment.
        clock: The function that returns the seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self._began: float | None = None
        self._last = self._last_event = 0.0
        self._tasks: dict[str, _Task] = {}
        self._validation: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Write what is due of an event."""
        if isinstance(event, Message):
            if event.detail:
                return
            self._write(f"Warning: {event.text}" if event.warning else event.text)
        elif isinstance(event, Scalars):
            self._validation |= {name: value for name, value in event.values.items() if name.startswith("validation/")}
        else:
            self._advance(event)

    def _advance(self, event: Progress) -> None:
        now = self.clock()
        if self._began is None or now - self._last_event > PATIENCE:  # another job
            self._began = self._last = now
        self._last_event = now
        before, task = self._tasks.get(event.task), _task(self._tasks, event, now)
        if event.task == "train" and before is not None and task is not before:
            self._validation = {}  # another training has figures of its own
        finished = event.done >= event.total
        wait = OFTEN if now - self._began < PATIENCE else SELDOM
        if now - self._last >= wait or (finished and task.shown):
            figures = event.figures | (self._validation if event.task == "train" else {})
            parts = [f"{event.task} {event.done}/{event.total}", readable(figures), task.time_left(event, now)]
            self._write("  ".join(part for part in parts if part))
            self._last, task.shown = now, True
        if finished:
            del self._tasks[event.task]
            if event.task == "train":
                self._validation = {}

    def _write(self, line: str) -> None:
        print(printable(line), file=self.stream or sys.stderr, flush=True)


class NotebookBar:
    """Writes messages as lines, and progress as one line that is overwritten: a notebook shows it as a bar.

    Args:
        stream: The stream to write to; None for the standard output of that moment.
        clock: The function that returns the seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self._tasks: dict[str, _Task] = {}
        self._drawn = 0.0
        self._width = 0

    def __call__(self, event: Event) -> None:
        """Write an event."""
        if isinstance(event, Message):
            if event.detail:
                return
            self._write(f"Warning: {printable(event.text)}" if event.warning else printable(event.text), end="\n")
        elif isinstance(event, Progress):
            self._advance(event)

    def _advance(self, event: Progress) -> None:
        now = self.clock()
        task = _task(self._tasks, event, now)
        finished = event.done >= event.total
        if finished or now - self._drawn >= REDRAWN:
            filled = BAR * event.done // max(event.total, 1)
            bar = "█" * filled + "░" * (BAR - filled)
            parts = [
                f"{event.task} {bar} {event.done}/{event.total}",
                readable(event.figures),
                task.time_left(event, now),
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
    """Tell whether this runs in a notebook's kernel; IPython is asked if it is loaded, and never imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


_lines = PlainLines()
_bar = NotebookBar()


def show(event: Event) -> None:
    """Write an event where the user sees it: the default listener."""
    (_bar if in_notebook() else _lines)(event)
