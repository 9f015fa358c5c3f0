"""The published datasets by name: "cifar10:FOLDER" and so on, as `open_data` takes them."""

from collections.abc import Callable, Iterable
from pathlib import Path

from vitral.data.listing import Listing, Opening
from vitral.data.published.cifar import CIFAR10, CIFAR100, CIFAR100_COARSE, list_cifar
from vitral.data.published.flowers import list_flowers
from vitral.data.published.imagenet import list_imagenet, list_imagenet_real, list_imagenet_v2
from vitral.data.published.pets import list_pets
from vitral.errors import DataError
from vitral.paths import FoundFile, from_home

PUBLISHED: dict[str, Callable[[Path, Opening], Listing]] = {
    "cifar10": lambda path, how: list_cifar(CIFAR10, path),
    "cifar100": lambda path, how: list_cifar(CIFAR100, path),
    "cifar100-coarse": lambda path, how: list_cifar(CIFAR100_COARSE, path),
    "flowers102": lambda path, how: list_flowers(path),
    "imagenet": list_imagenet,
    "imagenet-real": list_imagenet_real,
    "imagenet-v2": list_imagenet_v2,
    "pets": lambda path, how: list_pets(path),
}

# Files by which a published dataset is recognised where its name is missing, because its folders are not its classes.
SIGNS = {
    "data_batch_1.bin": "cifar10",
    "data_batch_1": "cifar10",
    "fine_label_names.txt": "cifar100",
    "imagelabels.mat": "flowers102",
    "annotations/trainval.txt": "pets",
}


def refuse_unnamed(path: Path, files: Iterable[FoundFile]) -> None:
    """Refuse a folder that is a published dataset in its authors' form, but was not named as one.

    Raises:
        DataError: it is, which says how to name it.
    """
    for file in files:
        folder, _, name = file.path.rpartition("/")
        dataset = SIGNS.get(name) or SIGNS.get(f"{folder.rpartition('/')[2]}/{name}")
        if dataset:
            raise DataError(f"'{path}' has '{file.path}' of a published dataset; name it so: {dataset}:{path}")


def list_published(spec: str, how: Opening) -> Listing:
    """Return the images of "NAME:PATH".

    Raises:
        DataError: there is no path, or what is there is not that dataset.
    """
    name, _, path = spec.partition(":")
    if not path:
        raise DataError(f"Say where {name} is: {name}:FOLDER, with what its authors give out, packed or not.")
    return PUBLISHED[name](from_home(path), how)
