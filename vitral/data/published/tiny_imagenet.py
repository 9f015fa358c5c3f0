"""Tiny ImageNet (tiny-imagenet-200): train/n01443537/images/, and val/images/ with a list of the classes.

A line of val/val_annotations.txt is "val_0.JPEG", a tab, "n03444034", and a box that classifiers do not need. The labels of the
test images are not published, so results are on the validation images.
"""

import re
from pathlib import Path

from vitral.data.listing import Listing
from vitral.data.names import some
from vitral.data.published.tree import Tree
from vitral.data.stored import Entry
from vitral.errors import DataError

TITLE = "Tiny ImageNet"
LIST = "val/val_annotations.txt"
TRAINING = r"train/(n\d{8})/images/([^/]+\.jpe?g)"
VALIDATION = r"val/(?:n\d{8}/)?(?:images/)?([^/]+\.jpe?g)"  # many sort them into folders of classes
ADVICE = "unpack tiny-imagenet-200.zip there"
PUBLISHED = {"train": 100_000, "test": 10_000}


def list_tiny_imagenet(path: Path) -> Listing:
    """Return the images of Tiny ImageNet, by its folder or archive; its validation images are the split "test".

    Raises:
        DataError: the list or an image that it names is missing, an image is there twice, or a line is damaged.
    """
    tree = Tree(path, TITLE, {"tiny-imagenet-200": re.escape(LIST)})
    training = tree.once((((match[1], match[2]), index) for index, match in tree.matching(TRAINING)), "an image")
    scored = tree.once(((match[1], index) for index, match in tree.matching(VALIDATION)), "an image")
    train = [
        tree.entry(index, f"train/{name}/images/{image}", name) for (name, image), index in sorted(training.items())
    ]
    if not train:
        raise tree.incomplete("training images", ADVICE)
    classes = sorted({name for name, _ in training})
    test: list[Entry] = []
    missing: list[str] = []
    for line in tree.lines(tree.file(LIST, ADVICE)):
        image, _, rest = line.partition("\t")
        name = rest.split("\t")[0]
        if name not in classes:
            raise DataError(
                f"The line '{line[:80]}' of '{LIST}' in '{path}' is not an image with one of the {len(classes)} classes."
            )
        if image in scored:
            test.append(tree.entry(scored[image], f"val/images/{image}", name))
        else:
            missing.append(f"val/images/{image}")
    if missing:
        raise tree.incomplete(f"{some(missing)}, named in {LIST}", ADVICE)
    return tree.listing("tiny-imagenet", {"train": train, "test": test}, tuple(classes), PUBLISHED)
