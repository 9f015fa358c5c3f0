"""ImageNet as its authors give it out (ILSVRC 2012), its reassessed labels (ReaL), and ImageNet-V2.

| what | form |
|---|---|
| training | ILSVRC2012_img_train.tar, a tar with one tar a class, those tars, or folders n01440764/ and on |
| validation, on which papers report | ILSVRC2012_img_val.tar, or its images, with the devkit; or in folders n01440764/ |
| devkit | ILSVRC2012_devkit_t12.tar.gz, or unpacked: ILSVRC2012_validation_ground_truth.txt and meta.mat |
| ReaL | real.json of github.com/google-research/reassessed-imagenet |
| ImageNet-V2 | imagenetv2-matched-frequency.tar.gz or another of the three, or unpacked: folders 0/ to 999/ |

Nothing is unpacked, tars in a tar neither.
"""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from vitral.data.listing import Listing, Opening
from vitral.data.names import some, split_named
from vitral.data.published.imagenet_classes import COUNT, in_words_of, synsets
from vitral.data.published.tree import Tree, Unpacked, counted, read_matlab, whole_numbers
from vitral.data.stored import Entry
from vitral.errors import DataError
from vitral.paths import FoundFile
from vitral.tasks.any_right_label import ANY_RIGHT_LABEL

TITLE = "ImageNet"
TRAINING = r"(n\d{8})/(?!ILSVRC2012_val_\d+\.jpe?g$)[^/]+\.jpe?g"
CLASS_TAR = r"(n\d{8})\.tar"
VALIDATION = r"(?:(n\d{8})/)?ILSVRC2012_val_(\d+)\.jpe?g"
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
DEVKIT = "put ILSVRC2012_devkit_t12.tar.gz there"
PUBLISHED = {"train": 1_281_167, "test": 50_000}
HELD_OUT = 0.01  # of the training images, as in the paper's development splits
REAL = "real.json"
REAL_TITLE = "ImageNet with reassessed labels (ReaL)"
V2_TITLE = "ImageNet-V2"
V2_IMAGE = r"(\d+)/[^/]+\.jpe?g"
V2_PUBLISHED = {"test": 10_000}


def _class_of(path: str, pattern: str) -> str | None:
    """Return the class, such as "n01440764", of a training image or of a class's tar; None of any other path."""
    match = re.fullmatch(f"(?:.*/)?{pattern}", path, re.IGNORECASE)
    return None if match is None or _is_scored_on(path.rpartition("/")[0]) else match[1]


@lru_cache(maxsize=2 * COUNT)  # a million images are in a thousand folders
def _is_scored_on(folder: str) -> bool:
    return any(split_named(part) in ("validation", "test") for part in folder.split("/"))


def _trains(path: str) -> bool:
    return _class_of(path, TRAINING) is not None or _class_of(path, CLASS_TAR) is not None


def _class_tars(files: Sequence[FoundFile]) -> list[str]:
    """Return the tars of classes that are not unpacked."""
    tars = {file.path: own for file in files if (own := _class_of(file.path, CLASS_TAR)) is not None}
    unpacked = {_class_of(file.path, TRAINING) for file in files} if tars else set()
    return [path for path, own in tars.items() if own not in unpacked]


ARCHIVES: dict[str, Unpacked] = {
    "ILSVRC2012_img_train": _trains,
    "ILSVRC2012_img_val": r"ILSVRC2012_val_\d+\.jpe?g",
    "ILSVRC2012_devkit_t12": re.escape(TRUTH),
}


def list_imagenet(path: Path, how: Opening) -> Listing:
    """Return ImageNet's images: its validation images are the split "test", since the results of papers are on them.

    Raises:
        DataError: the labels of the validation images are missing or not as many, an image is there twice, or there are no
            images.
    """
    tree = Tree(path, TITLE, ARCHIVES, _class_tars)
    names = dict(zip(synsets(), in_words_of(how.class_names), strict=True))
    validation = _validation(tree)
    train = _training(tree, names)
    if not train and not validation:
        raise tree.incomplete(
            "images of it", "put ILSVRC2012_img_val.tar or ILSVRC2012_img_train.tar there, or their folders"
        )
    entries = {"train": train} if train else {}
    if validation:
        entries["test"] = _labelled(tree, validation, names)
    return replace(tree.listing("imagenet", entries, tuple(names.values()), PUBLISHED), held_out=HELD_OUT)


def list_imagenet_real(path: Path, how: Opening) -> Listing:
    """Return ImageNet's validation images with all the labels that are right for each; those without any are left out.

    Raises:
        DataError: real.json is missing or damaged, or has not as many labels as there are images.
    """
    tree = Tree(path, REAL_TITLE, {name: unpacked for name, unpacked in ARCHIVES.items() if "val" in name})
    names = in_words_of(how.class_names)
    images = [index for index, _ in _validation(tree).values()]
    if not images:
        raise tree.incomplete("validation images", "put ILSVRC2012_img_val.tar there, or unpack it there")
    index = tree.file(REAL, "fetch it from github.com/google-research/reassessed-imagenet")
    labels = _real_labels(tree.content(index), f"'{REAL}' in '{path}'")
    _same_length(len(labels), len(images), REAL, path)
    entries = [
        tree.entry(image, _short(tree, image), *(names[label] for label in right))
        for image, right in zip(images, labels, strict=True)
        if right
    ]
    unlabelled = len(images) - len(entries)
    return Listing(
        title=str(path),
        name="imagenet-real",
        store=tree.store,
        entries={"test": entries},
        class_names=names,
        task=ANY_RIGHT_LABEL,
        notes=(
            *counted({"test": images}, {"test": PUBLISHED["test"]}, TITLE),
            f"{unlabelled:,} of the {len(images):,} images have no right label among the {COUNT:,} and are left out.",
        ),
    )


