"""Names in data: which are splits, their natural order, and files at an address such as s3://bucket/train.parquet (fsspec)."""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from vitral.errors import DataError, one_line
from vitral.paths import is_regular, refuse_endless
from vitral.transfers import bound_requests

NAMED = 5  # names that a message lists
NAMES_FILE = "classes.txt"  # next to images whose classes are numbers
SHARDS_NAMES_FILES = (NAMES_FILE, "classnames.txt")  # likewise, next to shards
SYNSETS_FILE = "synsets.txt"  # likewise, as CVAT and Caffe call it
NAMES_LIMIT = 1 << 26  # bytes
SAVED = ("dataset_info.json", "dataset_dict.json")  # that the `save_to_disk` of `datasets` writes
ALL = "all"  # the split of images that are in none
SPLITS = {
    "train": ("train", "training", "trainset", "traindata"),
    "validation": ("val", "valid", "validate", "validation", "dev", "eval", "valset", "valdata"),
    "test": ("test", "testing", "testset", "testdata"),
}
# What fsspec needs for the usual protocols; all of it is in the extra.
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp", "https": "aiohttp"}
EXTRA = "vitral[remote]"
SERIES_WORDS = re.compile(
    r"(?<![^\W\d_])(frame|video|vid|clip|burst|seq|sequence|scan|slice|patient|subject|person)s?(?![^\W\d_])", re.I
)
UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # what Label Studio puts before the name of a file that is uploaded
LAST_NUMBER = re.compile(r"\d{1,18}(?!.*\d)", re.ASCII)
WORD_ENDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=\d)")  # within TrainImages and train1
LIKE_SPLITS = re.compile(r"(train|test|val)", re.I)  # how names of splits begin in other languages, too
PART_OF_SET = re.compile(
    r"(?:part|batch|chunk|shard|fold|volume|images?|photo|ds|dataset|tile|slide|seq|sequence|video|patient|session|site)s?[\s_-]*\d+",
    re.I,
)  # how its name ends
BLOCK = 4 << 20  # bytes fetched at once over a network


def is_saved(folder: Path, *, alone: bool = False) -> bool:
    """Tell whether a folder was written by the `save_to_disk` of `datasets`, or, unless `alone`, holds such for each split."""
    return any((folder / name).is_file() for name in SAVED) or (not alone and bool(saved_splits(folder)))


def saved_splits(folder: Path) -> list[str]:
    """Return the folders in a folder that are splits and were written by `save_to_disk`."""
    names = (name for names in SPLITS.values() for name in names)
    return [name for name in names if all((folder / name / file).is_file() for file in (SAVED[0], "state.json"))]


def series_in(images: Iterable[tuple[str, Collection[str]]]) -> dict[str, list[str]]:
    """Return the images, given as names with classes, of each series that their numbering suggests: frames, bursts, patients.

    A series is named by such a word, as in "frame_0001", or by a number of its own, as in "patient12_03"; of the latter there
    are several in a folder, since "n01443537_12" is an image of a class. Its images' numbers follow one another, with gaps.
    """
    numbered: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for name, classes in images:
        folder, stem = folder_and_stem(name)
        number = LAST_NUMBER.search(stem)
        if number is not None:
            own = "" if any(label.endswith(folder.name) for label in classes) else folder.name
            place = folder if not own else folder.parent
            numbered[str(place), f"{own}/{stem[: number.start()]}*{stem[number.end() :]}"][int(number[0])] = name
    long = {
        key: found for key, found in numbered.items() if len(found) > 2 and max(found) - min(found) < 3 * len(found)
    }
    several = Counter(place for place, series in long if any(letter.isdecimal() for letter in series))
    return {
        f"{place}/{series}": list(found.values())
        for (place, series), found in long.items()
        if SERIES_WORDS.search(series) or (several[place] > 1 and any(letter.isdecimal() for letter in series))
    }


