"""Text in messages: advice in the words of whoever reads it, and text of unknown origin made safe to print.

A message written below the command line says "resume it by {argument('resume', True)}" and names a function by
{function('evaluate')}. A user of Python reads `resume=True` and `evaluate()`. A front end sets words of its own while it runs,
and its users read theirs. The words are chosen when a message is made, so no such message is made when a module is imported.

A file name may move a terminal's cursor or reverse the text direction; `printable` escapes what could.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# Control characters, line and paragraph separators, direction marks, and bytes that are not UTF-8.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
BYTES = range(0xDC80, 0xDD00)  # Python's characters for the bytes of a name that is not UTF-8

MARKDOWN = frozenset("\\`*_{}[]<>#|~&")  # characters with a meaning in Markdown anywhere in a line


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


def none_readable(images: int) -> str:
    """Return that none of so many images can be read, as the beginning of a sentence."""
    return "The only image cannot be read" if images == 1 else f"None of {images:,} images can be read"


def counted(number: int, noun: str, several: str = "") -> str:
    """Return a number with the noun that agrees with it: "1 image", "1,200 images", "2 classes" (`several`)."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def capital(text: str) -> str:
    """Return text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return text with everything unsafe written as an escape, such as \x1b.

    Args:
        text: The text, of any origin.
        lines: Whether newlines and tabs stay, as in a document; otherwise they are escaped, too.
    """

    def escape(match: re.Match[str]) -> str:
        if lines and match[0] in "\n\t":
            return match[0]
        code = ord(match[0])
        code -= 0xDC00 if code in BYTES else 0
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return UNSAFE.sub(escape, text)


def in_markdown(text: str) -> str:
    """Return text as a line of Markdown that shows it unchanged, without mark-up, HTML or links."""
    line = " ".join(text.split("\n"))
    return "".join(f"\\{letter}" if letter in MARKDOWN else letter for letter in line)


def printable_json(text: str) -> str:
    """Return JSON with everything unsafe in its strings escaped; a program still reads the same values."""
    return UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)
