"""The pages that users read, and the commands and programs in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w+-]*)(?P<rest>[^\n]*)\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
INLINE = re.compile(r"(?<!`)`(vitral [a-z]+ [^`]*[/.][^`]*)`(?!`)")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|…")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: Its page, relative to the repository.
        line: The line of its fence, from 1.
        language: "sh", "python", or what else the fence says.
        text: What is between the fences.
        needs: What it needs that a test does not have, such as "a network"; None for a block that is run.
        exits: The exit status of its last command.
        heading: The heading above it.
    """

    page: str
    line: int
    language: str
    text: str
    needs: str | None
    exits: int
    heading: str

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the README and the pages of the site that people write; those of studies are written by the studies."""
    written = [
        path for path in (ROOT / "docs").rglob("*.md") if path.name != "page.md" and "node_modules" not in path.parts
    ]
    return [ROOT / "README.md", *sorted(written)]


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = path.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        marks = dict(ATTRIBUTE.findall(match["rest"]))
        before = text[: match.start()]
        headings = re.findall(r"^#+ (.*)$", FENCE.sub("", before), re.MULTILINE)
        found.append(
            Block(
                page=path.relative_to(ROOT).as_posix(),
                line=before.count("\n") + 1,
                language=match["language"],
                text=match["text"],
                needs=marks.get("needs"),
                exits=int(marks.get("exits", 0)),
                heading=headings[-1] if headings else "",
            )
        )
    return found


def commands(text: str) -> Iterator[list[str]]:
    """Give the words of each command line of a block, without comments."""
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def inline_commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Give the whole commands of Vitral in a page's prose and tables: those that name a file or folder and no placeholder."""
    prose = FENCE.sub("", path.read_text(encoding="utf-8"))
    for command in INLINE.findall(prose):
        if not PLACEHOLDER.search(command):
            yield path.relative_to(ROOT).as_posix(), shlex.split(command)
