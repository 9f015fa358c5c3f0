"""The columns of a table, or files of a shard's examples, that hold images and classes: columns:image=NAME,label=NAME:SOURCE.

A reader finds them by names and types. Where several could be meant, the name of the data chooses.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from vitral.data.listing import Listing, Opening
from vitral.data.names import NAMED
from vitral.errors import DataError

PREFIX = "columns:"
FORM = f"{PREFIX}image=NAME,label=NAME:SOURCE, or one of the two"
PART = r"(?:image|label)=[^,:]+"
NAME = re.compile(rf"{PREFIX}({PART}(?:,{PART})?):(.*)", re.DOTALL)
List = Callable[[str, Opening], Listing]


@dataclass
class ChosenColumns:
    """What a name of data chooses: the column for "image", for "label", or for both; and whether there were any columns."""

    names: dict[str, str] = field(default_factory=dict)
    used: bool = False


_CHOSEN: ContextVar[ChosenColumns | None] = ContextVar("chosen", default=None)
# Lines on columns that could have been meant, too, for whoever lists the data.
NOTES: ContextVar[list[str] | None] = ContextVar("notes", default=None)


@contextmanager
def choosing(names: dict[str, str]) -> Iterator[ChosenColumns]:
    """Let readers take the chosen columns; see `choose`."""
    columns = ChosenColumns(names)
    token = _CHOSEN.set(columns)
    try:
        yield columns
    finally:
        _CHOSEN.reset(token)


def read_choice(spec: str) -> tuple[dict[str, str], str]:
    """Return what columns:image=NAME,label=NAME:SOURCE chooses, and the source.

    Raises:
        DataError: it is not of that form.
    """
    match = NAME.fullmatch(spec)
    names = dict(part.split("=", 1) for part in match[1].split(",")) if match else {}
    if match is None or not match[2].strip() or len(names) <= match[1].count(","):
        raise DataError(f"'{spec:.200}' does not choose columns of data; write {FORM}.")
    return names, os.path.expanduser(match[2])


def list_chosen(spec: str, how: Opening, list_other: List) -> Listing:
    """Return the images of columns:image=NAME,label=NAME:SOURCE; see `Prefix.select`.

    Raises:
        DataError: there is no such source or column, or the source has no columns.
    """
    names, source = read_choice(spec)
    with choosing(names) as columns:
        listing = list_other(source, how)
    if not columns.used:
        raise DataError(f"'{source:.200}' has no columns to choose; name it without '{PREFIX}'.")
    return listing


def note(line: str) -> None:
    """Note, once, what a reader chose where something else could have been meant, too."""
    if (notes := NOTES.get()) is not None and line not in notes:
        notes.append(line)


def chosen(what: str) -> str | None:
    """Return the column that the name of the data chooses for "image" or "label", if any."""
    columns = _CHOSEN.get()
    return None if columns is None else columns.names.get(what)


def choose(
    title: str, what: str, candidates: Sequence[str], meant: Sequence[str] = (), kind: str = "columns"
) -> str | None:
    """Return which of several columns is meant for "image" or "label"; None where there is none.

    Candidates could be it by their names and types; those in `meant` are it even where there are others.

    Raises:
        DataError: there are several candidates.
    """
    columns = _CHOSEN.get()
    if columns is not None:
        columns.used = True
        if what in columns.names:
            return columns.names[what]
    hold = {"image": "images", "label": "classes"}[what]
    found = [name for name in candidates if name.strip().lower() in meant] or list(candidates)
    shown = ", ".join(f"'{name}'" for name in candidates[:NAMED])
    if len(found) > 1:
        raise DataError(
            f"'{title}' has {len(candidates)} {kind} that could hold its {hold} ({shown}); choose one of them: write "
            f"{PREFIX}{what}={found[0]}: or {PREFIX}{what}={found[1]}: before the name of the data."
        )
    if len(candidates) > 1:
        others = ", ".join(f"'{name}'" for name in candidates if name != found[0])
        note(
            f"The {hold} are those of '{found[0]}', not of {others}; {PREFIX}{what}=NAME: before the data's name chooses."
        )
    return found[0] if found else None
