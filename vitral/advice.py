"""Advice in messages, in the words of whoever reads it: Python's arguments and functions, or the command line's flags.

A message written below the command line says "resume it by {argument('resume', True)}" and names a function by
{function('evaluate')}. A user of Python reads `resume=True` and `evaluate()`. A front end sets words of its own while it runs,
and its users read theirs. The words are chosen when a message is made, so no such message is made when a module is imported.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """How a front end names what its users can type.

    Attributes:
        argument: The function that names an argument, given its name and a proposed value or None.
        function: The function that names a function.
        call: The function that names a whole call, given the call in Python.
    """

    argument: Callable[[str, object], str]
    function: Callable[[str], str]
    call: Callable[[str], str]


PYTHON = Words(
    argument=lambda name, value: f"`{name}`" if value is None else f"`{name}={value!r}`",
    function=lambda name: f"`{name}()`",
    call=lambda text: f"`{text}`",
)
_WORDS: ContextVar[Words] = ContextVar("words", default=PYTHON)


@contextmanager
def in_words(words: Words) -> Iterator[None]:
    """Write messages in the words of a front end."""
    token = _WORDS.set(words)
    try:
        yield
    finally:
        _WORDS.reset(token)


def argument(name: str, value: object = None) -> str:
    """Return an argument as messages name it, with a proposed value if there is one."""
    return _WORDS.get().argument(name, value)


def function(name: str) -> str:
    """Return a function as messages name it."""
    return _WORDS.get().function(name)


def call(text: str) -> str:
    """Return a call as messages name it, from what one would type in Python."""
    return _WORDS.get().call(text)
