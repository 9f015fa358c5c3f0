"""The shape of the house: how long its files and functions are, and that its modules depend on one another one way only."""

import ast
import functools
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import vitral
from tests.cases import every_case

PACKAGE = Path(vitral.__file__).parent
LONGEST_FILE, LONGEST_FUNCTION = 450, 60  # lines
MOST_IN_TRAINING = 12  # modules outside of its rooms
MOST_OF_A_NAME = 2  # modules
PROJECT = PACKAGE.parent
ROOTS = [PROJECT, *PROJECT.glob("packages/*")]  # of what is a package of its own
FILES = sorted(file for folder in (PACKAGE, *PROJECT.glob("packages/*/vitral_*/")) for file in folder.rglob("*.py"))


@functools.cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def named(file: Path) -> str:
    return str(file.relative_to(PROJECT))


def module(file: Path) -> str:
    root = next(folder for folder in reversed(ROOTS) if file.is_relative_to(folder))
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """Give every module of ours that is imported anywhere in a file, inside of functions, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in modules else node.module


@every_case("file", FILES, ids=named)
def test_files_and_functions_are_short(file: Path) -> None:
    assert file.read_text().count("\n") <= LONGEST_FILE
    functions = [node for node in ast.walk(tree(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 - documented(node) for node in functions}
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}


def documented(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function's docstring."""
    first = node.body[0]
    told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return (first.end_lineno or 0) - first.lineno + 1 if told else 0


def test_no_module_needs_one_that_needs_it() -> None:
    modules = {module(file) for file in FILES}
    needs = {module(file): set(imported(tree(file), modules)) - {module(file)} for file in FILES}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {' -> '.join(error.args[1])}")


def test_packages_beside_vitral_are_of_its_version() -> None:
    ours = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    for folder in ROOTS[1:]:
        theirs = tomllib.loads((folder / "pyproject.toml").read_text())
        assert theirs["project"]["version"] == vitral.__version__
        assert theirs["build-system"] == ours["build-system"]
        assert all(theirs["project"][name] == ours["project"][name] for name in ("license", "requires-python"))


def test_no_state_lives_in_a_module() -> None:
    assert not [named(file) for file in FILES if any(isinstance(node, ast.Global) for node in ast.walk(tree(file)))]


def test_training_is_in_rooms() -> None:
    modules = [file.name for file in (PACKAGE / "training").glob("*.py") if file.name != "__init__.py"]
    assert len(modules) <= MOST_IN_TRAINING, modules


def test_no_class_name_occurs_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{named(file)}:{node.lineno}")
    repeated = {name: lines for name, lines in places.items() if len(lines) > 1}
    assert not repeated, listed(f"{name}: {', '.join(lines)}" for name, lines in repeated.items())


def test_no_module_name_occurs_more_than_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in FILES:
        if file.name != "__init__.py":
            places[file.name].append(f"{named(file)}:1")
    repeated = {name: files for name, files in places.items() if len(files) > MOST_OF_A_NAME}
    assert not repeated, listed(f"{name}: {', '.join(files)}" for name, files in repeated.items())


def test_no_constants_are_packed_into_one_line() -> None:
    packed = [
        f"{named(file)}:{node.lineno}: {ast.unparse(node)}"
        for file in FILES
        for node in tree(file).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        if any(isinstance(target, ast.Tuple) for target in node.targets)
    ]
    assert not packed, listed(packed)


def listed(lines: Iterable[str]) -> str:
    """Return one line for each thing that is wrong."""
    return "\n".join(["", *sorted(lines)])
