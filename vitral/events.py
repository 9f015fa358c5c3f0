"""What happens during a long job, reported to a listener; the command line draws it, a program may collect it.

A job takes one `Listener` and calls it with the events below. It never prints; `vitral.progress.show`, the default
listener, does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """One line for the user.

    Attributes:
        text: the line.
        warning: whether something may be wrong.
        verdict: whether it judges the result that the job returns, which a command prints itself at the end.
    """

    text: str
    warning: bool = False
    verdict: bool = False


@dataclass(frozen=True)
class Progress:
    """The progress of a named task.

    Attributes:
        task: its name, shown to the user ("fine-tune", "evaluate").
        done: units finished.
        total: all units; equal to `done` when the task ends.
        figures: what to show next to the bar, such as loss, accuracy and images/s.
    """

    task: str
    done: int
    total: int
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scalars:
    """Figures measured at one optimizer step, for a log."""

    step: int
    values: dict[str, float]


Event = Message | Progress | Scalars
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Ignore every event."""
