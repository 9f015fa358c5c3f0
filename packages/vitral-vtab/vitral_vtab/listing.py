"""VTAB's images in the files that a dataset's authors give out: ROOT/NAME, with TFDS's name of the dataset."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitral.data.batch import evenly
from vitral.data.listing import Listing
from vitral.data.published import cifar, flowers, pets
from vitral.data.published.tree import counted
from vitral.data.stored import ConvertedImages, Entry, Store
from vitral.data.vtab.prepared import bounds
from vitral.data.vtab.raw import ORDER
from vitral.data.vtab.tasks import VtabTask
from vitral.data.vtab.tfds import scaled
from vitral.errors import DataError
from vitral_vtab.dataset import RawDataset, in_order
from vitral_vtab.dmlab import read_dmlab
from vitral_vtab.folders import read_dtd, read_eurosat, read_flowers, read_pets, read_resisc45, read_sun397
from vitral_vtab.matrices import read_camelyon, read_cifar100, read_dsprites, read_smallnorb, read_svhn
from vitral_vtab.retinopathy import read_retinopathy
from vitral_vtab.scenes import read_clevr, read_kitti


@dataclass(frozen=True)
class RawForm:
    """How a dataset is given out.

    Attributes:
        title: The dataset's name for people.
        read: Reads the dataset's folder; a DataError says what is missing, damaged or does not match.
        published: The number of images of each split.
    """

    title: str
    read: Callable[[Path], RawDataset]
    published: Mapping[str, int]


FORMS = {
    "cifar100": RawForm("CIFAR-100", read_cifar100, cifar.PUBLISHED),
    "dtd": RawForm("DTD", read_dtd, {"train": 1880, "validation": 1880, "test": 1880}),
    "oxford_flowers102": RawForm("Oxford Flowers 102", read_flowers, flowers.PUBLISHED),
    "oxford_iiit_pet": RawForm("Oxford-IIIT Pet", read_pets, pets.PUBLISHED),
    "sun397": RawForm("SUN397", read_sun397, {"train": 76_128, "validation": 10_875, "test": 21_750}),
    "svhn_cropped": RawForm("SVHN", read_svhn, {"train": 73_257, "test": 26_032}),
    "patch_camelyon": RawForm("PatchCamelyon", read_camelyon, {"train": 262_144, "validation": 32_768, "test": 32_768}),
    "eurosat": RawForm("EuroSAT", read_eurosat, {"train": 27_000}),
    "resisc45": RawForm("NWPU-RESISC45", read_resisc45, {"train": 31_500}),
    "diabetic_retinopathy_detection": RawForm(
        "Diabetic Retinopathy Detection", read_retinopathy, {"train": 35_126, "validation": 10_906, "test": 42_670}
    ),
    "clevr": RawForm("CLEVR", read_clevr, {"train": 70_000, "validation": 15_000}),
    "dmlab": RawForm("DMLab", read_dmlab, {"train": 65_550, "validation": 22_628, "test": 22_735}),
    "dsprites": RawForm("dSprites", read_dsprites, {"train": 737_280}),
    "kitti": RawForm("KITTI", read_kitti, {"train": 6347, "validation": 423, "test": 711}),
    "smallnorb": RawForm("smallNORB", read_smallnorb, {"train": 24_300, "test": 24_300}),
}


def whole_split(data: RawDataset, split: str, folder: Path) -> list[int]:
    """Return the numbers of all images of a split, in TFDS's order, or raise DataError if two have the same key."""
    keys = data.splits[split].keys
    if len(set(keys)) != len(keys):
        twice = next(key for key, count in Counter(keys).items() if count > 1)
        raise DataError(f"'{folder}' has two {split} images '{twice!s}'; unpack the dataset there once.")
    return in_order(split, keys)


def images_of(data: RawDataset, task: VtabTask) -> Store:
    """Return the images as a task has them."""
    return data.store if task.scale == 1 else ConvertedImages(data.store, partial(scaled, factor=task.scale))


def list_files(folder: Path, task: VtabTask, most_test: int | None) -> Listing:
    """Return the images of a task in the authors' files. See `RawReader`."""
    form = FORMS[task.dataset.partition("/")[0]]
    data = form.read(folder)
    names = task.names or data.names
    if len(names) != task.classes:
        raise DataError(f"'{folder}' has images of {len(names)} classes; VTAB's {task.name} has {task.classes}.")
    orders = {split: whole_split(data, split, folder) for split in form.published}
    entries: dict[str, list[Entry]] = {}
    notes = counted(orders, form.published, form.title)
    for name, part in task.parts.items():
        split = part.partition("[")[0]
        first, last = bounds(part, len(orders[split]), folder)
        numbers = orders[split][first:last]
        if name == "test":
            notes = (*notes, *task.size_notes(len(numbers)))
            numbers = evenly(numbers, most_test)
        entries[name] = [_entry(data, split, number, task, names) for number in numbers]
    source = f"VTAB-1k's images of {task.name}, from the files of {form.title}'s authors; {ORDER}."
    return task.listing(images_of(data, task), entries, names, (source, *notes))


def _entry(data: RawDataset, split: str, number: int, task: VtabTask, names: tuple[str, ...]) -> Entry:
    images = data.splits[split]
    index = images.indices[number]
    name = data.store.name(index)
    label = task.class_of(partial(images.features, number), name, advice="fetch the dataset again")
    return Entry(index, name, (names[label],), 0)
