"""The interface of labelled images: sources, datasets, and the fingerprint by which a dataset is known again."""

import hashlib
import json
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import quote, unquote

import numpy as np
from jaxtyping import Int64

from vitral import distributed
from vitral.advice import counted
from vitral.data.annotations.annotation import Annotation
from vitral.data.batch import evenly
from vitral.data.stored import Entry, Store
from vitral.errors import DataError, VitralError
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.images.header import is_deep
from vitral.machine import in_threads
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Label, Task

SCHEME = "2-"  # the beginning of a fingerprint; earlier versions hashed only names and sizes
# What a fingerprint says behind the hash of the data: how they were split here, as two hashes of the groups that were kept
# together, of which the second is followed by what the groups are called; and the share of the training images.
NEAR = "/near="
GROUP = "/group="
OF_SHARE = "/part="
HASHED = 50_000  # images that are hashed at most, evenly spaced
DIGEST_BYTES = 16
SHORT = 12  # hexadecimal digits of such a hash, which tell images of equal bytes from others
TRAINED = "training_images"  # in a run's record of its data: the training images by their content, see `content_hashes`

Inventory = Mapping[str, Mapping[str, tuple[int, str]]]  # by split and class: the number of images, and a hash of them
Splits = Mapping[str, Sequence[Entry]]


class Routine(str):
    """A note on what is done with all data, such as how they are split: for those who want to know everything."""


@runtime_checkable  # the tests check types at run time
class Source(Protocol):
    """One split: images and labels by index.

    Attributes:
        endless: Whether images are drawn without end, instead of in epochs.
        shards: The index after each shard's last image, ascending, where shards are best read one after another; empty
            where access is random.
    """

    endless: bool
    shards: tuple[int, ...]

    def __len__(self) -> int:
        """Return how many images there are; of an endless source, how many indices."""
        ...

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return image `index` as RGB pixels; `shrink` is that of `read_image`."""
        ...

    def encoded(self, index: int) -> bytes | Path | None:
        """Return the encoded image `index`, or the file that holds it; None where the images are pixels from the start.

        Raises:
            ImageError: it cannot be read.
        """
        ...

    def label(self, index: int) -> Label:
        """Return the label of image `index`: its class, all its classes, or None if it has no label."""
        ...

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes of all images of a finite source, in order; of several the first of each, of none -1."""
        ...

    def describe(self, index: int) -> str:
        """Return the name of image `index` for people: its path, or "digits[17]"."""
        ...


class PixelSource:
    """What all sources have in common whose images are pixels from the start."""

    endless: bool = False
    shards: tuple[int, ...] = ()

    def encoded(self, index: int) -> None:
        """Return nothing."""
        return


@dataclass(frozen=True)
class BadImage:
    """An image that could not be used, and why; `listed` for one whose line in a table lacks something."""

    path: str
    reason: str
    listed: bool = False

    @property
    def fault(self) -> str:
        """What is wrong with it, in general."""
        return "cannot be used" if self.listed else "cannot be read"


def class_images(source: Source, task: Task, classes: int) -> tuple[int, ...]:
    """Return the number of a source's images of each class; empty where an image has not exactly one, or there is no end."""
    if source.endless or not task.exclusive:
        return ()
    labels = source.labels()
    return tuple(np.bincount(labels[labels >= 0], minlength=classes).tolist())


