"""The words of a report: Python's, unless a front end gives its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vitral.training.candidates.result import RunResult
from vitral.training.request import Request


@dataclass(frozen=True)
class Speech:
    """The calls or commands that make a run, that made a finished one or run its recipe again, and that one wants next.

    The next ones have each its purpose in a sentence; Python has none of them.
    """

    ask: Callable[[Request], str]
    again: Callable[[RunResult], str]
    following: Callable[[RunResult], Sequence[tuple[str, str]]]


PYTHON = Speech(ask=Request.call, again=lambda result: result.run.command.call(), following=lambda _: ())
