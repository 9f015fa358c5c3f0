"""What a result shows: figures, tables and drawings as plain values, lines for people, JSON values for programs.

The report alone draws.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

NO_VALUE = "–"
COUNTED = 1000  # photos, below which how many are right says more than a percentage
SURE_OF_HUNDREDTHS = 2000  # images from which on the second decimal of a percentage is meaningful
MOST_ROWS = 300  # of a table of classes: thousands would swell the page, and the worst come first
Item = TypeVar("Item")
Cell = Callable[[int], str]  # of a class, by its index


@dataclass(frozen=True)
class Tile:
    """A figure that stands large on a page, as it is to be read, with lines that describe it."""

    value: str
    caption: tuple[str, ...]


@dataclass(frozen=True)
class AnswerCounts:
    """How many images came out how.

    Attributes:
        right: The images whose answer is right.
        wrong: The others.
        unsure_right: Those of the right ones whose answer has less than half of the probability.
        unsure_wrong: Those of the wrong ones, likewise.
    """

    right: int
    wrong: int
    unsure_right: int = 0
    unsure_wrong: int = 0


@dataclass(frozen=True)
class Table:
    """A table whose rows begin with a name.

    Attributes:
        title: The text above the table; may be empty.
        columns: The headings of the columns.
        rows: The rows of texts, one a column; the first is a name.
        names: The number of the first columns that hold names; the others hold numbers.
        note: The text below the table, such as what was left out; may be empty.
        foldable: Whether a page may fold the table away where it is long.
        examples: The positions in the split of images that show what each row says; empty for no images.
        examples_title: The heading of those images.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    note: str = ""
    foldable: bool = False
    examples: tuple[tuple[int, ...], ...] = ()
    examples_title: str = ""


@dataclass(frozen=True)
class ConfusionMatrix:
    """Which classes are taken for which.

    Attributes:
        cells: The cells that are not empty: true class, predicted class, images.
        support: The number of images of each class.
        recall: The share of each class's images that is right; None for a class without images.
    """

    class_names: tuple[str, ...]
    cells: tuple[tuple[int, int, int], ...]
    support: tuple[int, ...]
    recall: tuple[float | None, ...]


@dataclass(frozen=True)
class ReliabilityBin:
    """The images whose top probability is above `low` and at most `high`.

    Attributes:
        low: The lower bound of the bin, 0 to 1, excluded except in the first bin.
        high: The upper bound of the bin, 0 to 1, included.
        confidence: The mean top probability of the images; None in an empty bin.
        accuracy: The fraction of the images that is right; None in an empty bin.
    """

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Whether probabilities mean what they say, by bins of the top probability."""

    bins: tuple[ReliabilityBin, ...]


Drawing = ConfusionMatrix | ReliabilityDiagram


def images_of(split: str, count: int = 2) -> str:
    """Return what so many images of a split are called: "test photos", "1 training photo" without the number."""
    return f"{'training' if split == 'train' else split} {'photo' if count == 1 else 'photos'}".lstrip()


def photos_of(split: str, count: int) -> str:
    """Return so many images of a split with their number: "1,200 test photos", "1 training photo"."""
    return f"{count:,} {images_of(split, count)}"


def how_many(share: float, images: int) -> str:
    """Return a share of so many images as people count it: "8" of 26 images; from 1,000 on the share, "91.2%"."""
    return f"{round(share * images):,}" if images < COUNTED else f"{share:.{fitting_digits(images)}%}"


def right_of(share: float, images: int, split: str) -> str:
    """Return how many images of a split are right: "8 of 26 test photos right"; from 1,000 on the share, "91.2% of ..."."""
    return f"{how_many(share, images)} of {photos_of(split, images)} right"


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage for people; a dash for what is not known."""
    if share is None or share != share:  # not a number
        return NO_VALUE
    return f"{share:.{digits}%}"


def number_text(value: float | None, form: str = ",") -> str:
    """Return a number in a format for people; a dash for what is not known."""
    return NO_VALUE if value is None else format(value, form)


def fitting_digits(images: int) -> int:
    """Return how many decimals of a percentage so many images can tell."""
    return 2 if images >= SURE_OF_HUNDREDTHS else 1


def worst_first(scores: Sequence[float | None], support: Sequence[int], *, before: Sequence[int] = ()) -> list[int]:
    """Return the indices of the classes to list: the lowest score first, of equal ones the largest class, at most 300.

    Classes without images, which have no score, come last. Those in `before` come first, in their order.
    """
    known = [2.0 if score is None else score for score in scores]
    others = sorted(set(range(len(scores))) - {*before}, key=lambda index: (known[index], -support[index], index))
    return [*before, *others][:MOST_ROWS]


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

    A column is its heading, and what gives the text of its cell; the first one holds names.
    """
    cells = tuple(tuple(text(row) for _, text in columns) for row in rows)
    return Table(title, tuple(heading for heading, _ in columns), cells, note=note)


def class_table(
    names: tuple[str, Sequence[str]],
    scores: Sequence[float | None],
    support: Sequence[int],
    columns: Sequence[tuple[str, Cell]],
    *,
    title: str = "",
    before: Sequence[int] = (),
) -> Table:
    """Return a table of classes in the order of `worst_first`, with the heading of their names and the names."""
    heading, named = names
    listed = worst_first(scores, support, before=before)
    title = title or f"Every {heading.lower()}, the worst first"
    table = table_of(title, listed, [(heading, named.__getitem__), *columns], note=left_out(len(named) - len(listed)))
    return replace(table, foldable=True)


def left_out(count: int) -> str:
    """Return what stands below a table of classes of which some have no room; nothing if all are there."""
    return f"and {count:,} better ones, in the JSON output." if count else ""


def shares(values: Sequence[float | None]) -> Cell:
    """Return the cells of a column of shares, 0 to 1."""
    return lambda index: percent(values[index])


def numbers(values: Sequence[int]) -> Cell:
    """Return the cells of a column of numbers."""
    return lambda index: f"{values[index]:,}"


def range_text(ends: tuple[float, float], digits: int = 2) -> str:
    """Return an interval of shares, 0 to 1, in per cent."""
    return f"{ends[0]:.{digits}%} to {ends[1]:.{digits}%}"