@dataclass(frozen=True)
class DataSet:
    """Labelled images in splits, with one order of class names for all of them.

    Attributes:
        name: A short name, for people and folder names.
        class_names: The classes in order; a label is an index into them.
        splits: The splits by name: "train", and "validation" and "test" if there are any.
        augmentation: The changes that training images of this kind may undergo.
        bad_images: The images that were left out because they could not be read.
        notes: Notes on the data and on what was decided, one line each.
        fingerprint: A hash of every image's split, name, classes, size and content; without the content of remote images,
            and with that of only a part of very many. Behind it how the images were split, unless each image by itself, and of
            which share of the training images it is.
        inventory: The number of images by split and class, and a hash of them; empty for built-in datasets.
        task: The task, which says what a label is, as far as the data show.
        reading: In nested folders, the folder that named the class: "leaf", "top" or "path".
        shared_out: The splits that were made here, from images without splits or from the training images.
        endless_epoch: The number of images that count as an epoch of an endless training split.
        outside: The number of images in no class, which were left out.
        bits: The bits that the values of 16-bit images use; None where there are none.
        contents: By split the images by their content, see `content_hashes`; empty where it is not known.
        together: By split a number for each image that those have in common which belong together, because they look alike or
            are a group of the user; empty where no images do.
    """

    name: str
    class_names: tuple[str, ...]
    splits: Mapping[str, Source]
    augmentation: Augmentation
    bad_images: tuple[BadImage, ...] = ()
    notes: tuple[str, ...] = field(default=())
    fingerprint: str = ""
    inventory: Mapping[str, Mapping[str, tuple[int, str]]] = field(default_factory=dict)
    task: Task = SINGLE_LABEL
    endless_epoch: int | None = None
    reading: str | None = None
    shared_out: tuple[str, ...] = ()
    outside: int = 0
    bits: int | None = None
    contents: Mapping[str, str] = field(default_factory=dict)
    together: Mapping[str, Int64[np.ndarray, " images"]] = field(default_factory=dict)

    @property
    def multi_label(self) -> bool:
        """Whether an image may have several classes, or none."""
        return self.task == MULTI_LABEL

    @property
    def outputs(self) -> int:
        """The size of the head of a model that learns them."""
        return self.task.outputs(len(self.class_names))

    def for_task(self, task: Task) -> "DataSet":
        """Return the same images as another task understands their labels.

        Raises:
            DataError: the labels are not of its form.
        """
        if self.task.dense and task.dense and self.task.name != task.name:
            raise DataError(
                f"The images of {self.name} {self.task.labelled}, which is not what the task '{task.name}' is about; put "
                f"'{task.name}:' before the data's name."
            )
        labels = (source.label(0) for source in self.splits.values() if len(source))
        if all(map(task.takes, labels)):
            return replace(self, task=task)
        raise DataError(
            f"The images of {self.name} {self.task.labelled}, which is not what the task '{task.name}' is about."
        )

    def scored_split(self) -> str:
        """Return the split to score on: test, else validation; train if there is neither."""
        return next((split for split in ("test", "validation") if split in self.splits), "train")

    def what(self) -> str:
        """Return what there is to tell apart, for people: "10 classes"."""
        return counted(len(self.class_names), "class", "classes") if self.task.scored else "no labels"

    def counts(self) -> dict[str, str]:
        """Return how many images each split has, for people."""
        return {name: "endless" if split.endless else str(len(split)) for name, split in self.splits.items()}

    def class_images(self) -> tuple[int, ...]:
        """Return the number of training images of each class; empty where an image has not exactly one, or there is no end."""
        train = self.splits.get("train")
        return () if train is None else class_images(train, self.task, len(self.class_names))

    def images_an_epoch(self) -> int:
        """Return how many training images an epoch has: all, or as many as an endless source declares."""
        return self.endless_epoch or len(self.splits["train"])


def hash_contents(store: Store, splits: Splits, deep: list[int], *, remote: bool) -> dict[int, str]:
    """Return hashes of the images' bytes by store index; each process of a job reads its share.

    Of very many images only a part is read, and of remote ones none: there, names and sizes must do. The store indices of those
    that have 16 bits a value are added to `deep`.
    """
    every = [] if remote else [image.store_index for images in splits.values() for image in images]
    every = evenly(every, HASHED)
    share = every[distributed.rank() :: distributed.world()]
    looked = dict(zip(share, in_threads(lambda index: _hash(store, index), share), strict=True))
    every_look = {index: look for part in distributed.gather(looked) for index, look in part.items()}
    deep += sorted(index for index, (_, is_deep) in every_look.items() if is_deep)
    return {index: digest for index, (digest, _) in every_look.items()}


def with_annotations(contents: Mapping[int, str], annotations: Mapping[int, Annotation]) -> Mapping[int, str]:
    """Return hashes of images' bytes by store index, together with those of what is marked in them."""
    if not annotations:
        return contents
    hashes = {
        index: hashlib.blake2b(each.content(), digest_size=DIGEST_BYTES).hexdigest()
        for index, each in annotations.items()
    }
    return {index: f"{contents.get(index, '')}{digest}" for index, digest in hashes.items()}


def content_hashes(images: Iterable[Entry], contents: Mapping[int, str]) -> str:
    """Return the hashes of images' bytes, short and one after another; those of images that were not read are left out."""
    return "".join(contents.get(image.store_index, "")[:SHORT] for image in images)


