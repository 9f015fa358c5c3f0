"""Which of nested folders names an image's class: the outermost, the innermost, or the whole path.

| reading | the class of Fruit/Apple/Golden/1.jpg |
|---|---|
| top | Fruit |
| leaf | Golden |
| path | Fruit/Apple/Golden |
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from vitral.advice import argument, counted
from vitral.data.names import ALL, natural_key, one_spelling, some, split_named, split_within
from vitral.errors import DataError, did_you_mean

Reading = Literal["leaf", "top", "path"]
READINGS: tuple[Reading, ...] = get_args(Reading)
Folder = tuple[str, ...]

MANY_FOLDERS = 20  # of images, which may be patients or visits,
FEWEST_OF_FOLDERS = 2  # if on average they hold fewer images
DESCRIBED = {"top": "outermost folders", "leaf": "innermost folders with images", "path": "whole paths of folders"}


@dataclass(frozen=True)
class Arranged:
    """Images in splits and classes.

    Attributes:
        images: The index and the class of each image by split, classes and images in natural order.
        outside: The number of images in no class: outside the class folders, or outside the splits.
        empty: The folders that would be classes, but contain no image.
        notes: Lines on the reading that was used where there were several, and on the folders beside the splits that were
            left out.
        reading: The folder that named the class; None where all readings agree.
    """

    images: dict[str, list[tuple[int, str]]]
    outside: int
    empty: list[str]
    notes: tuple[str, ...]
    reading: Reading | None


def check_reading(reading: str | None) -> Reading | None:
    """Return the reading of that name, or raise DataError if there is none."""
    if reading is None:
        return None
    known = next((name for name in READINGS if name == reading), None)
    if known is None:
        raise DataError(f"Classes are read by {', '.join(READINGS)}, not '{reading}'.{did_you_mean(reading, READINGS)}")
    return known


def refuse_folders_of_single_images(
    folder: Path, names: Sequence[str], tables: Sequence[str], sheets: Sequence[str]
) -> None:
    """Refuse folders of hardly more than an image each for classes, a patient's or a visit's, where a table may give these.

    Args:
        folder: What the folders are in.
        names: The folder that each image is in, as its class.
        tables: The tables beside them.
        sheets: The spreadsheets beside them.

    Raises:
        DataError: they are such folders.
    """
    classes = set(names)
    few = len(names) < FEWEST_OF_FOLDERS * len(classes)
    if not (tables or sheets) or len(classes) < MANY_FOLDERS or not few:
        return
    by = f"the table that does, '{tables[0]}'" if tables else f"the table that does: save '{sheets[0]}' as CSV"
    raise DataError(
        f"'{folder}' has {counted(len(names), 'image')} in {counted(len(classes), 'folder')}, so the folders hardly name "
        f"classes. Name {by}; or, if they do, say so with {argument('classes', 'leaf')}."
    )


def arrange(
    images: Sequence[Folder],
    *,
    folders: Iterable[Folder] = (),
    reading: Reading | None = None,
    wanted: Collection[str] | None = None,
) -> Arranged:
    """Assign images to splits and classes by their folders.

    Common parent folders are skipped; train/, val/ and test/ are splits where there is a train/, above the classes or in each
    of them. So are training_set/ and seg_test/ where their sub-folders are those of the training images.

    Args:
        images: The parts of each image's path, its own name last.
        folders: All folders, with images or without.
        reading: The folder that names the class; None detects it.
        wanted: The known class names; None where the data define them. A reading that gives only these is preferred.
    """
    parents, folders = _spelled([parts[:-1] for parts in images], list(folders), wanted or ())
    every = {*parents, *folders}
    skip, splits = _splits_below(set(parents), every)
    innermost = {} if splits else _splits_in_classes(set(parents), skip)
    if innermost:
        parents = [_split_first(folder, skip) for folder in parents]
        every, splits = {*parents}, innermost
    inner = skip + bool(splits)
    split_of = {folder: _split_of(folder, skip, splits) for folder in set(parents)}
    in_splits = [
        {folder[inner:] for folder in split_of if split_of[folder] == split and len(folder) > inner}
        for split in {*split_of.values()} - {None}
    ]
    inside = set[Folder]().union(*in_splits)
    used = reading or _detect(inside, in_splits, wanted)
    by_split: dict[str, list[tuple[int, str]]] = {}
    outside = 0
    for index, folder in enumerate(parents):
        split = split_of[folder]
        if split is None or len(folder) == inner:
            outside += 1
        else:
            by_split.setdefault(split, []).append((index, class_of(folder[inner:], used)))
    for members in by_split.values():
        members.sort(key=lambda member: (natural_key(member[1]), natural_key("/".join(images[member[0]]))))
    level = {folder for folder in every if len(folder) == inner + 1 and _split_of(folder, skip, splits) is not None}
    empty = level - {folder[: inner + 1] for folder in parents}
    return Arranged(
        images=by_split,
        outside=outside,
        empty=sorted(map("/".join, empty), key=natural_key),
        notes=(
            *(() if reading else _notes(inside, used)),
            *_beside(set(parents), skip, splits),
            *([f"The folders {some(innermost)} in those of the classes are the splits."] if innermost else []),
        ),
        reading=used if any(len(folder) > 1 for folder in inside) else None,
    )


def _spelled(
    parents: list[Folder], folders: list[Folder], wanted: Collection[str]
) -> tuple[list[Folder], list[Folder]]:
    """Return images' and other folders with one spelling of names that differ only in their Unicode form."""
    counts = Counter(part for folder in parents for part in folder if not part.isascii())
    spelled = one_spelling(counts, [part for name in wanted for part in name.split("/")])
    if not spelled:
        return parents, folders
    parents, folders = (
        [tuple(spelled.get(part, part) for part in folder) for folder in listed] for listed in (parents, folders)
    )
    return parents, folders


