"""What one should know of the images of each split, besides which they are, a line each."""

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from vitral.advice import argument
from vitral.data.names import series_in
from vitral.data.stored import Entry
from vitral.tasks.class_sizes import ClassSizes

SERIAL_SHARE = 0.2  # of the images that are numbered like series, from which it is said


def series_note(splits: Mapping[str, list[Entry]], made: Collection[str]) -> list[str]:
    """Return a note on images whose numbering looks like series that the splits made may part; none where few do."""
    images = [(entry.name, entry.classes) for split in made for entry in splits[split]]
    series = series_in(images)
    count = sum(map(len, series.values()))
    if not series or count < SERIAL_SHARE * len(images):
        return []
    example = ", ".join(map(os.path.basename, next(iter(series.values()))[:2]))
    return [
        f"{count:,} images are numbered like {len(series):,} series, such as {example}: if those of one series show the same "
        f"thing, keep each in one split, by {argument('group', 'series')} or another."
    ]


def equal_note(images: Sequence[Entry], contents: Mapping[int, str]) -> list[str]:
    """Return a note where all images of several classes are of equal bytes, by hashes of those; none where they are not."""
    classes = {name for entry in images for name in entry.classes}
    if len(classes) < 2 or len({contents.get(entry.store_index, entry.name) for entry in images}) > 1:
        return []
    return [
        f"All {len(images):,} images are one and the same, byte for byte: nothing tells their {len(classes):,} classes apart. "
        "Look at how they were saved."
    ]


def unequal_note(images: Sequence[Entry]) -> list[str]:
    """Return a note on classes of very unequal numbers of training images; none where they are not."""
    counts = Counter(name for entry in images for name in entry.classes).most_common()
    sizes = ClassSizes(tuple(count for _, count in counts))
    if not sizes.unequal:
        return []
    (most, largest), (least, fewest) = counts[0], counts[-1]
    rare = sizes.listed([name for name, _ in counts])
    return [
        f"The classes are unequal, 1 : {sizes.ratio:.3g}: {largest:,} training images of {most}, {fewest:,} of {least}; "
        + (f"rare: {rare}. " if rare else "")
        + "Accuracy says little of the small ones; balanced accuracy and the scores of each class do."
    ]
