"""Takes from the fences of code what only the tests read (`needs`, `exits`): with it the site would show them as text."""

import re

MARKS = re.compile(r'^( *```\w+)(?: (?:needs|exits)="[^"\n]*")+ *$', re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page without the marks."""
    return MARKS.sub(r"\1", markdown)
