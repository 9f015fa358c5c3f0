"""Images without labels as a dataset: unlabelled:SOURCE, of which nothing but the images is read.

A folder or an archive may hold its images in whatever sub-folders. The labels of any other source are not read. The test images
of data with splits are left out, because images that are scored later must not be learned from, even without labels.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vitral.data.archive import archive_images, is_archive
from vitral.data.folder import list_images, without_masks
from vitral.data.listing import Listing, Opening
from vitral.data.names import ALL
from vitral.data.stored import Entry
from vitral.data.subset import HELD_OUT
from vitral.errors import DataError
from vitral.paths import is_folder, is_regular, look_at
from vitral.tasks.unlabelled import CLASS, UNLABELLED

PREFIX = f"{CLASS}:"
MOST_HELD_OUT = 2000  # validation images, which training is followed by
List = Callable[[str, Opening], Listing]


def is_unlabelled(spec: str) -> bool:
    """Tell whether a name of data says that no labels are to be read."""
    return spec.startswith(PREFIX) and look_at(spec) is None


def list_without_labels(spec: str, how: Opening, list_labelled: List) -> Listing:
    """Return the images of unlabelled:SOURCE; see `Prefix.select`.

    Raises:
        DataError: there is no such source, it holds no images, or they are to be scored.
    """
    if how.class_names is not None:
        raise DataError(
            f"'{spec:.200}' has no labels, so nothing can be scored on it; name the data without '{PREFIX}'."
        )
    source = os.path.expanduser(spec.removeprefix(PREFIX))
    if not source.strip():
        raise DataError(
            f"'{spec:.200}' does not say which images; write {PREFIX}FOLDER, or {PREFIX} and any other data."
        )
    listing = _scattered(Path(source))
    if listing is None or not listing.entries[ALL]:
        listing = list_labelled(source, replace(how, labelled=False))
    return _without_labels(listing, spec)


def _scattered(path: Path) -> Listing | None:
    """Return the image files of a folder or an archive, whatever their arrangement; None for what is neither."""
    if is_folder(path):
        listing = list_images(path)
    elif is_archive(path) and is_regular(path):
        store, indices = archive_images(path)
        every = [Entry(index, store.name(index), (), 0) for index in indices]
        listing = Listing(title=str(path), name=path.name.split(".")[0] or path.name, store=store, entries={ALL: every})
    else:
        return None
    entries = listing.entries[ALL]
    images, _, _, notes = without_masks(listing.store, entries, [PurePosixPath(entry.name).parts for entry in entries])
    return replace(listing, entries={ALL: list(images)}, notes=(*listing.notes, *notes))


def _without_labels(listing: Listing, spec: str) -> Listing:
    entries = {
        split: [entry._replace(classes=(CLASS,)) for entry in images] for split, images in listing.entries.items()
    }
    train = entries.get("train") or entries.get(ALL) or []
    if not train:
        raise DataError(f"'{spec:.200}' holds no images to learn from.")
    validation = {"validation": entries["validation"]} if entries.get("validation") else {}
    ends = listing.shards.get("train") or listing.shards.get(ALL)
    return replace(
        listing,
        entries={"train": train, **validation},
        class_names=(CLASS,),
        task=UNLABELLED,
        shards={"train": ends} if ends else {},
        bad_classes=frozenset({CLASS}),
        reading=None,
        held_out=min(HELD_OUT, MOST_HELD_OUT / len(train)),
    )