def outermost(images: Iterable[Folder]) -> set[Folder]:
    """Return the outermost folders of images that are splits or classes; none where there are not at least two classes."""
    parents = {parts[:-1] for parts in images}
    skip, splits = _splits_below(parents, parents)
    inner = skip + bool(splits)
    inside = {folder for folder in parents if len(folder) > inner and _split_of(folder, skip, splits) is not None}
    return {folder[: skip + 1] for folder in inside} if len({folder[inner] for folder in inside}) > 1 else set()


def class_of(folder: Folder, reading: Reading) -> str:
    """Return the class that a folder below the splits stands for."""
    return {"top": folder[0], "leaf": folder[-1], "path": "/".join(folder)}[reading]


def _common(parents: set[Folder], every: set[Folder]) -> int:
    """Return how many parent folders all others share that contain nothing else."""
    depth = 0
    while True:
        level = {folder[: depth + 1] for folder in every if len(folder) > depth}
        alone = next(iter(level)) if len(level) == 1 else None
        deeper = any(len(folder) > depth + 1 for folder in parents)
        held = any(len(folder) <= depth + 1 for folder in parents)
        if alone is None or held or not deeper or split_named(alone[-1]) is not None:
            return depth
        depth += 1


def _splits_below(parents: set[Folder], every: set[Folder]) -> tuple[int, dict[str, str]]:
    """Return how many parent folders are skipped, and the splits below them; a folder without images hides no splits."""
    skip = _common(parents, every)
    splits = _split_folders(parents, every, skip)
    deeper = _common(parents, parents)
    if not splits and deeper > skip and (below := _split_folders(parents, every, deeper)):
        return deeper, below
    return (skip, splits) if splits else _splits_beside_a_test(parents, skip)


def _splits_beside_a_test(parents: set[Folder], skip: int) -> tuple[int, dict[str, str]]:
    """Return the splits in the only folder beside others that are splits themselves, such as photos/train/ beside test/."""
    tops = {folder[skip] for folder in parents if len(folder) > skip}
    named = [top for top in tops if split_named(top) is None]
    if len(named) != 1 or len(tops) < 2:
        return skip, {}
    within = {folder for folder in parents if len(folder) > skip and folder[skip] == named[0]}
    below = _common(within, within)
    splits = _split_folders(within, within, below)
    return (below, splits) if "train" in splits.values() else (skip, {})


def _split_folders(parents: set[Folder], every: set[Folder], skip: int) -> dict[str, str]:
    """Return the folders that are splits, and of what: none without a training split, unless all are splits.

    A folder named train/ that holds images itself beside others of images is a class: the vehicle.
    """
    tops = {folder[skip] for folder in every if len(folder) > skip}
    splits = {name: split for name in tops if (split := split_named(name))}
    if splits.keys() == tops:
        return splits
    inside: dict[str, set[str]] = {folder[skip]: set() for folder in parents if len(folder) > skip}
    for folder in parents:
        if len(folder) > skip + 1:
            inside[folder[skip]].add(folder[-1])
    splits |= _spoken_of(splits, inside)
    others = inside.keys() - splits.keys()
    is_class = len(splits) == 1 and len(others) > 1 and not inside.get(next(iter(splits)))
    return splits if "train" in splits.values() and not is_class else {}


