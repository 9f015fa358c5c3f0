"""What a result asks a reader to be shown: figures, tables and drawings as plain values; the report alone draws."""

from collections.abc import Sequence
from dataclasses import dataclass

NO_VALUE = "–"
THIN_SPACE = "\u202f"  # unbroken, between a number and its percent sign
SURE_OF_HUNDREDTHS = 2000  # images from which on the second decimal of a percentage is meaningful
MOST_ROWS = 300  # of a table of classes: thousands would swell the page, and the worst come first


@dataclass(frozen=True)
class Tile:
    """A figure that stands large on a page, as it is to be read, with lines that describe it."""

    value: str
    caption: tuple[str, ...]


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


def images_of(split: str) -> str:
    """Return what the images of a split are called: "test images", "training images"; "images" where none is named."""
    return f"{'training' if split == 'train' else split} images".lstrip()


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage for people; a dash for what is not known."""
    if share is None or share != share:  # not a number
        return NO_VALUE
    return f"{100 * share:.{digits}f}{THIN_SPACE}%"


def fitting_digits(images: int) -> int:
    """Return how many decimals of a percentage so many images can tell."""
    return 2 if images >= SURE_OF_HUNDREDTHS else 1


def worst_first(scores: Sequence[float | None], support: Sequence[int]) -> list[int]:
    """Return the indices of the classes to list: the lowest score first, of equal ones the largest class, at most 300.

    Classes without images, which have no score, come last.
    """
    known = [2.0 if score is None else score for score in scores]
    return sorted(range(len(scores)), key=lambda index: (known[index], -support[index], index))[:MOST_ROWS]
