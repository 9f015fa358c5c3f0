"""What a reader of data finds, a list of labelled images, and how it is to be opened."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from vitral.data.annotations.annotation import Annotation
from vitral.data.classes import Reading
from vitral.data.source import BadImage
from vitral.data.stored import Entry, Store
from vitral.data.subset import HELD_OUT
from vitral.events import Listener, ignore
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Label, Task


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A reader's result.

    Attributes:
        title: The data's name in messages: a path or address.
        name: A short name, for people and folder names.
        store: The images.
        entries: The images by split: "train", "validation", "test", or "all" for images in none.
        class_names: The classes in the order that the data itself declares; None for natural order.
        task: The task, which says what a label is.
        notes: Notes on the data, one line each.
        shards: The ends of each split's shards, where it is best read shard by shard.
        remote: Whether the images are read over a network.
        bad: The images that are already known to be bad, with their names and reasons.
        bad_classes: The classes of those bad images.
        reading: The folder that named the class, where folders are nested.
        held_out: The share of the training images that become a validation split where the data have none; 0 for none.
        base: The beginning of the images' names that is this machine's alone.
        outside: The number of images in no class, which were left out.
        column: The column of text that names the classes, of which several may stand in a cell; None where there is none.
        annotations: Of data with regions what is marked in each image, by store index.
        things: Of such data with objects and matter the classes that are objects.
    """

    title: str
    name: str
    store: Store
    entries: Mapping[str, list[Entry]]
    class_names: tuple[str, ...] | None = None
    task: Task = SINGLE_LABEL
    notes: tuple[str, ...] = ()
    shards: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    remote: bool = False
    bad: tuple[BadImage, ...] = ()
    bad_classes: frozenset[str] = frozenset()
    reading: Reading | None = None
    held_out: float = HELD_OUT
    base: str = ""
    outside: int = 0
    column: str | None = None
    annotations: Mapping[int, Annotation] = field(default_factory=dict)
    things: tuple[str, ...] = ()

    def label(self, classes: Sequence[int]) -> Label:
        """Return the label of an image that the data say to be of these classes; of one with regions the classes in it."""
        return tuple(classes) if self.annotations else self.task.label(classes)


@dataclass(frozen=True)
class Opening:
    """How a dataset is opened; see `open_data`."""

    class_names: Sequence[str] | None = None
    skip_bad_images: bool | None = None
    trained_on: Collection[str] | None = None
    listener: Listener = ignore
    verify: bool = True
    classes: Reading | None = None
    hold_out: bool = True
    part: Fraction | None = None
    labelled: bool = True
    checking_seconds: float | None = None
    group: str | None = None
    near: bool = True
    drawn_as: Collection[str] = ()
    marked: str | None = None
