"""What the labels of a source mean, decided over all of its images at once, in the same way for every source.

| labels | meaning |
|---|---|
| names that differ only in their Unicode form, such as two of "café" | one class, spelled as most of its images have it |
| whole numbers, some with a point, as tables with gaps have them: "1.0" | the numbers without it: "1" |
| none for any image of a split beside labelled training images | a split to predict, which is left out |
| cells of a column named in the plural ("labels", "tags"), with marks between | several labels of an image |

A bar or a semicolon always separates labels there. A comma or a space may belong to a name: it separates them where the parts
occur elsewhere, too, as labels do.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from vitral.advice import function
from vitral.data.columns import is_plural
from vitral.data.listing import Listing
from vitral.data.names import one_spelling, some
from vitral.data.source import BadImage
from vitral.data.stored import UNREAD, Entry
from vitral.tasks.multi_label import MULTI_LABEL

# In the order in which they count, with their names.
SEPARATORS = {"|": "bars", ";": "semicolons", ",": "commas", "": "spaces"}
CERTAIN = ("|", ";")  # which no name holds
# What stands for a label that is not known, in the test splits of the Hub and of competitions.
UNKNOWN = {"", "-1", "?", "nan", "none", "null", "unknown", "unlabeled", "unlabelled", "test"}
WHOLE = re.compile(r"(-?\d+)(\.0+)?")
LIST = re.compile(r"\[.*\]")  # a cell that was a list when it was written
OF_WORDS = 0.9  # share of the images with spaces in their cell whose every word occurs in another cell, too
OF_COMMAS = 0.5  # the same for commas, which fewer names hold
Rename = Callable[[tuple[str, ...]], tuple[str, ...]]


def settle(listing: Listing, wanted: Sequence[str] | None) -> Listing:
    """Return a listing with labels as the module's table says, matched to a classifier's, and notes on what was decided."""
    listing = _without_unknown(listing)
    counts = Counter(name for images in listing.entries.values() for entry in images for name in entry.classes)
    if listing.column is not None and listing.class_names is None:
        listing = _separated(listing, listing.column, counts, wanted)
        listing = _note_empty(listing, listing.column)
    spelled = one_spelling(counts, wanted or listing.class_names or ()) or _without_points(listing, counts, wanted)
    if not spelled:
        return listing
    return _renamed(listing, lambda names: tuple(dict.fromkeys(spelled.get(name, name) for name in names)))


def _without_points(listing: Listing, counts: Iterable[str], wanted: Sequence[str] | None) -> dict[str, str]:
    """Return whole numbers by how they are written with a point; nothing where other labels are, or all are known."""
    found = {name: WHOLE.fullmatch(name) for name in counts if name}
    if listing.class_names is not None or not all(found.values()) or (wanted and found.keys() <= set(wanted)):
        return {}
    return {name: match[1] for name, match in found.items() if match is not None and match[2]}


def _renamed(listing: Listing, rename: Rename) -> Listing:
    return replace(
        listing,
        entries={
            split: [entry._replace(classes=rename(entry.classes)) for entry in images]
            for split, images in listing.entries.items()
        },
        bad_classes=frozenset(name for bad in listing.bad_classes for name in rename((bad,))),
    )


def _without_unknown(listing: Listing) -> Listing:
    """Leave out splits without labels, and count images without one in any other split as bad."""
    kinds = {split: Counter(entry.classes for entry in images) for split, images in listing.entries.items()}
    trained = set(kinds.get("train", {}))
    left = dict(listing.entries)
    notes = list(listing.notes)
    if any(_known(classes) for classes in trained):
        for split, found in kinds.items():
            if found and split != "train" and not any(map(_known, found)) and not found.keys() & trained - {()}:
                del left[split]
                notes.append(
                    f"The {found.total():,} images of the {split} split have no labels: they are left out, and are there "
                    f"for {function('predict')}."
                )
    if len(left) == len(kinds) and not any(found[UNREAD] for found in kinds.values()):
        return listing
    left = {split: [entry for entry in images if entry.classes != UNREAD] for split, images in left.items()}
    bad = [
        BadImage(entry.name, f"'{entry.name}' has no class", listed=True)
        for split in left
        for entry in listing.entries[split]
        if entry.classes == UNREAD
    ]
    return replace(listing, entries=left, notes=tuple(notes), bad=(*listing.bad, *bad), shards=_shorter(listing, left))


def _shorter(listing: Listing, left: Mapping[str, Sequence[Entry]]) -> dict[str, tuple[int, ...]]:
    """Return the ends of a listing's shards among the images that are left of each split."""
    kept = {split: {entry.store_index for entry in images} for split, images in left.items()}
    counts = {
        split: np.cumsum([0, *(entry.store_index in kept[split] for entry in listing.entries[split])])
        for split in listing.shards
        if split in left
    }
    return {split: tuple(int(count[end]) for end in listing.shards[split]) for split, count in counts.items()}


