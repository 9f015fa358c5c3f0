"""Whether the values of masks number the objects of each photo, as Cellpose, StarDist and ImageJ write them, or are classes.

| values of masks | are objects where each is mostly one connected part, and |
|---|---|
| from 1 on without a gap in nearly all masks | there are more of them in some masks than in others, `FEWEST` at least in one |
| with gaps, as where objects were deleted | there are more than `MANY`, and most of the numbers up to the largest are there |
| more than there can be classes | |

Fewer values can be classes of which one is only there with the one before, such as an organ, a tumour, and what is in that.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import cv2
import numpy as np

from vitral.data.annotations.coded_map import WHITE, boxes_of_codes, read_together
from vitral.data.annotations.mask_names import MOST_CLASSES
from vitral.data.annotations.tree import StoredFile
from vitral.data.batch import evenly

FEWEST = 6  # numbers in a mask
MANY = 24  # numbers, more than a photo has parts of a body or a face
DIFFERENT = 3  # numbers of values that masks have, and
SEVERAL = 5  # masks, at least, where there are no more values than MANY
GAPLESS = 0.9  # share of the masks
ALIKE = 0.6  # share of the masks that have as many values, at most
THERE = 0.6  # share of the numbers up to the largest of each mask
LOOKED_AT = 16  # masks, whose parts are counted, and
VALUES = 64  # of each
LARGEST = 0.8  # share of a value's pixels in its largest part, where that is what it is
ONE_PART = 0.9  # share of the values that are one part


def number_objects(
    masks: Mapping[str, Counter[int]], files: Mapping[str, Sequence[StoredFile]], *, of_one_class: bool
) -> bool:
    """Tell whether the values of masks number objects, from the pixels of each value in the masks of each photo.

    Where it is known that all objects are of one class, several values in a mask that are a part each number them.
    """
    numbers = {photo: there for photo, counts in masks.items() if (there := numbers_of(counts))}
    several = of_one_class and any(len(values) > 1 for values in numbers.values())
    return bool(numbers) and (several or _may_number([*numbers.values()])) and _are_parts(numbers, files)


def numbers_of(counts: Counter[int]) -> list[int]:
    """Return the values in a mask that may number objects, ascending: all but 0, and 255 where that is a border."""
    values = sorted(value for value in counts if value > 0)
    return values[:-1] if values[-1:] == [WHITE] and WHITE - 1 not in counts else values


def _may_number(masks: Sequence[Sequence[int]]) -> bool:
    """Tell by the values in each mask alone whether they may number objects."""
    every = len({value for values in masks for value in values})
    if every > MOST_CLASSES:
        return True
    gapless = sum(values[-1] == len(values) for values in masks)
    counts = Counter(map(len, masks) if gapless >= GAPLESS * len(masks) else (values[-1] for values in masks))
    alike = max(counts.values()) > ALIKE * len(masks)
    by_chance = every <= MANY and (len(counts) < DIFFERENT or len(masks) < SEVERAL)
    if every < FEWEST or alike or by_chance:
        return False
    there = sum(map(len, masks)) >= THERE * sum(values[-1] for values in masks)
    return gapless >= GAPLESS * len(masks) or (every > MANY and there)


def _are_parts(numbers: Mapping[str, Sequence[int]], files: Mapping[str, Sequence[StoredFile]]) -> bool:
    """Tell by some masks whether most of their values are one connected part each."""
    whole: list[bool] = []
    for photo in evenly([*numbers], LOOKED_AT):
        codes = read_together(files[photo], colours=False).values
        boxes = boxes_of_codes(codes, numbers[photo])
        for value in evenly([*boxes], VALUES):
            inside = (codes[boxes[value]] == value).astype(np.uint8)
            areas = cv2.connectedComponentsWithStats(inside)[2][1:, cv2.CC_STAT_AREA]
            whole.append(bool(areas.max() >= LARGEST * areas.sum()))
    return sum(whole) >= ONE_PART * len(whole)
