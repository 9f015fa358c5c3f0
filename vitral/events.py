"""Events of a long job, reported to a listener; the command line draws them, a program may collect them.

A job takes one `Listener` and calls it with the events below. It never prints; the default, `vitral.progress.show`, does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """A line for the user.

    Attributes:
        text: The line.
        warning: Whether something may be wrong.
        verdict: Whether the line judges the job's result; a command prints such lines itself at the end.
    """

    text: str
    warning: bool = False
    verdict: bool = False


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
