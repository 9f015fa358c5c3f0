"""Text of unknown origin made safe to show: a file name may move a terminal's cursor or reverse the text direction."""

import re

# Control characters, line and paragraph separators, direction marks, and bytes that are not UTF-8.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
BYTES = range(0xDC80, 0xDD00)  # how Python represents the bytes of a name that is not UTF-8

MARKDOWN = frozenset("\\`*_{}[]<>#|~&")  # what means something to Markdown anywhere in a line


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return text with everything unsafe written as an escape, such as \x1b.

    Args:
        text: of any origin.
        lines: whether it may have several lines and tabs, as a document does; otherwise these are escaped too.
    """

    def escape(match: re.Match[str]) -> str:
        if lines and match[0] in "\n\t":
            return match[0]
        code = ord(match[0])
        code -= 0xDC00 if code in BYTES else 0
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return UNSAFE.sub(escape, text)


def in_markdown(text: str) -> str:
    """Return text as one line of Markdown that shows it as it is: no mark-up, no HTML, no link."""
    line = " ".join(text.split("\n"))
    return "".join(f"\\{letter}" if letter in MARKDOWN else letter for letter in line)


def printable_json(text: str) -> str:
    """Return JSON with everything unsafe in its strings escaped; a program reads the same values from it."""
    return UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)
