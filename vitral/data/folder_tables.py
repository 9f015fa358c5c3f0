"""The tables in a folder by which its images are read: those by split, lists of images, and metadata beside images.

A table that lies in a folder that is a split or a class, such as predictions of its images, says nothing of the data.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from vitral.data.classes import outermost
from vitral.data.listing import Listing
from vitral.data.names import ALL, SYNSETS_FILE, some, split_named, split_of_file
from vitral.data.tables import SUFFIXES
from vitral.data.text_table import LIST_SUFFIX, is_list, names_images
from vitral.images.decode import EXTENSIONS
from vitral.paths import Walk

LIST_DEPTH = 2  # folder levels that are searched for lists of images
METADATA = "metadata.jsonl"  # which Hugging Face's ImageFolder has beside images


def tables_alone(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return a folder's tables by split; none where tables without a split's name are next to class folders.

    What lies in a folder that is a split or a class, such as predictions of its images, is not among them.
    """
    if metadata := _metadata_files(folder, walked):
        return metadata
    files = _outside_classes(folder, walked, table_files(folder, walked))
    if set(files) == {"all"} and len(walked.folders) > 1:
        return {}
    in_splits = {split: paths for split, paths in files.items() if split != "all"}
    return in_splits or files or _list_files(folder, walked) or _numbered_lists(folder, walked)


def _metadata_files(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return the metadata files of a folder by split; none where no column of theirs could hold the classes."""
    if not any(file.path.endswith(METADATA) for file in walked.files):
        return {}
    from vitral.data.json_table import holds_classes, json_table  # which other folders do without

    files: dict[str, list[str]] = {}
    for path in sorted(file.path for file in walked.files if PurePosixPath(file.path).name == METADATA):
        files.setdefault(split_of_file(path), []).append(str(folder / path))
    tables = (json_table(Path(path)) for paths in files.values() for path in paths)
    return files if any(map(holds_classes, tables)) else {}


def _outside_classes(folder: Path, walked: Walk, files: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the tables by split without those in a folder that is a split or a class of images."""
    within = {path: Path(path).relative_to(folder).parent.parts for paths in files.values() for path in paths}
    if not any(within.values()):
        return dict(files)
    names = (PurePosixPath(file.path).parts for file in walked.files if file.path.lower().endswith(EXTENSIONS))
    taken = outermost(names)
    left = {
        split: [path for path in paths if not any(within[path][: len(top)] == top for top in taken)]
        for split, paths in files.items()
    }
    return {split: paths for split, paths in left.items() if paths}


def _numbered_lists(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return the lists of images beside the names of their classes in synsets.txt, as CVAT exports them, under any name."""
    beside = [file.path for file in walked.files if "/" not in file.path and file.path.endswith(LIST_SUFFIX)]
    lists = [str(folder / path) for path in beside if SYNSETS_FILE in beside and is_list(folder / path)]
    return {ALL: lists} if lists else {}


def not_named(folder: Path, walked: Walk, files: Mapping[str, Sequence[str]], listing: Listing) -> list[str]:
    """Return a note on images beside metadata files that name others; none for other tables."""
    if not any(path.endswith(METADATA) for paths in files.values() for path in paths):
        return []
    named = {listing.store.name(entry.store_index) for images in listing.entries.values() for entry in images}
    images = [file.path for file in walked.files if file.path.lower().endswith(EXTENSIONS)]
    left = [path for path in images if str(folder / path) not in named]
    return [f"{len(left):,} images in '{folder}' are in no {METADATA} and were left out: {some(left)}."] if left else []


def table_files(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return the tables of a folder by split, which their names or folders begin with; empty if it has none."""
    by_split: dict[str, list[str]] = {}
    for path in sorted(file.path for file in walked.files if file.path.lower().endswith(SUFFIXES)):
        by_split.setdefault(split_of_file(path), []).append(str(folder / path))
    return by_split


def _list_files(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return a folder's lists of images by split, such as train.txt and test.txt; empty without one for training.

    A text file of such a name may be anything: only lists whose images are there count.
    """
    by_split: dict[str, list[str]] = {}
    for path in _named_as_lists(walked):
        if is_list(folder / path):
            by_split.setdefault(str(split_named(PurePosixPath(path).stem)), [str(folder / path)])
    return by_split if "train" in by_split else {}


def unread_lists(folder: Path, walked: Walk) -> list[str]:
    """Return the lists of images by split, such as train.txt, of a folder that is read without them."""
    return [path for path in _named_as_lists(walked) if names_images(folder / path)]


def _named_as_lists(walked: Walk) -> list[str]:
    names = [PurePosixPath(path) for path in sorted(file.path for file in walked.files)]
    return [
        str(name)
        for name in names
        if name.suffix.lower() == LIST_SUFFIX and split_named(name.stem) and len(name.parts) <= LIST_DEPTH
    ]
