"""In whose words a report speaks: Python's, unless a front end gives its own."""

from collections.abc import Callable
from dataclasses import dataclass

from vitral.training.request import Request
from vitral.training.result import RunResult


@dataclass(frozen=True)
class Speech:
    """The words for what a user could do.

    Attributes:
        ask: what one would type to ask for a run.
        again: what one would type to ask for a run that is finished, and to run its recipe again.
    """

    ask: Callable[[Request], str]
    again: Callable[[RunResult], str]


PYTHON = Speech(ask=Request.call, again=lambda result: result.run.session.command.call())
