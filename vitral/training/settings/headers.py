"""What each recipe's header says: its command, what to expect of it, how long it takes, where it is from."""

import re
from dataclasses import dataclass, fields
from importlib import resources

from vitral.training.settings.recipe import PACKAGE, list_recipes

LABELS = {"Command": "command", "Expected": "expected", "Run time": "run_time", "Source": "source"}
LINE = re.compile(rf"#\s*({'|'.join(LABELS)})\s+(.*)")


@dataclass(frozen=True)
class Header:
    """A recipe as its own comment lines describe it.

    Attributes:
        name: by which it is asked for.
        title: what it trains, one sentence.
        command: the command line that runs it.
        expected: the result to expect.
        run_time: how long it takes, and on what.
        source: where its settings are from.
    """

    name: str
    title: str
    command: str
    expected: str
    run_time: str
    source: str

    def mentions(self, word: str) -> bool:
        """Tell whether any of it holds a word, whatever its case, hyphens and spaces: CIFAR-100 is cifar100."""
        return any(_plain(word) in _plain(getattr(self, field.name)) for field in fields(self))


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def list_headers() -> list[Header]:
    """Return the headers of all recipes that come with Vitral, by name."""
    return [parse_header(name, recipe_text(name)) for name in list_recipes()]


def recipe_text(name: str) -> str:
    """Return the file of a recipe that comes with Vitral."""
    return (resources.files(PACKAGE) / f"{name}.toml").read_text(encoding="utf-8")


def parse_header(name: str, text: str) -> Header:
    """Return what the comment lines at the head of a recipe say; a label's text may continue in indented lines."""
    said: dict[str, str] = {}
    title: list[str] = []
    label = ""
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if match := LINE.match(line):
            label = LABELS[match[1]]
            said[label] = match[2].strip()
        elif label:
            said[label] += f" {line.lstrip('#').strip()}"
        elif line.lstrip("#").strip():
            title.append(line.lstrip("#").strip())
    return Header(name=name, title=" ".join(title), **{field: said.get(field, "") for field in LABELS.values()})
