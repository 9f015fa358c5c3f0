"""Text of unknown origin made safe to print, because a file name may move a terminal's cursor or reverse the text direction."""

import re

# Control characters, line and paragraph separators, direction marks, and bytes that are not UTF-8.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
BYTES = range(0xDC80, 0xDD00)  # Python's characters for the bytes of a name that is not UTF-8

MARKDOWN = frozenset("\\`*_{}[]<>#|~&")  # characters with a meaning in Markdown anywhere in a line


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
