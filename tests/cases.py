"""A table of cases as one test, which goes through all of them and names every case that fails."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

LONGEST_LABEL = 60  # characters
LONGEST_ERROR = 8  # lines


class CasesFail(AssertionError):
    """Some of the cases of a test fail.

    Args:
        failures: The name of each failing case, and its error.
        total: How many cases there are.
    """

    def __init__(self, failures: Sequence[tuple[str, BaseException]], total: int) -> None:
        self.failures, self.total = failures, total
        super().__init__("\n".join([f"{len(failures)} of {total} cases fail:", *map(_described, failures)]))


def every_case(
    names: str | tuple[str, ...],
    cases: Iterable[Any],
    ids: Iterable[str] | Callable[[Any], str] | None = None,
) -> Callable[[Any], Any]:
    """Make a test, or every test of a class, go through all cases; written like pytest.mark.parametrize, and stacks like it.

    It is for tables of many quick cases. Every case has its own tmp_path and monkeypatch; all other fixtures are shared.
    Tests that change one of those, or that take seconds per case, stay with pytest.mark.parametrize.

    Args:
        names: The test's argument that takes a case, or a tuple of arguments.
        cases: A value for each case, or a tuple of values.
        ids: What to call the cases; by default their values.

    Returns:
        The decorator.
    """
    arguments = (names,) if isinstance(names, str) else names
    table = [(case,) if isinstance(names, str) else tuple(case) for case in cases]
    labels = [_label(values, ids) for values in table] if ids is None or callable(ids) else list(ids)
    named = [(label, dict(zip(arguments, values, strict=True))) for label, values in zip(labels, table, strict=True)]
    assert named, "there are no cases"

    def decorate(test: Any) -> Any:  # noqa: ANN401  # a function, or a class
        if isinstance(test, type):
            for name, method in list(vars(test).items()):
                if name.startswith("test"):
                    setattr(test, name, decorate(method))
            return test

        @functools.wraps(test)
        def check(*owner: object, **fixtures: Any) -> None:  # noqa: ANN401  # whatever pytest gives
            failures: list[tuple[str, BaseException]] = []
            skipped: list[BaseException] = []
            for label, values in named:
                try:
                    with _fresh(fixtures) as given:
                        test(*owner, **given, **values)
                except CasesFail as error:
                    failures += [(f"{label}-{inner}", cause) for inner, cause in error.failures]
                except pytest.skip.Exception as error:
                    skipped.append(error)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append((label, error))
            if failures:
                raise CasesFail(failures, len(named)) from failures[0][1]
            if len(skipped) == len(named):
                raise skipped[0]

        check.__signature__ = _without(test, arguments)  # type: ignore[attr-defined]  # where pytest looks for fixtures
        return check

    return decorate


def _without(test: Callable[..., None], arguments: Collection[str]) -> inspect.Signature:
    """Return the signature that is left for fixtures."""
    signature = inspect.signature(test)
    missing = set(arguments) - set(signature.parameters)
    assert not missing, f"{test.__name__} takes no {sorted(missing)}"
    return signature.replace(parameters=[p for name, p in signature.parameters.items() if name not in arguments])


def _label(values: tuple[object, ...], ids: Callable[[Any], str] | None) -> str:
    texts = (ids(value) if ids else str(value) if isinstance(value, str | Path) else repr(value) for value in values)
    return "-".join(text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…" for text in texts)


def _described(failure: tuple[str, BaseException]) -> str:
    label, error = failure
    lines = f"{type(error).__name__}: {error}".splitlines()
    more = [f"… {len(lines) - LONGEST_ERROR} more lines"] if len(lines) > LONGEST_ERROR else []
    return f"  {label}: " + "\n      ".join([*lines[:LONGEST_ERROR], *more])


@contextlib.contextmanager
def _fresh(fixtures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give a case its own folder and its own patches."""
    given = dict(fixtures)
    with contextlib.ExitStack() as stack:
        if "tmp_path" in given:
            given["tmp_path"] = _folder(given["tmp_path"])
        if "monkeypatch" in given:
            given["monkeypatch"] = stack.enter_context(given["monkeypatch"].context())
        yield given


def _folder(parent: Path) -> Path:
    folder = parent / f"case-{len(list(parent.glob('case-*')))}"
    folder.mkdir()
    return folder