def _note_empty(listing: Listing, column: str | None) -> Listing:
    """Note cells without a label in a column where no cell has several, so that they alone make it one of several labels."""
    counts = Counter(len(entry.classes) for images in listing.entries.values() for entry in images)
    if counts.keys() != {0, 1}:
        return listing
    note = (
        f"The column '{column}' is empty for {counts[0]:,} of {counts.total():,} images, so each class is predicted by itself, "
        "and an image may have none; if each has one, fill in the column."
    )
    return replace(listing, notes=(*listing.notes, note))


def _known(classes: tuple[str, ...]) -> bool:
    return bool(classes) and classes[0].lower() not in UNKNOWN


def _separated(listing: Listing, column: str, counts: Mapping[str, int], wanted: Sequence[str] | None) -> Listing:
    """Take cells of several labels apart, or note that there may be such cells."""
    plural, written = is_plural(column), {name: count for name, count in counts.items() if name}
    if written and all(map(LIST.fullmatch, written)):
        taken = _renamed(listing, lambda cells: tuple(dict.fromkeys(name for cell in cells for name in _listed(cell))))
        return replace(taken, task=MULTI_LABEL)
    known = set(wanted or ())
    if wanted and written.keys() <= known:
        return listing
    marks = [mark for mark in SEPARATORS if any(len(parts_of(cell, mark)) > 1 for cell in written)]
    fitting = next(
        (mark for mark in marks if {part for cell in written for part in parts_of(cell, mark)} <= known), None
    )
    likely = next((mark for mark in marks if (plural and mark in CERTAIN) or _are_labels(written, mark)), None)
    mark = fitting if fitting is not None else likely
    if mark is None:
        return listing
    if fitting is None and not plural:
        combined = next(cell for cell in written if len(parts_of(cell, mark)) > 1)
        note = (
            f"Classes such as '{combined}' are made of other classes' names, and are classes of their own. If they are several "
            f"labels of an image, call the column 'labels' instead of '{column}'."
        )
        return replace(listing, notes=(*listing.notes, note))
    split = _renamed(
        listing, lambda cells: tuple(dict.fromkeys(part for cell in cells for part in parts_of(cell, mark)))
    )
    names = {name for images in split.entries.values() for entry in images for name in entry.classes}
    note = (
        f"The column '{column}' holds several labels of an image, with {SEPARATORS[mark]} between them: {some(names)}. "
        "If each cell is one class, name the column 'label'."
    )
    return replace(split, task=MULTI_LABEL, notes=(*split.notes, note))


def _listed(cell: str) -> list[str]:
    """Return the names in a list written as text, such as "['cat', 'dog']"."""
    return [name for item in cell[1:-1].split(",") if (name := item.strip().strip("'\""))]


def parts_of(cell: str, mark: str) -> tuple[str, ...]:
    """Return the parts of a cell between marks, or its words for the mark ""."""
    return tuple(part.strip() for part in (cell.split(mark) if mark else cell.split()) if part.strip())


def _are_labels(cells: Mapping[str, int], mark: str) -> bool:
    """Tell whether the parts of some cells are labels: cells differ in how many they have, and parts occur elsewhere, too."""
    parts = {cell: parts_of(cell, mark) for cell in cells}
    several = [cell for cell in cells if len(parts[cell]) > 1]
    alone = {cell for cell in cells if len(parts[cell]) == 1}
    occurring = Counter(part for cell in cells for part in set(parts[cell]))
    combined = {part for cell in several for part in parts[cell]}

    def repeated(cell: str) -> bool:
        return all(occurring[part] > 1 for part in parts[cell]) or (mark == "," and not alone.isdisjoint(parts[cell]))

    if len({len(parts[cell]) for cell in cells}) == 1 or (mark != "," and combined.isdisjoint(alone)):
        return False
    share = OF_COMMAS if mark == "," else OF_WORDS
    return _total(cells, filter(repeated, several)) >= share * _total(cells, several) > 0


def _total(cells: Mapping[str, int], some_cells: Iterable[str]) -> int:
    return sum(cells[cell] for cell in some_cells)
