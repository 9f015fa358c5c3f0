"""The classes of a dataset that have many images: frequent:COUNT:SOURCE, as ImageNet-21K-P was made (arXiv 2104.10972).

Classes of more than COUNT images are kept, 500 in the paper; of each the first tenth of COUNT by name are the validation split,
50 there, and the others are trained on. Images stay as they are: what size the network sees them at is the recipe's.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from vitral.data.listing import Listing, Opening
from vitral.data.names import ALL, natural_key
from vitral.data.stored import Entry
from vitral.errors import DataError

PREFIX = "frequent:"
FORM = f"{PREFIX}COUNT:SOURCE, such as {PREFIX}500:imagenet21k/"
NAME = re.compile(rf"{PREFIX}(\d{{1,9}}):(.*)", re.ASCII | re.DOTALL)
TENTH = 10
List = Callable[[str, Opening], Listing]


def _read(spec: str) -> tuple[int, str]:
    """Return the count and the source of frequent:COUNT:SOURCE."""
    match = NAME.fullmatch(spec)
    if match is None or not match[2].strip() or int(match[1]) < TENTH:
        raise DataError(
            f"'{spec:.200}' does not name the frequent classes of data; write {FORM}, with a count of at least 10."
        )
    return int(match[1]), os.path.expanduser(match[2])


def list_frequent(spec: str, how: Opening, list_labelled: List) -> Listing:
    """Return the images of frequent:COUNT:SOURCE; see `Prefix.select`.

    Raises:
        DataError: there is no such source, it has splits of its own or several classes an image, or too few classes are
            frequent.
    """
    count, source = _read(spec)
    listing = list_labelled(source, how)
    if not listing.task.exclusive or set(listing.entries) - {"train", ALL}:
        why = "splits of its own" if listing.task.exclusive else "several classes an image"
        raise DataError(f"'{source}' has {why}, so its frequent classes cannot be taken; name it without '{PREFIX}'.")
    by_class: dict[str, list[Entry]] = defaultdict(list)
    for entry in (entry for images in listing.entries.values() for entry in images):
        by_class[entry.classes[0]].append(entry)
    frequent = {name: images for name, images in by_class.items() if len(images) > count}
    if len(frequent) < listing.task.fewest_classes:
        raise DataError(f"'{source}' has {len(frequent)} classes of more than {count:,} images; take a lower count.")
    validation = count // TENTH
    ordered = {name: sorted(images, key=lambda entry: natural_key(entry.name)) for name, images in frequent.items()}
    left_out = sum(map(len, by_class.values())) - sum(map(len, frequent.values()))
    return replace(
        listing,
        entries={
            "train": [entry for images in ordered.values() for entry in images[validation:]],
            "validation": [entry for images in ordered.values() for entry in images[:validation]],
        },
        class_names=None
        if listing.class_names is None
        else tuple(name for name in listing.class_names if name in frequent),
        shards={},
        bad_classes=frozenset(frequent) & listing.bad_classes,
        notes=(
            *listing.notes,
            f"{len(frequent):,} of {len(by_class):,} classes have more than {count:,} images and are kept; the others' "
            f"{left_out:,} are left out. Of each class the first {validation:,} by name are the validation split.",
        ),
    )
