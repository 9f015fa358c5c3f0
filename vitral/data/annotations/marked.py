"""What a reader of annotations finds in a folder, and what it left out, said in one line a kind."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vitral.advice import counted
from vitral.data.annotations.annotation import Annotation, Mark, Marks, Size
from vitral.data.annotations.tree import FileTree
from vitral.data.names import ALL, natural_key, split_in, split_within
from vitral.data.source import BadImage
from vitral.tasks.boxes import BOXES
from vitral.tasks.instances import INSTANCES
from vitral.tasks.task import Task

# Kinds of traps that several formats have.
NOT_THERE = "photos with annotations that are not in the folder, or one of several of the name"
AGAIN = "annotations of photos that other annotations are of, too, left out"
NO_AREA = "boxes without width or height, left out"
FEW_POINTS = "polygons of fewer than three points, left out"


@dataclass(frozen=True)
class Trap:
    """Something in annotations that misleads whoever trusts it.

    Attributes:
        kind: What it is and what becomes of it, in the plural: "boxes without width or height, left out".
        file: The file that has it, as it is named below the data's folder.
        count: How often the file has it.
    """

    kind: str
    file: str
    count: int = 1


def said(traps: Iterable[Trap]) -> list[str]:
    """Return one line for each kind of trap: what it is, how many there are, in how many files, and the first of these."""
    by_kind: dict[str, list[Trap]] = {}
    for trap in traps:
        by_kind.setdefault(trap.kind, []).append(trap)
    return [
        f"{kind}: {sum(trap.count for trap in found):,} in {counted(len({trap.file for trap in found}), 'file')}, "
        f"such as '{found[0].file}'."
        for kind, found in by_kind.items()
    ]


@dataclass(frozen=True, kw_only=True)
class MarkedPhotos:
    """The annotated photos of a folder.

    Attributes:
        form: What the annotations are, for people: "COCO JSON".
        task: The task that they are for.
        annotations: The annotation of each photo, by its path in the folder.
        class_names: The classes, in the order of the data.
        splits: The splits of the photos that are in one, by path.
        things: The classes whose regions are objects; the others are matter, such as sky.
        traps: What misleads in them, and what became of it.
        notes: What was decided, one line each.
        bad: The photos whose annotations cannot be read.
        others: The images that are no photos but masks, where their folders are not called so.
    """

    form: str
    task: Task
    annotations: Mapping[str, Annotation]
    class_names: tuple[str, ...]
    splits: Mapping[str, str] = field(default_factory=dict)
    things: tuple[str, ...] = ()
    traps: tuple[Trap, ...] = ()
    notes: tuple[str, ...] = ()
    bad: tuple[BadImage, ...] = ()
    others: frozenset[str] = frozenset()


def split_of_path(path: str) -> str:
    """Return the split that a file of annotations or a photo is in, by a word of its name or of a folder's; else `ALL`."""
    *folders, name = PurePosixPath(path).parts
    lists = name.lower().endswith((".json", ".txt", ".csv"))
    own = split_in(PurePosixPath(name).stem.rstrip("0123456789"))[0] if lists else None
    if own in ("train", "validation", "test"):
        return own
    return next((split for folder in reversed(folders) if (split := split_within(folder))), ALL)


def splits_of(photos: Iterable[str]) -> dict[str, str]:
    """Return the splits of photos that are in one by their paths."""
    return {photo: split for photo in photos if (split := split_of_path(photo)) != ALL}


class Collected:
    """What a format that lists regions says of each photo, by its path, as a reader comes to know it."""

    def __init__(self, tree: FileTree, form: str) -> None:
        self.tree, self.form = tree, form
        self.marks: dict[str, list[Mark]] = {}
        self.stated: dict[str, Size | None] = {}
        self.splits: dict[str, str] = {}
        self.traps: list[Trap] = []
        self.bad: list[BadImage] = []

    def photo(self, name: str, file: str, split: str = ALL) -> str | None:
        """Return the photo that a file means; None where there is none or it was meant before, which is a trap."""
        photo = self.tree.photo(name, file, split)
        if photo is None or photo in self.marks:
            self.traps.append(Trap(NOT_THERE if photo is None else AGAIN, file))
            return None
        if split != ALL:
            self.splits[photo] = split
        return photo

    def photos(self, class_names: Sequence[str] | None = None, *, relative: bool = False) -> MarkedPhotos:
        """Return the photos: of instances where most regions have masks, of boxes otherwise.

        Without `class_names` the classes are in natural order. Relative coordinates are shares of a photo's width and height.
        """
        every = [mark for listed in self.marks.values() for mark in listed]
        count = sum(mark.has_mask for mark in every)
        masked = 2 * count > len(every)
        notes = []
        if masked and count < len(every):
            rest = counted(len(every) - count, "region has", "regions have")
            notes.append(f"{rest} a box and no mask; the box is taken as the mask.")
        elif not masked and count:
            notes.append(f"Only {counted(count, 'region has', 'regions have')} a mask; boxes are taken from all.")
        if class_names is None:
            class_names = sorted({mark.name for mark in every}, key=natural_key)
        return MarkedPhotos(
            form=self.form,
            task=INSTANCES if masked else BOXES,
            annotations={
                path: Marks.of(listed, masked=masked, relative=relative, stated=self.stated.get(path))
                for path, listed in self.marks.items()
            },
            class_names=tuple(class_names),
            splits=self.splits,
            traps=tuple(self.traps),
            notes=tuple(notes),
            bad=tuple(self.bad),
        )


def has_area(mark: Mark) -> bool:
    """Tell whether a region has run lengths, or a box of some width and height."""
    outer = mark.outer_box()
    return mark.runs is not None or (outer is not None and outer[2] > outer[0] and outer[3] > outer[1])