def folder_and_stem(name: str) -> tuple[PurePosixPath, str]:
    """Return the folder of an image and its name without a suffix; of an example in a shard those in the shard."""
    _, in_shard, own = name.rpartition(".tar:")
    path = PurePosixPath(own)
    return path.parent, path.name if in_shard else path.stem


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sorting key that puts 2 before 10, however many digits a number has; of two names no two keys are equal."""
    parts = re.split(r"(\d+)", name)
    return (*(_number(part) if part.isdecimal() else (1, 0, part) for part in parts if part), (-1, 0, name))


def _number(digits: str) -> tuple[int, int, str]:
    plain = digits if digits.isascii() else "".join(str(unicodedata.decimal(digit)) for digit in digits)
    shortest = plain.lstrip("0")
    return 0, len(shortest), shortest


def one_spelling(counts: Mapping[str, int], preferred: Collection[str] = ()) -> dict[str, str]:
    """Return for each name that has another Unicode form among the names the spelling of all of them.

    A preferred one counts, or the most frequent; of equally frequent ones the composed form.
    """
    forms: dict[str, list[str]] = {}
    for name in counts:
        if not name.isascii():
            forms.setdefault(composed(name), []).append(name)
    known = {composed(name): name for name in preferred if not name.isascii()}
    chosen = {
        form: known.get(form) or max(names, key=lambda name: (counts[name], name == composed(name)))
        for form, names in forms.items()
    }
    return {name: chosen[form] for form, names in forms.items() for name in names if name != chosen[form]}


def are_parts(names: Collection[str]) -> bool:
    """Tell whether folders are called like the parts of one set, such as images_001 and images_002, and not like classes."""
    return len(names) > 1 and all(
        (found := PART_OF_SET.search(name)) is not None and found.end() == len(name) for name in names
    )


def alike_names(names: Sequence[str]) -> list[list[str]]:
    """Return the class names that differ only in capitals or spaces, those that are alike together."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault("".join(name.casefold().replace("_", " ").split()), []).append(name)
    return [found for found in alike.values() if len(found) > 1]


def doubtful_names(names: Sequence[str]) -> list[str]:
    """Return notes on class names that may be mistakes: two that differ in capitals or spaces alone, splits, parts of a set."""
    pairs = [" and ".join(f"'{name}'" for name in found) for found in alike_names(names)]
    notes = []
    if pairs:
        notes.append(
            f"Classes whose names differ only in capitals or spaces: {some(pairs)}; give those that are the same one name."
        )
    if len(keys := {name.partition("=")[0] for name in names if "=" in name}) == 1 and all(
        "=" in name for name in names
    ):
        notes.append(
            f"The classes are named with '{keys.pop()}=': {some(names)}; rename the folders if it is no part of them."
        )
    if are_parts(names):
        notes.append(f"The classes are called like parts of one set, not like classes: {some(names)}.")
    if splits := [name for name in names if split_named(name)] or like_splits(names):
        notes.append(
            f"'{splits[0]}' is read as a class, though a split is called so; put training images into 'train'."
        )
    return notes


def like_splits(names: Sequence[str]) -> list[str]:
    """Return the names if all begin like a split's, one of them like that of training images: Trainingsdaten, Testdaten."""
    begun = [found[0].lower() for name in names if (found := LIKE_SPLITS.match(name))]
    return list(names) if len(begun) == len(names) and begun.count("train") == 1 else []


def composed(name: str) -> str:
    """Return a name with its letters and accents composed (NFC), the form in which names are compared."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def common_folder(files: Sequence[str]) -> str:
    """Return the folder, or address, in which all of some files are; empty where that is the current one."""
    return os.path.commonprefix([file.rpartition("/")[0] + "/" for file in files]).rpartition("/")[0]


def split_named(name: str) -> str | None:
    """Return the split that a folder, file or column value of that name stands for, or None."""
    return next((split for split, names in SPLITS.items() if name.lower() in names), None)


def split_of_file(name: str) -> str:
    """Return the split that a file's name begins with, such as "train-00000-of-00010.parquet", or that of its folder."""
    parts = PurePosixPath(name).parts
    stem = parts[-1].split(".")[0]
    candidates = (*parts[:-1], stem, *(stem.split(mark)[0] for mark in "-_"))
    return next((split for candidate in candidates if (split := split_named(candidate))), ALL)


def splits_of_files(names: Sequence[str]) -> list[str]:
    """Return the split of each of some files, see `split_of_file`.

    Where that gives none, any word of their names may be one: "imagenet-train-0000.tar" beside "imagenet-val-0000.tar".
    """
    begun = [split_of_file(name) for name in names]
    spoken = [split_within(PurePosixPath(name).name) or ALL for name in names]
    return spoken if set(begun) == {ALL} and "train" in spoken else begun


def split_within(name: str) -> str | None:
    """Return the split of which a name speaks in one of its words, such as "training_set", "seg_test" or "val2017", or None."""
    words = re.split(r"[\s_.-]+", WORD_ENDS.sub("_", name))
    found = {split for word in words if (split := split_named(word))}
    return found.pop() if len(found) == 1 else None


