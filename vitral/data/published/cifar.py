"""CIFAR-10 and CIFAR-100 in their binary form: records of one or two label bytes and 3 x 32 x 32 bytes of colour planes.

The form is described at https://www.cs.toronto.edu/~kriz/cifar.html. The pickles of the Python form are never opened.
"""

import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vitral.data.archive import Member, TarImages
from vitral.data.listing import Listing
from vitral.data.published.tree import Tree
from vitral.data.stored import ConvertedImages, Entry, JoinedStores, Store
from vitral.errors import DataError

SIDE = 32
PIXELS = 3 * SIDE * SIDE
HELD_OUT = 0.02  # of the training images, as in the paper's development splits


@dataclass(frozen=True)
class CifarForm:
    """How one of the datasets is given out."""

    title: str
    archive: str  # without suffix
    pickles: str  # the names of the Python form, as patterns of paths
    train: tuple[str, ...]  # files
    test: str
    names: str  # the text with the class names
    labels: int = 1  # bytes of a record
    label: int = 0  # which of these is the class
    classes: int = 10


CIFAR10 = CifarForm(
    title="CIFAR-10",
    archive="cifar-10-binary",
    pickles=r"data_batch_\d|cifar-10-python\.tar(?:\.gz)?",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test="test_batch.bin",
    names="batches.meta.txt",
)
CIFAR100 = CifarForm(
    title="CIFAR-100",
    archive="cifar-100-binary",
    pickles=r"cifar-100-python/(?:train|test|meta)|cifar-100-python\.tar(?:\.gz)?",
    train=("train.bin",),
    test="test.bin",
    names="fine_label_names.txt",
    labels=2,
    label=1,
    classes=100,
)
CIFAR100_COARSE = replace(CIFAR100, names="coarse_label_names.txt", label=0, classes=20)
PUBLISHED = {"train": 50_000, "test": 10_000}  # images of each dataset
# A bitmap's two headers: 24 bits a pixel, uncompressed, with a negative height, which puts the first row first.
HEADER = struct.pack("<2sIHHI", b"BM", 54 + PIXELS, 0, 0, 54) + struct.pack(
    "<IiiHHIIiiII", 40, SIDE, -SIDE, 1, 24, 0, PIXELS, 0, 0, 0, 0
)


def _bitmap(planes: bytes) -> bytes:
    """Return an image that is stored as planes of red, green and blue as a bitmap, which loses nothing."""
    return HEADER + np.frombuffer(planes, dtype=np.uint8).reshape(3, -1)[::-1].T.tobytes()


def list_cifar(form: CifarForm, path: Path) -> Listing:
    """Return the images of CIFAR-10 or CIFAR-100: a folder of the binary files, one that holds it, or the authors' archive.

    Raises:
        DataError: it is the Python form, or a file is missing, cut short or has a label that there is not.
    """
    if re.fullmatch(form.pickles, path.name) and path.is_file():
        raise _pickles(form, path)
    tree = Tree(path, form.title, {form.archive: re.escape(form.train[0])})
    if not tree.matching(re.escape(form.test)) and tree.matching(form.pickles):
        raise _pickles(form, path)
    names = tuple(tree.lines(_one(tree, form, form.names)))
    if len(names) != form.classes:
        raise DataError(f"'{form.names}' in '{path}' names {len(names)} classes; {form.title} has {form.classes}.")
    files: list[tuple[Store, int]] = []
    entries: dict[str, list[Entry]] = {}
    first = 0
    for split, file in [*(("train", name) for name in form.train), ("test", form.test)]:
        store, labels = _records(tree, form, file)
        entries.setdefault(split, []).extend(
            Entry(first + number, f"{file}[{number}]", (names[label],), PIXELS) for number, label in enumerate(labels)
        )
        files.append((store, len(labels)))
        first += len(labels)
    listing = tree.listing(form.title.lower().replace("-", ""), entries, names, PUBLISHED)
    return replace(listing, store=ConvertedImages(JoinedStores(files), _bitmap), held_out=HELD_OUT)


def _one(tree: Tree, form: CifarForm, file: str) -> int:
    return tree.file(file, f"unpack {form.archive}.tar.gz there, the binary version")


def _pickles(form: CifarForm, path: Path) -> DataError:
    return DataError(
        f"'{path}' holds the Python version of {form.title}, pickles, which can run any program when they are opened; "
        f"download the binary version, {form.archive}.tar.gz."
    )


def _records(tree: Tree, form: CifarForm, file: str) -> tuple[Store, list[int]]:
    """Return the images of one file, and their labels."""
    index = _one(tree, form, file)
    plain, start = tree.location(index)
    size, record = tree.files[index].size, form.labels + PIXELS
    if size == 0 or size % record:
        raise DataError(
            f"'{tree.store.name(index)}' has {size:,} bytes, which is no whole number of images of {record:,} bytes each: "
            f"it is cut short or not {form.title}'s binary version; fetch {form.archive}.tar.gz again."
        )
    values = np.fromfile(plain, dtype=np.uint8, count=size, offset=start).reshape(-1, record)
    labels: list[int] = values[:, form.label].tolist()
    if wrong := [number for number, label in enumerate(labels) if label >= form.classes]:
        raise DataError(
            f"Image {wrong[0]} in '{tree.store.name(index)}' has the label {labels[wrong[0]]}, but {form.title} has only "
            f"{form.classes} classes: the file is damaged; fetch {form.archive}.tar.gz again."
        )
    offsets = range(start + form.labels, start + size, record)
    members = [Member(f"{file}[{number}]", PIXELS, offset) for number, offset in enumerate(offsets)]
    return TarImages(tree.title, plain, members), labels
