"""The sizes that annotations state for their photos, and those of mask images, held against the photos.

| the size | what becomes of the annotation |
|---|---|
| is the photo's, as EXIF turns it or as it is stored | it is taken as it is, and turned with the photo |
| is that as stored, and regions reach beyond it | it is of the turned photo, and so are others of which nothing tells it |
| has the photo's shape | it is scaled to the photo; masks by the nearest pixel |
| has regions far beyond it | the size is wrong, and coordinates are taken as they are |
| has another shape | it is refused: what it marks is of another photo, or of one that was cut |
"""

from collections.abc import Mapping
from dataclasses import replace

from vitral.data.annotations.annotation import Annotation, Marks, Size, same_shape
from vitral.data.annotations.marked import MarkedPhotos, Trap
from vitral.data.annotations.tree import FileTree
from vitral.data.source import BadImage
from vitral.errors import ImageError
from vitral.images.decode import SIDEWAYS
from vitral.images.header import stored_size
from vitral.machine import in_threads

SCALED = "photos of another size than their annotations state, of the same shape; what is marked is scaled to them"
OTHER_SIZE = (
    "photos of another size than their masks, of the same shape; masks are enlarged or reduced by the nearest pixel"
)
WRONG = "photos of another size than their annotations state and mark beyond; the coordinates are taken as they are"
AS_STORED = "photos that EXIF turns, whose annotations state the size as stored"  # which alone is no trap
MISSTATED = "photos that EXIF turns, whose annotations state the size as stored and mark the turned photo"
BEYOND = 1.1  # times the stated size, to which regions reach by mistakes and roundings


def fitted(tree: FileTree, marked: MarkedPhotos) -> MarkedPhotos:
    """Return annotated photos whose annotations are of the photos' sizes, or are brought to them; others are bad."""

    def look(photo: str) -> tuple[Annotation | BadImage, str]:
        return _fitted(tree, photo, marked.annotations[photo])

    seen = dict(zip(marked.annotations, in_threads(look, [*marked.annotations]), strict=True))
    seen |= _of_turned({photo: found for photo, (found, kind) in seen.items() if kind == AS_STORED})
    annotations: Mapping[str, Annotation] = {
        photo: found for photo, (found, _) in seen.items() if not isinstance(found, BadImage)
    }
    bad = (found for found, _ in seen.values() if isinstance(found, BadImage))
    traps = (Trap(kind, photo) for photo, (_, kind) in seen.items() if kind not in ("", AS_STORED))
    return replace(marked, annotations=annotations, bad=(*marked.bad, *bad), traps=(*marked.traps, *traps))


def _fitted(tree: FileTree, photo: str, annotation: Annotation) -> tuple[Annotation | BadImage, str]:
    """Return a photo's annotation or why there is none, and the kind of what misleads in it."""
    stated = annotation.stated
    if stated is None or not annotation.classes:
        return annotation, ""
    try:
        stored, turn = stored_size(tree.store.read(tree.number(photo)))
    except ImageError:  # which is said elsewhere
        return annotation, ""
    upright = stored[::-1] if turn in SIDEWAYS else stored
    if stated in (stored, upright):
        return annotation, AS_STORED if stated != upright else ""
    if isinstance(annotation, Marks) and _reaches_beyond(annotation, stated):
        return replace(annotation, stated=None), WRONG
    if same_shape(stated, stored) or same_shape(stated, upright):
        return annotation, SCALED if isinstance(annotation, Marks) else OTHER_SIZE
    turned = ", turned by 90 degrees" if same_shape(stated[::-1], upright) else ""
    why = f"is annotated as of {stated[1]}x{stated[0]} pixels{turned}, and has {upright[1]}x{upright[0]}"
    return tree.bad(
        photo, f"'{tree.file(photo).name}' {why}; correct the size or take the photo that was annotated"
    ), ""


def _of_turned(found: Mapping[str, Annotation | BadImage]) -> dict[str, tuple[Annotation, str]]:
    """Return those of annotations with the size of the photo as stored that are of the turned photo, as what they mark tells.

    Some tools write coordinates of what they show beside a size that they read without EXIF (Label Studio's COCO).
    """
    # Run lengths are of a mask's own size, and so of the photo as stored.
    marks = {photo: each for photo, each in found.items() if isinstance(each, Marks) and not _has_runs(each)}
    exchanged = {photo: each.stated[::-1] for photo, each in marks.items() if each.stated is not None}
    beyond_stored = {photo for photo, size in exchanged.items() if _reaches_beyond(marks[photo], size[::-1])}
    beyond_turned = {photo for photo, size in exchanged.items() if _reaches_beyond(marks[photo], size)}
    turned, stored = beyond_stored - beyond_turned, beyond_turned - beyond_stored
    if len(turned) > len(stored):
        turned |= exchanged.keys() - beyond_stored - beyond_turned
    return {photo: (replace(marks[photo], stated=exchanged[photo]), MISSTATED) for photo in turned}


def _has_runs(annotation: Marks) -> bool:
    return any(mark.runs is not None for mark in annotation.marks())


def _reaches_beyond(annotation: Marks, size: Size) -> bool:
    boxes = () if annotation.relative else (mark.outer_box() for mark in annotation.marks())
    return any(box is not None and (box[2] > BEYOND * size[1] or box[3] > BEYOND * size[0]) for box in boxes)