def images_of_content(written: object) -> frozenset[str]:
    """Return the short hashes that `content_hashes` wrote; none for anything else."""
    text = written if isinstance(written, str) else ""
    return frozenset(text[start : start + SHORT] for start in range(0, len(text), SHORT))


def fingerprint(splits: Splits, contents: Mapping[int, str]) -> str:
    """Return one hash of every image's split, name, classes, size and, where it was read, content."""
    return SCHEME + _together(_line(split, image, contents) for split, images in splits.items() for image in images)


def of_part(fingerprint: str, share: Fraction) -> str:
    """Return the fingerprint of a share of the training images of data with a fingerprint."""
    return f"{fingerprint}{OF_SHARE}{share}"


def whole(fingerprint: str) -> str:
    """Return the hash of all data, however they were split, from their fingerprint or that of a share of them."""
    return fingerprint.partition("/")[0]


def mark(near: str | None, group: str, column: str | None) -> str:
    """Return what a fingerprint says of how data were split: by hashes of the groups of look-alikes, and of the user's."""
    return (f"{NEAR}{near}" if near else "") + ("" if column is None else f"{GROUP}{group}:{quote(column, safe='')}")


def marked(fingerprint: str) -> tuple[bool, str | None]:
    """Return whether images that look alike were kept together, and what the user's groups are called, if there were some."""
    column = re.search(rf"{GROUP}\w*:([^/]*)", fingerprint)
    return NEAR in fingerprint, None if column is None else unquote(column[1])


def drawn(fingerprint: str) -> str:
    """Return of a fingerprint the hash of the data and how they were split, of whatever share of the training images it is."""
    return fingerprint.partition(OF_SHARE)[0]


def share_of(fingerprint: str) -> str:
    """Return of what share of the training images a fingerprint is, such as "1/10"; "1" for all of them."""
    return fingerprint.partition(OF_SHARE)[2] or "1"


def same_data(fingerprint: str, other: str) -> bool:
    """Tell whether two fingerprints are known and of the same data, in whatever share of the training images."""
    return bool(fingerprint) and whole(fingerprint) == whole(other)


def former_fingerprint(splits: Splits) -> str:
    """Return the fingerprint of versions up to 0.2, of names and sizes."""
    lines = sorted(f"{image.name}\t{image.size}" for images in splits.values() for image in images)
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def take_inventory(splits: Splits, contents: Mapping[int, str]) -> Inventory:
    """Return for every split and class the number of images, and a hash of them."""
    inventory: dict[str, dict[str, tuple[int, str]]] = {}
    for split, images in splits.items():
        lines: dict[str, list[str]] = defaultdict(list)
        for image in images:
            for name in image.classes or ("",):
                lines[name].append(_line(split, image, contents))
        inventory[split] = {name: (len(each), _together(each)[: 2 * DIGEST_BYTES]) for name, each in lines.items()}
    return inventory


def changes(before: Inventory, now: Inventory) -> list[str]:
    """Return what changed in a dataset, one phrase for each class of each split that differs."""
    phrases: list[str] = []
    for split in (*before, *(name for name in now if name not in before)):
        old, new = before.get(split, {}), now.get(split, {})
        for name in (*old, *(name for name in new if name not in old)):
            was, has = old.get(name, (0, "")), new.get(name, (0, ""))
            if was[0] != has[0]:
                phrases.append(f"{split}/{name} now has {has[0]} images, had {was[0]}")
            elif tuple(was) != tuple(has):
                phrases.append(f"{split}/{name} has other images, or other names or contents for its {has[0]}")
    return phrases


def _line(split: str, image: Entry, contents: Mapping[int, str]) -> str:
    return json.dumps([split, image.name, sorted(image.classes), image.size, contents.get(image.store_index)])


def _together(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in sorted(lines):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _hash(store: Store, index: int) -> tuple[str, bool]:
    """Return a hash of an image's bytes, and whether it has 16 bits a value.

    The hash is empty where they cannot be read, which is reported elsewhere.
    """
    try:
        content = store.read(index)
        if isinstance(content, Path):
            if not stat.S_ISREG(content.stat().st_mode):
                return "", False
            content = content.read_bytes()
    except (VitralError, OSError):
        return "", False
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest(), is_deep(content)