def split_in(stem: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the split that one word of a file's name is, and its other words: TrainImages, test_list, images_val, train1.

    "trainval" is a split of its own here: the images to train on and those to choose by.
    """
    words = re.split(r"[\s_.-]+", WORD_ENDS.sub("_", stem).lower())
    splits = ["trainval" if word == "trainval" else split_named(word) for word in words]
    found = [split for split in splits if split is not None]
    if len(found) != 1:
        return None, ()
    return found[0], tuple(word for word, split in zip(words, splits, strict=True) if split is None)


def some(names: Collection[str]) -> str:
    """Return the first names in natural order, and how many there are in all."""
    first = sorted(names, key=natural_key)[:NAMED]
    return ", ".join(first) + (f", … ({len(names)} in all)" if len(names) > len(first) else "")


def side_by_side(known: Collection[str], named: Collection[str]) -> str:
    """Return a sentence that shows a classifier's classes beside the data's, where they do not match."""
    sentence = f"The classifier has {some(known)}; the data have {some(named)}."
    theirs, ours = set(named) - set(known), set(known) - set(named)
    if theirs and len(theirs) < len(set(named)):  # otherwise both lists show it
        sentence += f" Only the data have {some(theirs)}" + (
            f"; only the classifier has {some(ours)}." if ours else "."
        )
    return sentence


def unread_classes(named: Collection[str], read: Collection[str]) -> list[str]:
    """Return a note on the classes without a readable image; none where every class has one."""
    missing = set(named) - set(read)
    if not missing:
        return []
    return [f"No readable image of {len(missing)} of the {len(set(named))} classes: {some(missing)}."]


def names_in(path: Path) -> tuple[str, ...] | None:
    """Return the class names in a text file, one per line, or raise DataError if it cannot be read; None if there is none."""
    refuse_endless(path, DataError)
    if not is_regular(path):
        return None
    try:
        with open(path, encoding="utf-8-sig") as file:
            return listed_names(file.read(NAMES_LIMIT))
    except (OSError, ValueError) as error:
        raise DataError(
            f"'{path}' cannot be read as class names, one per line in UTF-8 ({one_line(error)})."
        ) from error


def names_beside(folder: Path) -> tuple[str, ...] | None:
    """Return the class names that a file in a folder lists, see `names_in`; None if there is no such file."""
    names = names_in(folder / NAMES_FILE)
    return names_in(folder / SYNSETS_FILE) if names is None else names


def listed_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, one per line."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def is_address(spec: str) -> bool:
    """Tell whether a name is an address, not a path."""
    return "://" in spec


@contextmanager
def address_errors(address: str) -> Iterator[None]:
    """Turn whatever a file system raises into one line that names the address.

    Raises:
        DataError: it cannot be reached, or a package for it is missing; the message names it.
    """
    if address.startswith("hf://"):
        bound_requests()
    try:
        yield
    except DataError:
        raise
    except ImportError as error:
        protocol = address.partition("://")[0]
        package = PACKAGES.get(protocol)
        what = f"{package}: pip install '{EXTRA}'" if package else one_line(error)
        raise DataError(f"'{address}' needs a package for {protocol}:// that is not installed, {what}.") from error
    except Exception as error:
        raise DataError(f"'{address}' cannot be reached ({one_line(error)}).") from error


def find(root: str, pattern: str) -> tuple[list[str], str]:
    """Return the sorted addresses below a root that match a pattern such as "**/*.tar", and the root as their prefix.

    Raises:
        DataError: the root cannot be reached.
    """
    import fsspec  # which nothing else here needs, and a prediction of plain files does without

    with address_errors(root):
        filesystem, path = fsspec.url_to_fs(root)
        path = path.rstrip("/")
        files = sorted(filesystem.glob(f"{path}/{pattern}"))
        return [filesystem.unstrip_protocol(file) for file in files], filesystem.unstrip_protocol(path)


def open_address(address: str) -> Any:  # noqa: ANN401  # fsspec's own file
    """Return the file at an address, open for reading."""
    import fsspec  # as above

    return fsspec.open(address, "rb", block_size=BLOCK).open()


def open_anywhere(path: str) -> Any:  # noqa: ANN401  # fsspec's own file
    """Return the file at a path or an address, open for reading.

    Raises:
        DataError: the address cannot be reached, or the path is of a pipe or a device.
    """
    if is_address(path):
        with address_errors(path):
            return open_address(path)
    refuse_endless(path, DataError)
    return open(path, "rb")
