"""Tables as Markdown, and a result's two files: JSON for programs, Markdown for people."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from vitral.files import write_file
from vitral.printable import printable, printable_json


class Written(Protocol):
    """A result that is written as JSON and as Markdown."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        ...

    def markdown(self) -> str:
        """Return what people read."""
        ...


def write_result(result: Written, folder: Path, *, json_file: str, table_file: str) -> None:
    """Write a result as JSON and as Markdown.

    Raises:
        StorageError: a file cannot be written.
    """
    text = json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    write_file(folder / json_file, printable_json(text))
    write_file(folder / table_file, printable(result.markdown(), lines=True))


def markdown_lines(heading: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table in Markdown; columns after the first are right-aligned.

    Args:
        heading: the columns' names.
        rows: cells.
        texts: the names of further columns that are left-aligned.
    """
    rule = ["---" if index == 0 or name in texts else "---:" for index, name in enumerate(heading)]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (heading, rule, *rows)]
