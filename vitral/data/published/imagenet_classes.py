"""ImageNet's 1,000 classes in their official order, by WordNet's numbers, and as the classifiers of others name them.

The list is that of Apache-2.0 sources (timm's synsets and lemmas). The official order is that of the numbers.
"""

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

from vitral.data.names import NAMED
from vitral.errors import DataError

COUNT = 1000
# Names in the official order that a classifier of that order shares at least: sources spell a few differently, and hardly any
# would agree in another order.
ALIKE = 900


@cache
def synsets() -> tuple[str, ...]:
    """Return WordNet's numbers in the official order, such as "n01440764"."""
    return tuple(number for number, _ in _rows())


@cache
def _rows() -> tuple[tuple[str, str], ...]:
    text = Path(__file__).with_name("imagenet_classes.txt").read_text(encoding="utf-8")
    rows = (line.partition("\t") for line in text.splitlines())
    return tuple((number, names) for number, _, names in rows)


def in_words_of(wanted: Collection[str] | None) -> tuple[str, ...]:
    """Return ImageNet's classes in the official order, by a classifier's names for them, or else by WordNet's numbers.

    Raises:
        DataError: it is a classifier of something else.
    """
    known = list(wanted or ())
    if not known or set(known) & set(synsets()):
        return synsets()
    if len(known) == COUNT and (_numbered(known) or _named(known)):
        return tuple(known)
    official = ", ".join(names.split(",")[0] for _, names in _rows()[:NAMED])
    raise DataError(
        f"The classifier's classes are not ImageNet's {COUNT:,} in their order: it has {', '.join(known[:NAMED])}, … "
        f"({len(known):,} in all), ImageNet has {official}, …"
    )


def translated(
    names: Collection[str], declared: Sequence[str] | None, wanted: Collection[str] | None
) -> dict[str, str]:
    """Return what a classifier calls ImageNet's classes that data call otherwise; nothing where they are not ImageNet's."""
    if wanted is None or not names or set(names) <= set(wanted):
        return {}
    official = synsets() if set(names) <= set(synsets()) else tuple(declared or ())
    # Names are not unique: "crane" is a bird and a machine.
    if official != synsets() and (len(set(official)) != COUNT or len(official) != COUNT or not _named(official)):
        return {}
    try:
        return dict(zip(official, in_words_of(wanted), strict=True))
    except DataError:  # a classifier of something else; comparing the names reports it
        return {}


def _numbered(known: Sequence[str]) -> bool:
    """Tell whether a classifier's weights came without names."""
    return all(name in (str(index), f"class {index}") for index, name in enumerate(known))


def _named(known: Sequence[str]) -> bool:
    pairs = zip(known, _rows(), strict=True)
    return sum(_plain(name) in {_plain(names), _plain(names.split(",")[0])} for name, (_, names) in pairs) >= ALIKE


def _plain(name: str) -> str:
    """Return a name without what differs between sources: case, underscores, the index after one that two classes have."""
    return name.split(" (")[0].replace("_", " ").casefold().strip()
