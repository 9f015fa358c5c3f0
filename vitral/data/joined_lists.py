"""Folders whose authors say in several files what is in each image: CUB-200-2011 and its like, and PASCAL VOC's form.

| form | files |
|---|---|
| CUB, NABirds | images.txt, image_class_labels.txt and train_test_split.txt, joined by the images' ids, and classes.txt |
| VOC | JPEGImages/ID.jpg, Annotations/ID.xml with the objects in it, and the splits in ImageSets/Main/train.txt and so on |

An image in VOC's form has the classes of all of its objects, those marked as difficult among them.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from vitral.data.find_images import ImageFinder
from vitral.data.listing import Listing
from vitral.data.names import ALL, NAMES_FILE, natural_key, some
from vitral.data.path_table import Row, bad_row, listing_of
from vitral.data.source import BadImage
from vitral.data.stored import UNREAD
from vitral.data.text_table import read_text
from vitral.errors import DataError, one_line
from vitral.images.decode import EXTENSIONS
from vitral.paths import Walk, refuse_endless

# The lists of CUB.
IMAGES = "images.txt"
LABELS = "image_class_labels.txt"
SPLIT = "train_test_split.txt"
# The folders of VOC.
PHOTOS = "JPEGImages"
OBJECTS = "Annotations"
SETS = "ImageSets/Main"
# In this order: the images of train and val are those of trainval, too.
SET_FILES = {"train": "train", "val": "validation", "test": "test", "trainval": "train"}
LARGEST = 1 << 22  # bytes of a file of objects
Lister = Callable[[str, str, Path], Listing]  # given the data's title and name, and the folder of the lists


def list_joined(folder: Path, walked: Walk) -> Listing | None:
    """Return the images of a folder in one of the forms of the module's table, by split; None for any other folder.

    Raises:
        DataError: there are several such folders in it, a list cannot be read, or none of its images exists.
    """
    joined = joined_in(file.path for file in walked.files)
    if not joined:
        return None
    if len(joined) > 1:
        raise DataError(f"'{folder}' holds several datasets: {some(joined)}; name the folder of one of them.")
    inside, listed = joined.popitem()
    return listed(str(folder), folder.resolve().name, folder / inside)


def joined_in(names: Iterable[str]) -> dict[str, Lister]:
    """Return the folders among files that are in one of the forms, each with what lists its images."""
    files: dict[str, set[str]] = {}
    for name in map(PurePosixPath, names):
        files.setdefault(str(name.parent), set()).add(name.name)
    found: dict[str, Lister] = {
        folder: _list_cub for folder, inside in files.items() if {IMAGES, LABELS, SPLIT} <= inside
    }
    for folder in files:
        around = PurePosixPath(folder).parent
        beside = files.get(str(around / OBJECTS), ())
        if PurePosixPath(folder).name == PHOTOS and any(name.lower().endswith(".xml") for name in beside):
            found[str(around)] = _list_voc
    return found


def _list_cub(title: str, name: str, folder: Path) -> Listing:
    labels, training, called = (_by_id(folder / file) for file in (LABELS, SPLIT, NAMES_FILE))
    used = sorted({*labels.values()}, key=natural_key)
    names = {number: called.get(number, number) for number in used}
    if len({*names.values()}) < len(used):  # of equal names the numbers tell the classes apart
        names = {number: number for number in used}
    table = folder / IMAGES
    images = _by_id(table)
    bad: list[BadImage] = []
    rows: list[Row] = []
    found = ImageFinder(table).find(list(images.values()))
    for (number, image), file in zip(images.items(), found, strict=True):
        place = f"image {number}"
        if number not in labels or training.get(number) not in ("0", "1"):
            bad.append(bad_row(table, place, f"has no class in {LABELS} or no split in {SPLIT}"))
        else:
            split = "train" if training[number] == "1" else "test"
            rows.append(Row(image, (names[labels[number]],), split, file, place, str(table)))
    notes = [f"Classes and splits are those of {LABELS} and {SPLIT} in '{folder}'."]
    return listing_of(title, name, rows, several=False, class_names=tuple(names.values()), notes=notes, bad=bad)


def _by_id(path: Path) -> dict[str, str]:
    """Return what the lines of a list say of each id, behind the first space; nothing where there is no such list."""
    if path.name == NAMES_FILE and not path.is_file():
        return {}
    lines = (line.strip().partition(" ") for line in read_text(path)[0].splitlines())
    return {number: said.strip() for number, _, said in lines if said}


def _list_voc(title: str, name: str, folder: Path) -> Listing:
    splits = _voc_splits(folder)
    found = ImageFinder(folder / PHOTOS / "ImageSets").find(list(splits))  # as if a list lay beside the images
    bad: list[BadImage] = []
    rows: list[Row] = []
    for (image, split), file in zip(splits.items(), found, strict=True):
        try:
            classes = _objects(folder / OBJECTS / f"{image}.xml")
        except DataError as error:
            bad.append(BadImage(file.path, str(error).rstrip("."), listed=True))
            continue
        rows.append(Row(image, classes, split, file, image, str(folder / OBJECTS)))
    notes = [f"Classes are those of the objects in '{folder / OBJECTS}'; their boxes are not read."]
    several = any(len(row.classes) != 1 for row in rows)
    return listing_of(title, name, rows, several=several, class_names=None, notes=notes, bad=bad)


def listed_splits(lines: Callable[[str], Sequence[str]], sets: str = SETS) -> dict[str, str]:
    """Return the split of each image by its id, as VOC's lists say.

    Args:
        lines: Gives the lines of a list by its path; none where there is no such list.
        sets: The folder of the lists.
    """
    splits: dict[str, str] = {}
    for file, split in SET_FILES.items():
        for line in lines(f"{sets}/{file}.txt"):
            if line.strip():
                splits.setdefault(line.split()[0], split)
    return splits


def _voc_splits(folder: Path) -> dict[str, str]:
    """Return the split of each image by its id, as the lists of a folder say; of all images where there are no lists."""
    if splits := listed_splits(
        lambda name: read_text(folder / name)[0].split("\n") if (folder / name).is_file() else ()
    ):
        return splits
    images = sorted(path.name for path in (folder / PHOTOS).iterdir() if path.name.lower().endswith(EXTENSIONS))
    return {PurePosixPath(image).stem: ALL for image in images}


def _objects(path: Path) -> tuple[str, ...]:
    """Return the names of the objects in an image, each once; unknown ones where there is no such file.

    Raises:
        DataError: it cannot be read.
    """
    refuse_endless(path, DataError)
    if not path.is_file():
        return UNREAD
    try:
        with open(path, "rb") as file:
            root = ElementTree.fromstring(file.read(LARGEST))
    except (OSError, ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"'{path}' cannot be read as a list of objects ({one_line(error)}).") from error
    names = ((item.findtext("name") or "").strip() for item in root.iter("object"))
    return tuple(dict.fromkeys(filter(None, names)))