def list_imagenet_v2(path: Path, how: Opening) -> Listing:
    """Return ImageNet-V2's images, whose folders are the classes' indices in the official order.

    Raises:
        DataError: there are no such folders, a number is no class, or there are several of the three sets.
    """
    tree = Tree(path, V2_TITLE, {r"imagenetv2-[a-z0-9.-]+": V2_IMAGE})
    names = in_words_of(how.class_names)
    images = [(index, int(match[1])) for index, match in tree.matching(V2_IMAGE)]
    if not images:
        raise tree.incomplete("images in folders 0/ to 999/", "unpack imagenetv2-matched-frequency.tar.gz there")
    folders = {tree.files[index].path.rpartition("/")[0].rpartition("/")[0] or "." for index, _ in images}
    if len(folders) > 1:
        raise DataError(f"'{path}' holds several sets of images (in {some(folders)}); name one of them.")
    if wrong := [label for _, label in images if label >= COUNT]:
        raise DataError(f"'{path}' has a folder {wrong[0]}/, but {V2_TITLE}'s classes are 0 to {COUNT - 1}.")
    entries = {
        "test": [
            tree.entry(index, _with_folder(tree, index), names[label])
            for index, label in sorted(images, key=lambda pair: (pair[1], tree.files[pair[0]].path))
        ]
    }
    return tree.listing("imagenet-v2", entries, names, V2_PUBLISHED)


def _with_folder(tree: Tree, index: int) -> str:
    return "/".join(tree.files[index].path.split("/")[-2:])


def _short(tree: Tree, index: int) -> str:
    return tree.files[index].path.rpartition("/")[2]


def _validation(tree: Tree) -> dict[int, tuple[int, str | None]]:
    """Return the validation images by number, ascending: of each its index and, where a folder says it, its class."""
    matches = tree.matching(VALIDATION)
    classes = {index: match[1] for index, match in matches}
    images = tree.once(((int(match[2]), index) for index, match in matches), "a validation image")
    return {number: (index, classes[index]) for number, index in sorted(images.items())}


def _training(tree: Tree, names: dict[str, str]) -> list[Entry]:
    classes = {index: own for index, file in enumerate(tree.files) if (own := _class_of(file.path, TRAINING))}
    if unknown := set(classes.values()) - set(names):
        raise DataError(f"'{tree.title}' has a folder {min(unknown)}/, which is none of {TITLE}'s {COUNT:,} classes.")
    images = tree.once(((_with_folder(tree, index), index) for index in classes), "an image")
    return [tree.entry(index, name, names[classes[index]]) for name, index in sorted(images.items())]


def _labelled(tree: Tree, images: dict[int, tuple[int, str | None]], names: dict[str, str]) -> list[Entry]:
    """Return the validation images with their classes: of their folders, or of the devkit."""
    classes = {number: own for number, (_, own) in images.items() if own is not None}
    if len(classes) < len(images):
        truth = _ground_truth(tree)
        _same_length(len(truth), len(images), TRUTH, tree.title)
        classes = dict(zip(images, truth, strict=True))
    if wrong := sorted(set(classes.values()) - set(names)):
        raise DataError(
            f"'{tree.title}' has validation images of {wrong[0]}, which is none of {TITLE}'s {COUNT:,} classes."
        )
    return [tree.entry(index, _short(tree, index), names[classes[number]]) for number, (index, _) in images.items()]


def _same_length(labels: int, images: int, file: str, path: Path) -> None:
    if labels != images:
        raise DataError(
            f"'{file}' has labels for {labels:,} images, but there are {images:,} validation images in '{path}'; "
            "they are not of the same set, or one of the two is not complete."
        )


def _ground_truth(tree: Tree) -> list[str]:
    """Return the class of each validation image, in order, from the devkit's numbers, which are not the official indices."""
    file = tree.file(TRUTH, DEVKIT, named=f"labels of the validation images ('{TRUTH}')")
    meta = tree.file(META, DEVKIT)
    numbers = _devkit_numbers(read_matlab(io.BytesIO(tree.content(meta)), f"'{META}' in '{tree.title}'"), tree)
    lines = tree.lines(file)
    if wrong := [(place, line) for place, line in enumerate(lines, 1) if line not in numbers]:
        place, line = wrong[0]
        raise DataError(
            f"Line {place} of '{TRUTH}' in '{tree.title}' is '{line[:40]}', no number of a class; {DEVKIT} again."
        )
    return [numbers[line] for line in lines]


def _devkit_numbers(variables: dict[str, Any], tree: Tree) -> dict[str, str]:
    try:
        rows = variables["synsets"]
        known = whole_numbers([row["ILSVRC2012_ID"] for row in rows])
        if known is None:
            raise ValueError(rows)
        numbers = {str(number): str(row["WNID"]) for number, row in zip(known.tolist(), rows, strict=True)}
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"'{META}' in '{tree.title}' is not the devkit's list of classes; {DEVKIT} again.") from error
    return {number: synset for number, synset in numbers.items() if synset in set(synsets())}


def _real_labels(content: bytes, where: str) -> list[list[int]]:
    try:
        labels = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} cannot be read as JSON ({error}); fetch it again.") from error
    if not isinstance(labels, list) or not all(isinstance(right, list) for right in labels):
        raise DataError(f"{where} is not a list with a list of classes for each image; fetch it again.")
    for number, right in enumerate(labels, 1):
        if wrong := [label for label in right if type(label) is not int or not 0 <= label < COUNT]:
            raise DataError(
                f"{where} has the class {wrong[0]!r} for image {number}; they are 0 to {COUNT - 1}; fetch it again."
            )
    return labels
