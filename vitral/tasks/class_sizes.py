"""How unequal classes are in number of images, and which of them are rare."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

UNEQUAL = 3  # times the images of the smallest class in the largest, from which on accuracy alone hides the small ones
RARE_SHARE = 0.5  # of the images that a class would have if all had the same number; a class with no more is rare
NAMED = 3  # rare classes that a sentence names
FEWEST = 20  # images of which it is no chance that hardly two have the same class


@dataclass(frozen=True)
class ClassSizes:
    """The numbers of images of some classes, in order; a class without any counts for nothing here."""

    images: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """How many times the images of the smallest class the largest has; 1 where there are none."""
        there = [count for count in self.images if count]
        return max(there) / min(there) if there else 1.0

    @property
    def unequal(self) -> bool:
        """Whether the largest class has at least three times the images of the smallest."""
        return self.ratio >= UNEQUAL

    @property
    def rare(self) -> tuple[int, ...]:
        """The rare classes of unequal ones, the smallest first: at most half the images of an equal share."""
        there = [index for index, count in enumerate(self.images) if count]
        most = RARE_SHARE * sum(self.images) / max(len(there), 1)
        few = [index for index in there if self.images[index] <= most] if self.unequal else []
        return tuple(sorted(few, key=lambda index: (self.images[index], index)))

    def listed(self, names: Sequence[str]) -> str:
        """Return the rare classes with their numbers of images, the smallest first; of many only some."""
        rare = self.rare
        named = [f"{names[index]} ({self.images[index]:,})" for index in rare[:NAMED]]
        return ", ".join([*named, *(["…"] if len(rare) > NAMED else [])])


def class_notes(classes: Iterable[str]) -> list[str]:
    """Return a note where hardly two training images have the same class, or where classes are very unequal; else none."""
    counts = Counter(classes).most_common()
    sizes = ClassSizes(tuple(count for _, count in counts))
    images = sum(sizes.images)
    if images >= FEWEST and 2 * len(counts) > images:
        return [
            f"{images:,} training images have {len(counts):,} classes, such as '{counts[0][0]}': hardly two have the same. "
            "Measurements and captions are no classes; give each image one of a few."
        ]
    if not sizes.unequal:
        return []
    (most, largest), (least, fewest) = counts[0], counts[-1]
    rare = sizes.listed([name for name, _ in counts])
    return [
        f"The classes are unequal, 1 : {sizes.ratio:.3g}: {largest:,} training images of {most}, {fewest:,} of {least}; "
        + (f"rare: {rare}. " if rare else "")
        + "Accuracy says little of the small ones; balanced accuracy and the scores of each class do."
    ]
