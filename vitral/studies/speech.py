"""The words of a report: Python's, unless a front end gives its own."""

from collections.abc import Callable
from dataclasses import dataclass

from vitral.training.candidates.result import RunResult
from vitral.training.request import Request


@dataclass(frozen=True)
class Speech:
    """The calls or commands that make a run, and that made a finished one or run its recipe again."""

    ask: Callable[[Request], str]
    again: Callable[[RunResult], str]


PYTHON = Speech(ask=Request.call, again=lambda result: result.run.command.call())