def _spoken_of(splits: Mapping[str, str], inside: Mapping[str, set[str]]) -> dict[str, str]:
    """Return the further folders with a split in their names, such as seg_test/, and sub-folders like the training images'.

    Where a folder of another name has them, too, all are classes. `inside` has each folder's sub-folders with images.
    """
    spoken = {
        name: split
        for name in inside.keys() - splits.keys()
        if inside[name] and (split := split_within(name)) and split not in splits.values()
    }
    training = [name for name, split in {**splits, **spoken}.items() if split == "train"]
    if not spoken or len(training) != 1:
        return {}
    classes = inside.get(training[0], set())
    if any(inside[name] & classes for name in inside.keys() - splits.keys() - spoken.keys()):
        return {}
    same = {name: split for name, split in spoken.items() if inside[name] <= classes}
    return same if len(splits) + len(same) > 1 else {}


def _splits_in_classes(parents: set[Folder], skip: int) -> dict[str, str]:
    """Return the folders that are splits within each class, such as cat/train/ and cat/test/; none if not all images are so."""
    if any(len(folder) < skip + 2 for folder in parents):
        return {}
    splits = {folder[-1]: split_named(folder[-1]) for folder in parents}
    found = {name: split for name, split in splits.items() if split is not None}
    several = len({folder[:-1] for folder in parents}) > 1 and len({*found.values()}) > 1
    return found if several and "train" in found.values() and len(found) == len(splits) else {}


def _split_first(folder: Folder, skip: int) -> Folder:
    return (*folder[:skip], folder[-1], *folder[skip:-1])


def _beside(parents: set[Folder], skip: int, splits: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line that names the folders of images beside the splits, which are left out; none where there is none."""
    others = {folder[skip] for folder in parents if len(folder) > skip} - splits.keys() if splits else set()
    if not others:
        return ()
    return (f"Folders of images beside {some([f'{name}/' for name in splits])} are left out: {some(others)}.",)


def _split_of(folder: Folder, skip: int, splits: Mapping[str, str]) -> str | None:
    """Return the split that a folder is in; None for one outside the splits."""
    if not splits:
        return ALL if len(folder) >= skip else None
    return splits.get(folder[skip]) if len(folder) > skip else None


def _detect(folders: set[Folder], splits: Iterable[set[Folder]], wanted: Collection[str] | None) -> Reading:
    likely = _likely(folders, splits)
    if wanted is None:
        return likely
    fitting = (
        reading for reading in (likely, *READINGS) if all(class_of(folder, reading) in wanted for folder in folders)
    )
    return next(fitting, likely)


def _likely(folders: set[Folder], splits: Iterable[set[Folder]]) -> Reading:
    """Return the reading that the folders' depths and names suggest.

    Where most of the outermost folders hold images themselves, their sub-folders belong to them. Otherwise the innermost
    folders are the classes if their names are unique within each split: one may lie elsewhere in another split. Names
    repeated under many parents, such as years, are parts of a class, and where only a few are repeated, the whole path is
    needed to tell them apart.
    """
    tops = {folder[0] for folder in folders}
    if 2 * sum((top,) in folders for top in tops) > len(tops):
        return "top"
    names = {folder[-1] for folder in folders}
    counted = [Counter(folder[-1] for folder in split) for split in splits]
    repeated = len({name for counts in counted for name, count in counts.items() if count > 1})
    if not repeated:
        return "leaf"
    return "top" if 2 * repeated >= len(names) else "path"


def _notes(folders: set[Folder], used: Reading) -> tuple[str, ...]:
    if all(len(folder) == 1 for folder in folders):
        return ()
    counts = {reading: {class_of(folder, reading) for folder in folders} for reading in READINGS}
    others = "; ".join(
        f"{reading} gives {len(names)} ({some(names)})" for reading, names in counts.items() if names != counts[used]
    )
    classes = counts[used]
    return (
        f"The folders are nested: the {counted(len(classes), 'class', 'classes')} are the {DESCRIBED[used]} ({some(classes)}). "
        f"{argument('classes')} leaf, top or path reads them otherwise{': ' + others if others else ''}.",
    )
