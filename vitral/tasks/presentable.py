"""What results have in common: they present themselves as lines and tables to people, and as JSON values to programs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from vitral.tasks.shown import Table

Item = TypeVar("Item")


class Presentable:
    """A result that presents itself; its subclasses are dataclasses, with `repr=False` where one sentence says it all."""

    def sentence(self) -> str:
        """Return the result in one sentence."""
        return self.lines()[0]

    def lines(self) -> tuple[str, ...]:
        """Return the lines above the tables, what matters most first."""
        return ()

    def tables(self) -> tuple[Table, ...]:
        """Return the tables."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return every field as JSON values."""
        return asdict(self)  # type: ignore[call-overload]  # it is a dataclass

    def __repr__(self) -> str:
        """Return the result in one line."""
        return f"{type(self).__name__}: {self.sentence()}"


def table_of(
    title: str, rows: Iterable[Item], columns: Sequence[tuple[str, Callable[[Item], str]]], *, note: str = ""
) -> Table:
    """Return a table with a row for each of several things.

    Args:
        title: The title above the table.
        rows: The things, one per row.
        columns: The heading of each column, and what gives the texts of its cells; the first column holds names.
        note: The note below the table.
    """
    cells = tuple(tuple(text(row) for _, text in columns) for row in rows)
    return Table(title, tuple(heading for heading, _ in columns), cells, note=note)


def range_text(ends: tuple[float, float], digits: int = 2) -> str:
    """Return an interval of shares, 0 to 1, in per cent."""
    return f"{ends[0]:.{digits}%} to {ends[1]:.{digits}%}"
