"""What the values of masks are called: by a list of classes beside them, or else by what the masks themselves show.

| file | a line |
|---|---|
| classes.txt; codes.txt, as fastai has it | the class of value 0, then that of 1, and so on |
| _classes.csv, as Roboflow has it | value, name |
| labelmap.txt, as VOC and CVAT have it | name:red,green,blue:: |
| class_dict.csv, as copies of CamVid have it | name,red,green,blue |
| label_colors.txt, as CamVid has it | red green blue name |
| dataset_meta.json, as Datumaro has it | {"label_map": {"0": "road"}} |
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from vitral.data.annotations.coded_map import WHITE
from vitral.data.annotations.tree import FileTree
from vitral.data.names import NAMES_FILE, listed_names
from vitral.errors import DataError

BACKGROUND = "background"
OBJECT = "object"
IGNORED = 255  # of masks with several other values
LISTS_OF_MASKS = ("labelmap.txt", "class_dict.csv", "label_colors.txt", "dataset_meta.json")
PLAIN_LISTS = (NAMES_FILE, "codes.txt", "_classes.csv")  # which do not say that there are masks
NUMBERED = re.compile(r"(\d+)\s*,\s*(.*\S)")
COLOURED = re.compile(r"\s*([^:,]+?)\s*[:,]\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*(?::.*)?")
COLOUR_FIRST = re.compile(r"\s*(\d{1,3})\s+(\d{1,3})\s+(\d{1,3})\s+(.*\S)\s*")
RARE = 0.05  # share of the masks that have a stray value, at most,
FEW = 0.002  # and of a mask that it covers
MANY = 32  # values, above which edges are softened, and
SOFT = 0.01  # of a mask is all that a softened value covers
NEAR = 32  # of values: softened edges have SEVERAL so near to black, and as many to white,
SEVERAL = 3
PLAIN = 0.8  # and of the pixels that share is black or white
SOFTENED = "Masks have values between 0 and 255, as softened edges do: from 128 on they are the object."
MOST_CLASSES = 255


@dataclass(frozen=True)
class ValueNames:
    """What values of masks are called.

    Attributes:
        classes: The class of each value.
        stray: The values that are no classes.
        notes: What was decided, one line each.
        softened: Whether masks are black and white with softened edges, and values are to be taken as the nearer of both.
    """

    classes: Mapping[int, str]
    stray: frozenset[int]
    notes: tuple[str, ...] = ()
    softened: bool = False


def names_of_values(tree: FileTree, masks: Sequence[Counter[int]], *, colours: bool) -> ValueNames:
    """Return what the values of masks are called, from the pixels of each value in each mask.

    Raises:
        DataError: a list of classes cannot be read, or there are too many classes.
    """
    if (listed := names_listed(tree, masks, colours=colours)) is not None:
        return listed
    stray = _stray(masks)
    if not colours and _is_softened(masks):
        return ValueNames({0: BACKGROUND, WHITE: OBJECT}, frozenset(), (SOFTENED,), softened=True)
    values = sorted({value for counts in masks for value in counts} - stray)
    if len(values) > MOST_CLASSES:
        raise DataError(f"The masks in '{tree.title}' have {len(values):,} values, too many for classes.")
    if colours:
        return ValueNames({value: f"#{value:06x}" for value in values}, stray)
    if len(values) == 2 and values[0] == 0:
        return ValueNames({0: BACKGROUND, values[1]: OBJECT}, stray)
    if values == [0, 1, IGNORED] and not any(counts[1] and counts[IGNORED] for counts in masks):  # two ways to write it
        return ValueNames({0: BACKGROUND, 1: OBJECT, IGNORED: OBJECT}, stray)
    if IGNORED in values and len(values) > 2:
        note = f"Pixels of value {IGNORED} in masks are ignored, as borders are; the other values are classes."
        return ValueNames({value: str(value) for value in values if value != IGNORED}, stray, (note,))
    return ValueNames({value: str(value) for value in values}, stray)


def names_listed(tree: FileTree, masks: Sequence[Counter[int]], *, colours: bool) -> ValueNames | None:
    """Return what a list of classes calls the values of masks; None where there is none, or of most values it says nothing.

    Raises:
        DataError: the list cannot be read.
    """
    there = {value for counts in masks for value in counts}
    listed = _listed(tree, colours=colours)
    if len(there & listed.keys()) * 2 <= len(there):
        return None
    return ValueNames(listed, frozenset(there - listed.keys() - {IGNORED}), _unnamed(there - _stray(masks), listed))


def _unnamed(values: Set[int], listed: Mapping[int, str]) -> tuple[str, ...]:
    """Return a note on values of masks that a list does not name, if there are some."""
    unnamed = sorted(values - listed.keys() - {IGNORED})
    if not unnamed:
        return ()
    more = " and more" if len(unnamed) > 1 else ""
    return (
        f"The list of {len(listed):,} classes does not name the value {unnamed[0]}{more} of masks: its pixels are ignored. "
        f"The first name is that of the value {min(listed)}; if that is no class of its own, put a name for it first.",
    )


def _is_softened(masks: Sequence[Counter[int]]) -> bool:
    """Tell whether masks are black and white with softened edges, as resizing or a JPEG leaves them."""
    total = sum(masks, Counter[int]())
    dark = sum(0 < value < NEAR for value in total)
    light = sum(WHITE - NEAR < value < WHITE for value in total)
    softened = min(dark, light) >= SEVERAL and max(total) <= WHITE
    return softened and min(total[0], total[WHITE]) > 0 and total[0] + total[WHITE] >= PLAIN * total.total()


def _stray(masks: Sequence[Counter[int]]) -> frozenset[int]:
    """Return the values that are no classes: those of few pixels in few masks, and those of softened edges."""
    having: Counter[int] = Counter(value for counts in masks for value in counts)
    largest: dict[int, float] = {}
    for counts in masks:
        pixels = counts.total()
        for value, count in counts.items():
            largest[value] = max(largest.get(value, 0.0), count / pixels)
    softened = len(having) > MANY
    return frozenset(
        value
        for value, share in largest.items()
        if (share < FEW and having[value] <= max(1, RARE * len(masks))) or (softened and share < SOFT)
    )


def _listed(tree: FileTree, *, colours: bool) -> dict[int, str]:
    """Return the class of each value as a file beside the masks lists them; nothing where there is none."""
    for path in sorted((file.path for file in tree.files), key=lambda path: (path.count("/"), path)):
        name = path.rpartition("/")[2].lower()
        if name in PLAIN_LISTS or name in LISTS_OF_MASKS:
            is_json = name.endswith(".json")
            found = _of_json(tree, path, colours) if is_json else _of_lines(tree.text(path), colours)
            if found:
                return found
    return {}


def _of_lines(text: str, colours: bool) -> dict[int, str]:
    lines = [line for line in listed_names(text) if not line.startswith("#")]
    numbered = {int(match[1]): match[2] for line in lines if (match := NUMBERED.fullmatch(line))}
    if len(numbered) > 1 and len(numbered) >= len(lines) - 1:  # the first line may be a header
        return {} if colours else numbered
    coloured = [match.groups() for line in lines if (match := COLOURED.fullmatch(line))]
    coloured = coloured or [
        (match[4], *match.groups()[:3]) for line in lines if (match := COLOUR_FIRST.fullmatch(line))
    ]
    if not coloured:
        return {} if colours else dict(enumerate(lines))
    if not colours:
        return {value: name for value, (name, *_) in enumerate(coloured)}
    return {int(red) << 16 | int(green) << 8 | int(blue): name for name, red, green, blue in coloured}


def _of_json(tree: FileTree, path: str, colours: bool) -> dict[int, str]:
    def read(values: Any) -> dict[int, str]:  # noqa: ANN401
        names = {int(value): str(name) for value, name in values["label_map"].items()}
        if not colours:
            return names
        shades = [red << 16 | green << 8 | blue for red, green, blue in values["segmentation_colors"]]
        return {shade: names[value] for value, shade in enumerate(shades) if value in names}

    return tree.json(path, ["label_map"], "a list of classes", read) or {}
