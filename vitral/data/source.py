"""The interface of labelled images: sources and datasets."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from vitral.errors import DataError
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Label, Task


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
    """An image that could not be read, and why."""

    path: str
    reason: str


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
            and with that of only a part of very many. For a share of the training images the hash of the whole, and the
            share.
        inventory: The number of images by split and class, and a hash of them; empty for built-in datasets.
        task: The task, which says what a label is, as far as the data show.
        reading: In nested folders, the folder that named the class: "leaf", "top" or "path".
        shared_out: The splits that were made here, from images without splits or from the training images.
        endless_epoch: The number of images that count as an epoch of an endless training split.
        outside: The number of images in no class, which were left out.
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
        return f"{len(self.class_names)} classes" if self.task.scored else "no labels"

    def counts(self) -> dict[str, str]:
        """Return how many images each split has, for people."""
        return {name: "endless" if split.endless else str(len(split)) for name, split in self.splits.items()}

    def images_an_epoch(self) -> int:
        """Return how many training images an epoch has: all, or as many as an endless source declares."""
        return self.endless_epoch or len(self.splits["train"])
