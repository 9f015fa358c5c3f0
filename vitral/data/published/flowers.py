"""Oxford Flowers 102: jpg/image_00001.jpg and on, with their classes in imagelabels.mat and the splits in setid.mat.

The paper's splits are the authors' own of 2008: `trnid` for training, `valid` for validation, `tstid`, the largest, for the
test. The authors give the classes numbers, 1 to 102, and no names.
"""

import io
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from vitral.data.listing import Listing
from vitral.data.names import some
from vitral.data.published.tree import Tree, read_matlab, whole_numbers
from vitral.data.stored import Entry
from vitral.errors import DataError

TITLE = "Oxford Flowers 102"
IMAGE = r"jpg/image_(\d+)\.jpe?g"
CLASSES = 102
SPLITS = {"train": "trnid", "validation": "valid", "test": "tstid"}
PUBLISHED = {"train": 1020, "validation": 1020, "test": 6149}


def list_flowers(path: Path) -> Listing:
    """Return the images of Oxford Flowers 102: a folder with jpg/ or 102flowers.tgz, imagelabels.mat and setid.mat.

    Raises:
        DataError: a file is missing or damaged, an image is there twice, or there are not as many labels as images.
    """
    tree = Tree(path, TITLE, {"102flowers": IMAGE})
    images = tree.once(((int(match[1]), index) for index, match in tree.matching(IMAGE)), "an image")
    if not images:
        raise tree.incomplete("images", "unpack 102flowers.tgz there")
    labels = _numbers(tree, "imagelabels.mat", "labels")
    if len(labels) != len(images):
        raise DataError(
            f"'imagelabels.mat' in '{path}' has {len(labels):,} labels for {len(images):,} images; fetch 102flowers.tgz "
            "and imagelabels.mat again, both of the same version."
        )
    if wrong := sorted(set(labels.tolist()) - set(range(1, CLASSES + 1))):
        raise DataError(f"'imagelabels.mat' in '{path}' has the label {wrong[0]}; the classes are 1 to {CLASSES}.")
    entries = {split: _entries(tree, images, labels, name) for split, name in SPLITS.items()}
    return tree.listing("flowers102", entries, tuple(str(number) for number in range(1, CLASSES + 1)), PUBLISHED)


def _numbers(tree: Tree, file: str, variable: str) -> Int64[np.ndarray, " numbers"]:
    index = tree.file(file, f"put {file} beside jpg/")
    where = f"'{file}' in '{tree.title}'"
    numbers = whole_numbers(read_matlab(io.BytesIO(tree.content(index)), where).get(variable))
    if numbers is None:
        raise DataError(
            f"{where} has no list '{variable}' of whole numbers from 1 on; it is damaged or not {TITLE}'s, fetch it again."
        )
    return numbers


def _entries(tree: Tree, images: dict[int, int], labels: Int64[np.ndarray, " images"], variable: str) -> list[Entry]:
    numbers = _numbers(tree, "setid.mat", variable).tolist()
    if missing := [f"jpg/image_{number:05d}.jpg" for number in numbers if number not in images or number > len(labels)]:
        raise tree.incomplete(f"{some(missing)}, named in setid.mat", "unpack 102flowers.tgz there")
    return [tree.entry(images[number], f"jpg/image_{number:05d}.jpg", str(labels[number - 1])) for number in numbers]
