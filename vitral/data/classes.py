"""Which folder names an image's class, where folders are nested: the outermost, the innermost, or the whole path.

| reading | the class of Fruit/Apple/Golden/1.jpg |
|---|---|
| top | Fruit |
| leaf | Golden |
| path | Fruit/Apple/Golden |
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from vitral.data.names import ALL, natural_key, some, split_named
from vitral.errors import DataError, did_you_mean

Reading = Literal["leaf", "top", "path"]
READINGS: tuple[Reading, ...] = get_args(Reading)
Folder = tuple[str, ...]

SAID = {"top": "outermost folders", "leaf": "innermost folders with images", "path": "whole paths of folders"}


@dataclass(frozen=True)
class Arranged:
    """Images in splits and classes.

    Attributes:
        images: by split, the place and the class of each, classes and images in natural order.
        left: how many are in no class: beside the class folders, or beside the splits.
        empty: folders that would be classes, but hold no image.
        notes: which reading was taken where there were several.
        reading: which folder named the class; None where all readings say the same.
    """

    images: dict[str, list[tuple[int, str]]]
    left: int
    empty: list[str]
    notes: tuple[str, ...]
    reading: Reading | None


def check_reading(reading: str | None) -> Reading | None:
    """Return a reading by its name.

    Raises:
        DataError: there is none of that name.
    """
    if reading is None:
        return None
    found = next((known for known in READINGS if known == reading), None)
    if found is None:
        raise DataError(f"Classes are read by {', '.join(READINGS)}, not '{reading}'.{did_you_mean(reading, READINGS)}")
    return found


def arrange(
    images: Sequence[Folder],
    *,
    folders: Iterable[Folder] = (),
    reading: Reading | None = None,
    wanted: Collection[str] | None = None,
) -> Arranged:
    """Give images splits and classes by the folders that they are in.

    Folders above all others are passed over; train/, val/ and test/ are splits where there is a train/.

    Args:
        images: the parts of each image's path, its own name last.
        folders: all folders that there are, with images or without.
        reading: which folder names the class; None recognises it.
        wanted: class names that are known; None where the data say them. A reading that gives only these is preferred.
    """
    parents = [parts[:-1] for parts in images]
    every = {*parents, *folders}
    skip = _common(set(parents), every)
    splits = _split_folders({folder[skip:] for folder in every if len(folder) > skip})
    inner = skip + bool(splits)
    homes = {folder: _home(folder, skip, splits) for folder in set(parents)}
    inside = {folder[inner:] for folder, home in homes.items() if home is not None}
    inside.discard(())
    chosen = reading or _recognize(inside, wanted)
    found: dict[str, list[tuple[int, str]]] = {}
    left = 0
    for place, folder in enumerate(parents):
        split = homes[folder]
        if split is None or len(folder) == inner:
            left += 1
        else:
            found.setdefault(split, []).append((place, named(folder[inner:], chosen)))
    for members in found.values():
        members.sort(key=lambda member: (natural_key(member[1]), natural_key("/".join(images[member[0]]))))
    return Arranged(
        images=found,
        left=left,
        empty=_empty(every, {folder[: inner + 1] for folder in parents}, skip, splits),
        notes=() if reading else _notes(inside, chosen),
        reading=chosen if any(len(folder) > 1 for folder in inside) else None,
    )


def named(folder: Folder, reading: Reading) -> str:
    """Return the class that a folder below the splits says."""
    return {"top": folder[0], "leaf": folder[-1], "path": "/".join(folder)}[reading]


def _common(parents: set[Folder], every: set[Folder]) -> int:
    """Return how many folders lie above all others and hold nothing else."""
    depth = 0
    while True:
        level = {folder[: depth + 1] for folder in every if len(folder) > depth}
        alone = next(iter(level)) if len(level) == 1 else None
        deeper = any(len(folder) > depth + 1 for folder in parents)
        held = any(len(folder) <= depth + 1 for folder in parents)
        if alone is None or held or not deeper or split_named(alone[-1]) is not None:
            return depth
        depth += 1


def _split_folders(folders: set[Folder]) -> set[str]:
    """Return the names of the folders that are splits: none without a training split, unless all are splits."""
    tops = {folder[0] for folder in folders}
    splits = {name for name in tops if split_named(name)}
    return splits if splits == tops or any(split_named(name) == "train" for name in splits) else set()


def _home(folder: Folder, skip: int, splits: set[str]) -> str | None:
    """Return the split that a folder is in, None for one beside the splits."""
    if not splits:
        return ALL if len(folder) >= skip else None
    return split_named(folder[skip]) if len(folder) > skip and folder[skip] in splits else None


def _recognize(folders: set[Folder], wanted: Collection[str] | None) -> Reading:
    own = _recognized(folders)
    if wanted is None:
        return own
    fitting = (reading for reading in (own, *READINGS) if all(named(folder, reading) in wanted for folder in folders))
    return next(fitting, own)


def _recognized(folders: set[Folder]) -> Reading:
    """Return the reading that the folders' depths and names speak for.

    Where most of the outermost folders hold images themselves, what lies below them belongs to them. Else the innermost
    folders are the classes if their names are their own; names that come again under many parents, such as years, are of
    parts of a class, and where a few come again, only the whole path tells them apart.
    """
    tops = {folder[0] for folder in folders}
    if 2 * sum((top,) in folders for top in tops) > len(tops):
        return "top"
    names = Counter(folder[-1] for folder in folders)
    again = sum(count > 1 for count in names.values())
    if not again:
        return "leaf"
    return "top" if 2 * again >= len(names) else "path"


def _notes(folders: set[Folder], chosen: Reading) -> tuple[str, ...]:
    if all(len(folder) == 1 for folder in folders):
        return ()
    counts = {reading: {named(folder, reading) for folder in folders} for reading in READINGS}
    others = "; ".join(
        f"{reading} reads {len(names)} ({some(names)})" for reading, names in counts.items() if names != counts[chosen]
    )
    mine = counts[chosen]
    return (
        f"The folders are nested: the {len(mine)} classes were read from the {SAID[chosen]} ({some(mine)}). "
        f"--classes leaf, top or path chooses another reading{': ' + others if others else ''}.",
    )


def _empty(every: set[Folder], used: set[Folder], skip: int, splits: set[str]) -> list[str]:
    inner = skip + bool(splits)
    level = {folder for folder in every if len(folder) == inner + 1 and _home(folder, skip, splits) is not None}
    return sorted(("/".join(folder) for folder in level - used), key=natural_key)
