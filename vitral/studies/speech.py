"""The words of a report: Python's, unless a front end gives its own."""

from collections.abc import Callable
from dataclasses import dataclass

from vitral.training.planning.request import Asked
from vitral.training.result import RunResult


@dataclass(frozen=True)
class Speech:
    """The words for what a user could do.

    Attributes:
        text: Returns a message with its arguments and functions in these words; see `vitral.advice`.
        ask: Returns the call or command that makes a run.
        again: Returns the call or command that made a finished run, and the one that runs its recipe again.
    """

    text: Callable[[str], str]
    ask: Callable[[Asked], str]
    again: Callable[[RunResult], str]


PYTHON = Speech(text=str, ask=Asked.call, again=lambda result: result.run.session.command.call())
