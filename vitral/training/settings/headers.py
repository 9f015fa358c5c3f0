"""The headers of recipes: the command, the expected result, the run time, the source."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

PACKAGE = "vitral.recipes"
LABELS = {"Command": "command", "Expected": "expected", "Run time": "run_time", "Source": "source"}
LINE = re.compile(rf"#\s*({'|'.join(LABELS)})\s+(.*)")


@dataclass(frozen=True)
class Header:
    """A recipe as its own comment lines describe it.

    Attributes:
        name: The recipe's name.
        title: A sentence that names what the recipe trains.
        command: The command line that runs it.
        expected: The expected result.
        run_time: The run time, with the hardware.
        source: The source of its settings.
    """

    name: str
    title: str
    command: str
    expected: str
    run_time: str
    source: str

    def mentions(self, word: str) -> bool:
        """Tell whether the header contains a word; case, hyphens and spaces do not count: CIFAR-100 is cifar100."""
        return any(_plain(word) in _plain(getattr(self, field.name)) for field in fields(self))


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def list_recipes() -> list[str]:
    """Return the names of the recipes that come with Vitral."""
    entries = resources.files(PACKAGE).iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml"))


def recipe_text(name: str) -> str:
    """Return the file of a recipe that comes with Vitral."""
    return (resources.files(PACKAGE) / f"{name}.toml").read_text(encoding="utf-8")


def set_keys() -> list[str]:
    """Return the keys that recipes set, dotted, each once: most settings, without the seconds of importing all."""
    return list(dict.fromkeys(key for name in list_recipes() for key in _leaves(tomllib.loads(recipe_text(name)))))


def _leaves(tree: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, value in tree.items():
        yield from _leaves(value, f"{before}{name}.") if isinstance(value, Mapping) else [f"{before}{name}"]


def list_headers() -> list[Header]:
    """Return the headers of all recipes that come with Vitral, by name."""
    return [parse_header(name, recipe_text(name)) for name in list_recipes()]


def parse_header(name: str, text: str) -> Header:
    """Return the header of a recipe's text; a label's text may continue on indented lines."""
    values: dict[str, str] = {}
    title: list[str] = []
    label = ""
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if match := LINE.match(line):
            label = LABELS[match[1]]
            values[label] = match[2].strip()
        elif label:
            values[label] += f" {line.lstrip('#').strip()}"
        elif line.lstrip("#").strip():
            title.append(line.lstrip("#").strip())
    return Header(name=name, title=" ".join(title), **{field: values.get(field, "") for field in LABELS.values()})
