"""Which tables and lists of a folder say what its images are: a user's, those of exports, and published lists of splits."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from vitral.advice import counted
from vitral.data.chosen import note
from vitral.data.classes import outermost
from vitral.data.listing import Listing
from vitral.data.names import ALL, SYNSETS_FILE, are_parts, natural_key, some, split_in, split_of_file, splits_of_files
from vitral.data.path_table import gives_classes
from vitral.data.tables import JSON, SUFFIXES
from vitral.data.text_table import LIST_SUFFIX, listed_classes, names_images
from vitral.errors import DataError
from vitral.images.decode import EXTENSIONS
from vitral.paths import Walk

ANSWERS = "submission"  # in the name of Kaggle's forms
ROBOFLOW = "_classes.csv"  # which it writes into each split's folder, a column of 0 and 1 for each class
METADATA = "metadata.jsonl"  # which Hugging Face's ImageFolder has beside images
BOXES = re.compile(
    r"(?:_annotations\.coco|(?:^|/)(?:instances|captions|person_keypoints)_[^/]*)\.json$|(?:^|/)data\.ya?ml$"
)
STYLEGAN = "dataset.json"  # beside StyleGAN's images
MOST_JSON = 20  # files that are looked into for labels,
MOST_JSON_BYTES = 1 << 28  # of at most so many bytes in all
LIST_DEPTH = 2  # folder levels that are searched for lists of images


def tables_alone(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return a folder's tables by split; none where tables without a split's name are next to class folders.

    What lies in a folder that is a split or a class, such as predictions of its images, is not among them. Of the tables of an
    export of Roboflow those that it wrote are read alone.
    """
    if metadata := _metadata_files(folder, walked):
        return metadata
    files = table_files(folder, walked)
    exported = {split: [path for path in paths if path.endswith(ROBOFLOW)] for split, paths in files.items()}
    if any(exported.values()):
        return {split: paths for split, paths in exported.items() if paths}
    files = _outside_classes(folder, walked, files)
    if set(files) == {ALL} and (classes := _in_classes(walked)) and not are_parts([name for *_, name in classes]):
        return {}
    in_splits = {split: paths for split, paths in files.items() if split != "all"}
    lists = in_splits or files or _list_files(folder, walked) or _numbered_lists(folder, walked)
    return lists or _json_files(folder, walked)


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


