"""What happens during a long job, told to whoever listens; the command line draws it, a program may collect it.

A job takes one `Listener` and calls it with the events below. It never prints; `vitral.progress` does, for who passes none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """One line for the user.

    Attributes:
        text: the line.
        warning: whether something may be wrong.
        verdict: whether it is of the result that the job returns, which a command prints itself when all is done.
    """

    text: str
    warning: bool = False
    verdict: bool = False


@dataclass(frozen=True)
class Progress:
    """How far a named task has come.

    Attributes:
        task: its name, shown to the user ("fine-tune", "evaluate").
        done: units finished.
        total: units in all; equal to `done` when the task ends.
        figures: what to show beside the bar, such as loss, accuracy and images/s.
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
    """Listen to nothing."""
