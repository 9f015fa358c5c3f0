"""Oxford-IIIT Pet: images/ with a file an image, and annotations/trainval.txt and test.txt, which are the paper's splits.

A line is "Abyssinian_100 1 1 1": the image, the number of its breed, and two figures that classifiers do not need.
"""

from pathlib import Path

from vitral.data.listing import Listing
from vitral.data.names import some
from vitral.data.published.tree import Tree
from vitral.data.stored import Entry
from vitral.errors import DataError

TITLE = "Oxford-IIIT Pet"
IMAGE = r"images/([^/]+)\.jpe?g"
ARCHIVES = {"images": IMAGE, "annotations": r"annotations/trainval\.txt"}
ADVICE = "unpack images.tar.gz and annotations.tar.gz there"
LISTS = {"train": "trainval", "test": "test"}
PUBLISHED = {"train": 3680, "test": 3669}


def list_pets(path: Path) -> Listing:
    """Return the images of Oxford-IIIT Pet: a folder with images/ and annotations/, or with the authors' archives of them.

    Raises:
        DataError: a list or an image that it names is missing, an image is there twice, or a line is damaged.
    """
    tree = Tree(path, TITLE, ARCHIVES)
    images = tree.once(((match[1], index) for index, match in tree.matching(IMAGE)), "an image")
    breeds: dict[int, str] = {}
    entries: dict[str, list[Entry]] = {}
    missing: list[str] = []
    for split, name in LISTS.items():
        file = tree.file(f"annotations/{name}.txt", ADVICE)
        entries[split] = []
        for line in tree.lines(file):
            image, breed = _listed(line, breeds, f"'annotations/{name}.txt' in '{path}'")
            if image in images:
                entries[split].append(tree.entry(images[image], f"images/{image}.jpg", breed))
            else:
                missing.append(f"images/{image}.jpg")
    if missing:
        raise tree.incomplete(f"{some(missing)}, named in annotations/", ADVICE)
    return tree.listing("pets", entries, tuple(breeds[number] for number in sorted(breeds)), PUBLISHED)


def _listed(line: str, breeds: dict[int, str], where: str) -> tuple[str, str]:
    """Return the image and the breed of a line, and add the breed to those known by number."""
    image, _, rest = line.partition(" ")
    breed, underscore, _ = image.rpartition("_")
    number = rest.split(" ")[0]
    if not underscore or not number.isdecimal():
        raise DataError(
            f"The line '{line[:80]}' of {where} is not an image with the number of its breed; fetch it again."
        )
    if breeds.setdefault(int(number), breed) != breed:
        raise DataError(
            f"{where} gives breed {number} two names, '{breeds[int(number)]}' and '{breed}'; it is damaged, fetch it again."
        )
    return image, breed