def _json_files(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return the files of JSON that give images of a folder their classes, by split, where folders do not."""
    found = [file for file in walked.files if file.path.lower().endswith(JSON) and file.path.count("/") < LIST_DEPTH]
    if not 0 < len(found) <= MOST_JSON or sum(file.size for file in found) > MOST_JSON_BYTES:
        return {}
    pairs = [file.path for file in found if file.path == STYLEGAN]  # whose folders are parts of one set
    if not pairs and _in_classes(walked):
        return {}
    paths = [path for path in pairs or sorted(file.path for file in found) if _json_gives_classes(folder / path)]
    files: dict[str, list[str]] = {}
    for path, split in zip(paths, splits_of_files(paths), strict=True):
        files.setdefault(split, []).append(str(folder / path))
    return files


def _json_gives_classes(path: Path) -> bool:
    from vitral.data.json_table import json_table  # which other folders do without

    try:
        return gives_classes(json_table(path))
    except DataError:
        return False


def _outside_classes(folder: Path, walked: Walk, files: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the tables by split without those in a folder that is a split or a class of images."""
    within = {path: Path(path).relative_to(folder).parent.parts for paths in files.values() for path in paths}
    if not any(within.values()):
        return dict(files)
    taken = _in_classes(walked)
    left = {
        split: [path for path in paths if not any(within[path][: len(top)] == top for top in taken)]
        for split, paths in files.items()
    }
    return {split: paths for split, paths in left.items() if paths}


def _in_classes(walked: Walk) -> set[tuple[str, ...]]:
    """Return the outermost folders of images that are splits or classes; none where there are not at least two classes."""
    return outermost(PurePosixPath(file.path).parts for file in walked.files if file.path.lower().endswith(EXTENSIONS))


def _numbered_lists(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return the lists of images beside the names of their classes in synsets.txt, as CVAT exports them, under any name."""
    beside = [file.path for file in walked.files if "/" not in file.path and file.path.endswith(LIST_SUFFIX)]
    lists = [str(folder / path) for path in beside if SYNSETS_FILE in beside and listed_classes(folder / path)]
    return {ALL: lists} if lists else {}


def not_named(folder: Path, walked: Walk, files: Mapping[str, Sequence[str]], listing: Listing) -> list[str]:
    """Return a note on images beside metadata files or lists that name others; none for other tables."""
    if not any(path.endswith((METADATA, LIST_SUFFIX)) for paths in files.values() for path in paths):
        return []
    named = {listing.store.name(entry.store_index) for images in listing.entries.values() for entry in images}
    images = [file.path for file in walked.files if file.path.lower().endswith(EXTENSIONS)]
    left = [path for path in images if str(folder / path) not in named]
    kind = PurePosixPath(next(path for paths in files.values() for path in paths)).name
    where = f"not in '{kind}' or any other of its lists"
    return [f"{counted(len(left), 'image')} in '{folder}', {where}, left out: {some(left)}."] if left else []


def table_files(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return the tables of a folder by split, which their names or folders begin with; empty if it has none.

    The form for a competition's answers is left out: what stands there as labels are none.
    """
    by_split: dict[str, list[str]] = {}
    tables = sorted(file.path for file in walked.files if file.path.lower().endswith(SUFFIXES))
    forms = [path for path in tables if ANSWERS in PurePosixPath(path).stem.lower()]
    if forms and len(forms) < len(tables):
        note(f"The form for answers is not read: {some(forms)}.")
        tables = [path for path in tables if path not in forms]
    for path, split in zip(tables, splits_of_files(tables), strict=True):
        by_split.setdefault(split, []).append(str(folder / path))
    if several := {name for paths in by_split.values() for name, count in _names(paths).items() if count > 1}:
        note(
            f"Tables of one name in several folders are read together ({some(several)}); if they are several sets, name one."
        )
    return by_split


def _names(paths: Sequence[str]) -> Counter[str]:
    return Counter(PurePosixPath(path).name for path in paths)


def _list_files(folder: Path, walked: Walk) -> dict[str, list[str]]:
    """Return a folder's lists of images by split, such as train.txt and test.txt; empty without one for training.

    A text file of such a name may be anything: only lists whose images are there count. Of lists that differ in further words
    those of the most classes are read, of several splits of one kind (train1.txt, train2.txt) the first.
    """
    kinds = _kinds_of_lists(folder, walked)
    if len(kinds) < 2:
        return next(iter(kinds.values()), {})
    words = max(kinds, key=lambda words: len(listed_classes(Path(kinds[words]["train"][0]))))
    others = [path for path in _named_as_lists(walked) if split_in(PurePosixPath(path).stem)[1] != words]
    note(f"Of several lists '{kinds[words]['train'][0]}' and those named like it are read, not {some(others)}.")
    return kinds[words]


def _kinds_of_lists(folder: Path, walked: Walk) -> dict[tuple[str, ...], dict[str, list[str]]]:
    """Return the lists of images of a folder by the further words in their names, and by split; those with one for training."""
    kinds: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for path in _named_as_lists(walked):
        split, words = split_in(PurePosixPath(path).stem)
        if split is not None and listed_classes(folder / path):
            kinds.setdefault(words, {}).setdefault(split, [str(folder / path)])
    for kind in kinds.values():
        both = kind.pop("trainval", None)
        if both is not None:
            kind.setdefault("train", both)
    ordered = sorted(kinds, key=lambda words: natural_key(" ".join(words)))
    return {words: kinds[words] for words in ordered if "train" in kinds[words]}


def unread_beside(folder: Path, walked: Walk, tables: Sequence[str]) -> list[str]:
    """Return notes on what may say more of a folder's images and is not read, because its folders name the classes."""
    notes = []
    if boxes := [file.path for file in walked.files if BOXES.search(file.path)]:
        notes.append(
            f"Boxes or captions as in COCO or YOLO are not read ({some(boxes)}): give each class a folder, or write a table of "
            "images and labels."
        )
    if unread := [file.path for file in walked.files if file.path.endswith(METADATA)]:
        notes.append(f"'{unread[0]}' in '{folder}' has no column of classes: folders name them.")
    if lists := _unread_lists(folder, walked):
        notes.append(
            f"Lists of images in '{folder}' are not read, for not all of their images are there with a class: {some(lists)}."
        )
    if tables:
        others = f" and {counted(len(tables) - 1, 'more table')} are" if len(tables) > 1 else " is"
        notes.append(
            f"'{tables[0]}'{others} not read: folders name the classes. To take the labels of a table of images, name it "
            "instead; where it lists other names of the classes, rename the folders."
        )
    return notes


def _unread_lists(folder: Path, walked: Walk) -> list[str]:
    """Return the lists of images by split, such as train.txt, of a folder that is read without them."""
    return [path for path in _named_as_lists(walked) if names_images(folder / path)]


def _named_as_lists(walked: Walk) -> list[str]:
    names = [PurePosixPath(path) for path in sorted(file.path for file in walked.files)]
    return [
        str(name)
        for name in names
        if name.suffix.lower() == LIST_SUFFIX and split_in(name.stem)[0] and len(name.parts) <= LIST_DEPTH
    ]
