"""Write the site's reference from the code while mkdocs builds it: every command, every recipe key, every call of Python."""

import contextlib
import dataclasses
import io
import os
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from unittest import mock

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

import vitral
from vitral.cli.commands import COMMANDS
from vitral.cli.main import main
from vitral.training.settings.methods import METHODS, section_of
from vitral.training.settings.recipe import Recipe

COLUMNS = 100  # of a command's help
BOUNDS = {"gt": "above {}", "ge": "at least {}", "lt": "below {}", "le": "at most {}"}
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "nothing"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference to those that lie in docs/; mkdocs calls this."""
    pages = {"commands": commands_page, "recipe": recipe_page, "python": python_page}
    for name, page in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files


def commands_page() -> str:
    """Return every command with its help, as a terminal shows it."""
    parts = ["# Commands", "As `vitral COMMAND --help` says. Every command that gives figures has `--json`.", _help()]
    for name in COMMANDS:
        parts += [f"## vitral {name}", _help(name)]
    return "\n\n".join(parts)


def _help(*command: str) -> str:
    out = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS=str(COLUMNS)), contextlib.redirect_stdout(out):
        main([*command, "--help"])
    return f"```text\n{out.getvalue().strip()}\n```"


def recipe_page() -> str:
    """Return every key of a recipe with its type, default and meaning."""
    head = (
        "# Recipe keys",
        "A recipe is a TOML file; every run writes its own, `recipe.toml`. `--set KEY=VALUE` changes a key of any recipe, "
        "such as `--set optimizer.lr=0.003`; `vitral recipes` lists those that come with Vitral.",
    )
    sections = [*_sections("", Recipe)]
    for name in METHODS:
        sections.append(_section(f"method, of {name}", "method.", section_of(name)))
    return "\n\n".join([*head, *(text for text in sections if text)])


def _sections(prefix: str, kind: type) -> Iterator[str]:
    """Give the table of a section, then those of the sections in it."""
    inner = {name: part for name, hint in _hints(kind).items() if (part := _section_in(hint)) is not None}
    yield _section(prefix.rstrip(".") or "At the top", prefix, kind, inner)
    for name, part in inner.items():
        if name != "method":  # which has a section for each method
            yield from _sections(f"{prefix}{name}.", part)


def _section(title: str, prefix: str, kind: type, inner: Collection[str] = ()) -> str:
    defaults, meanings = _defaults(kind), _meanings(kind)
    rows = [
        f"| `{prefix}{name}` | {_typed(hint)} | {_value(defaults[name])} | {_cell(meanings[name])} |"
        for name, hint in _hints(kind).items()
        if name not in inner
    ]
    about = (kind.__doc__ or "").split("\n\n")[0]
    table = ["| key | value | default | meaning |", "|---|---|---|---|", *rows]
    return "\n\n".join([f"## {title}", _cell(about), "\n".join(table)])


def _hints(kind: type) -> Mapping[str, Any]:
    if not issubclass(kind, BaseModel):
        return get_type_hints(kind, include_extras=True)
    fields = kind.model_fields.items()
    return {name: Annotated[field.annotation, "a field", *field.metadata] for name, field in fields}


def _section_in(hint: Any) -> type | None:  # noqa: ANN401  # a type
    """Return the section that a key holds, or None if it holds a value."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)]
    return next((kind for kind in kinds if dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel)), None)


def _defaults(kind: type) -> dict[str, Any]:
    if issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        return {name: field.get_default(call_default_factory=True, validated_data={}) for name, field in fields}
    return {field.name: field.default for field in dataclasses.fields(kind)}


def _meanings(kind: type) -> dict[str, str]:
    """Return what the docstrings of a class and of those above it say of its attributes."""
    meanings: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        for section in griffe.Docstring(owner.__doc__ or "").parse("google", warnings=False):
            if section.kind is griffe.DocstringSectionKind.attributes:
                meanings |= {attribute.name: attribute.description for attribute in section.value}
    return meanings


def _typed(hint: Any) -> str:  # noqa: ANN401  # a type
    """Return a type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [
            words.format(f"{getattr(mark, name):g}")
            for mark in arguments[1:]
            for name, words in BOUNDS.items()
            if getattr(mark, name, None) is not None
        ]
        return " ".join([_typed(arguments[0]), ", ".join(bounds)]).strip()
    if origin is Literal:
        return ", ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_typed(kind) for kind in arguments if kind is not type(None))
    if origin in (tuple, list):
        return f"list: {', '.join(dict.fromkeys(_typed(kind) for kind in arguments if kind is not Ellipsis))}"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _value(value: Any) -> str:  # noqa: ANN401  # of any setting
    if value is None:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def python_page() -> str:
    """Return every public call of Python, drawn by mkdocstrings from its docstring."""
    parts = ["# Python", "What `import vitral` gives. A module is imported when something of it is first used."]
    for name in sorted(vitral.__all__, key=str.lower):
        home, _, attribute = vitral._HOMES[name].partition(":")
        target = f"{home}.{attribute or name}"
        parts.append(f"::: {target}\n    options:\n      heading: vitral.{name}\n      show_root_heading: true")
    return "\n\n".join(parts)
