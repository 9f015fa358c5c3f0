"""Annotations for one task as those for another: boxes of masks, classes per pixel of objects, objects of classes per pixel."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vitral.data.annotations.annotation import Annotation, Marks, Size
from vitral.data.annotations.marked import MarkedPhotos
from vitral.data.annotations.mask_names import BACKGROUND
from vitral.errors import DataError
from vitral.images.run_lengths import RunLengths, decode_mask, encode_part
from vitral.tasks.boxes import BOXES
from vitral.tasks.instances import INSTANCES
from vitral.tasks.panoptic import PANOPTIC
from vitral.tasks.regions import VOID, Regions
from vitral.tasks.semantic import SEMANTIC
from vitral.tasks.task import Task

NO_OBJECTS = (
    BACKGROUND,
    "void",
    "unlabelled",
    "unlabeled",
    "0",
    "#000000",
)  # classes that are no objects, in lower case
NEIGHBOURS = np.ones((3, 3), dtype=bool)  # of a pixel of one part: those at its corners, too
Change = Literal["none", "boxes", "classes", "parts"]


@dataclass(frozen=True)
class Changed:
    """A photo's annotation for another task: its boxes, the classes of pixels, or parts of classes; an `Annotation`."""

    annotation: Annotation
    change: Change
    classes: tuple[str, ...]

    @property
    def stated(self) -> Size | None:
        """The size of the annotation as it is."""
        return self.annotation.stated

    def content(self) -> bytes:
        """Return what the annotation as it is has."""
        return self.annotation.content()

    def regions(self, numbers: Mapping[str, int], size: Size) -> Regions:
        """Return the regions as the other task has them. See `Annotation`."""
        regions = self.annotation.regions(numbers, size)
        if self.change == "none":
            return regions
        if self.change == "classes":
            labels = regions.class_map()
            ground = numbers.get(BACKGROUND)
            labels[(labels == VOID) & ~regions.ignored_bitmap()] = VOID if ground is None else ground
            return Regions.of_map(labels)
        if self.change == "parts":
            return _parts(regions)
        crowd, areas = regions.crowd.tolist(), regions.areas.tolist()
        return Regions.of_boxes(size, regions.classes.tolist(), regions.boxes, crowd=crowd, areas=areas)


def _parts(regions: Regions) -> Regions:
    from scipy import ndimage  # a sixth of a second of start-up for all whose regions are not parts

    classes: list[int] = []
    masks: list[RunLengths] = []
    assert regions.masks is not None, "only boxes are known"
    for number, runs in zip(regions.classes.tolist(), regions.masks, strict=True):
        labels, count = ndimage.label(decode_mask(runs, regions.size), structure=NEIGHBOURS)
        boxes = enumerate(ndimage.find_objects(labels), start=1)
        masks += [encode_part(labels[box] == part, (box[0].start, box[1].start), regions.size) for part, box in boxes]
        classes += [number] * count
    return Regions.of_runs(regions.size, classes, masks, ignored=regions.ignored)


def for_task(marked: MarkedPhotos, task: Task, title: str) -> MarkedPhotos:
    """Return annotated photos as another task has them, or raise DataError if the annotations do not say enough for it."""
    if marked.task.name == task.name:
        return marked
    if marked.task is BOXES or task is PANOPTIC:
        raise DataError(
            f"The photos of '{title}' ({marked.form}) {marked.task.labelled}, which is not enough for the task '{task.name}'."
        )
    if task is SEMANTIC:
        return _by_pixel(marked)
    if marked.task is SEMANTIC:
        marked = _in_parts(marked)
    elif marked.task is PANOPTIC:
        marked = only_objects(marked, marked.things)
    return _boxed(marked) if task is BOXES else replace(marked, task=INSTANCES)


def _by_pixel(marked: MarkedPhotos) -> MarkedPhotos:
    names = marked.class_names
    if marked.task is INSTANCES and BACKGROUND not in names:
        names = (BACKGROUND, *names)
    ground = (BACKGROUND,) if BACKGROUND in names else ()
    annotations = {
        path: Changed(each, "classes", tuple(dict.fromkeys((*ground, *each.classes))))
        for path, each in marked.annotations.items()
    }
    note = f"What is in no region is of the class '{BACKGROUND}'." if ground else ""
    return replace(
        marked, task=SEMANTIC, annotations=annotations, class_names=names, notes=(*marked.notes, *filter(None, [note]))
    )


def _in_parts(marked: MarkedPhotos) -> MarkedPhotos:
    names = tuple(name for name in marked.class_names if name.lower() not in NO_OBJECTS)
    chosen = only_objects(marked, names)
    annotations = {path: Changed(each, "parts", each.classes) for path, each in chosen.annotations.items()}
    note = "Each connected part of a class is taken as an object; objects that touch count as one."
    return replace(chosen, task=INSTANCES, annotations=annotations, notes=(*marked.notes, note))


def _boxed(marked: MarkedPhotos) -> MarkedPhotos:
    annotations = {
        path: replace(each, masked=False) if isinstance(each, Marks) else Changed(each, "boxes", each.classes)
        for path, each in marked.annotations.items()
    }
    return replace(marked, task=BOXES, annotations=annotations, things=())


def only_objects(marked: MarkedPhotos, names: tuple[str, ...]) -> MarkedPhotos:
    """Return the objects of some of the classes alone, for instances."""
    annotations = {
        path: Changed(each, "none", tuple(name for name in each.classes if name in names))
        for path, each in marked.annotations.items()
    }
    return replace(marked, task=INSTANCES, annotations=annotations, class_names=names, things=())
