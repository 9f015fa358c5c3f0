"""What a reader of annotations finds in a folder, and what it left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vitral.advice import counted
from vitral.data.annotations.annotation import Annotation, Mark, Marks, Size
from vitral.data.annotations.traps import Trap
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
    own = (
        split_in(PurePosixPath(name).stem.rstrip("0123456789"))[0] if name.lower().endswith((".json", ".txt")) else None
    )
    if own in ("train", "validation", "test"):
        return own
    return next((split for folder in reversed(folders) if (split := split_within(folder))), ALL)


def of_marks(
    form: str,
    marks: Mapping[str, Sequence[Mark]],
    class_names: Sequence[str],
    *,
    stated: Mapping[str, Size | None] | None = None,
    splits: Mapping[str, str] | None = None,
    traps: Sequence[Trap] = (),
    bad: Sequence[BadImage] = (),
    relative: bool = False,
) -> MarkedPhotos:
    """Return the photos of a format that lists regions: instances where most have masks, boxes otherwise.

    Args:
        form: What the annotations are, for people.
        marks: The regions of each photo, by its path.
        class_names: The classes in order.
        stated: The photos' sizes as the annotations have them.
        splits: The splits of the photos that are in one.
        traps: What misleads.
        bad: The photos whose annotations cannot be read.
        relative: Whether coordinates are shares of the photos' width and height.
    """
    every = [mark for listed in marks.values() for mark in listed]
    count = sum(mark.has_mask for mark in every)
    masked = 2 * count > len(every)
    notes = []
    if masked and count < len(every):
        rest = counted(len(every) - count, "region has", "regions have")
        notes.append(f"{rest} a box and no mask; the box is taken as the mask.")
    elif not masked and count:
        notes.append(f"Only {counted(count, 'region has', 'regions have')} a mask; boxes are taken from all.")
    return MarkedPhotos(
        form=form,
        task=INSTANCES if masked else BOXES,
        annotations={
            path: Marks.of(
                listed, masked=masked, relative=relative, stated=None if stated is None else stated.get(path)
            )
            for path, listed in marks.items()
        },
        class_names=tuple(class_names),
        splits=splits or {},
        traps=tuple(traps),
        notes=tuple(notes),
        bad=tuple(bad),
    )


def in_order(marks: Mapping[str, Sequence[Mark]]) -> tuple[str, ...]:
    """Return the classes of regions whose format gives them no order, in natural order."""
    return tuple(sorted({mark.name for listed in marks.values() for mark in listed}, key=natural_key))


def has_area(mark: Mark) -> bool:
    """Tell whether a region has run lengths, or a box of some width and height."""
    outer = mark.outer_box()
    return mark.runs is not None or (outer is not None and outer[2] > outer[0] and outer[3] > outer[1])
