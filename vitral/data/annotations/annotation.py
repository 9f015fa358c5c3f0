"""What is known of a photo's annotation before its masks are needed: the classes in it, and how its regions are read."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
from jaxtyping import Float64

from vitral.data.annotations.polygons import FEWEST_POINTS, polygons_mask
from vitral.errors import DataError
from vitral.images.decode import SIDEWAYS, UPRIGHT
from vitral.images.header import stored_size
from vitral.images.run_lengths import RunLengths, decode_mask, encode_mask, runs_of_text
from vitral.tasks.regions import Regions

Size = tuple[int, int]  # height and width, pixels
Scale = tuple[float, float]  # of x and y
DIGITS = 6  # of a pixel: forms that write the same box as shares of a photo round it differently
Box = Float64[np.ndarray, "4"]  # left, top, right, bottom
Pixels = TypeVar("Pixels", bound=np.ndarray)  # a value a pixel


class Annotation(Protocol):
    """What is marked in one photo; it can be sent to worker processes, and is read again whenever it is needed."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes in the photo, each once; empty where nothing is marked."""
        ...

    @property
    def stated(self) -> Size | None:
        """Height and width of the photo as the annotation states them; None where it states none."""
        ...

    def content(self) -> bytes:
        """Return the bytes by which a changed annotation is noticed."""
        ...

    def regions(self, numbers: Mapping[str, int], size: Size) -> Regions:
        """Return the regions, in pixels of the photo the right way up.

        Args:
            numbers: The number of each class by its name; a region of another class is left out.
            size: The photo's height and width the right way up, pixels.

        Raises:
            DataError: the annotation cannot be read, or does not fit the photo.
        """
        ...


class Mark(NamedTuple):
    """A region as a file has it, with whatever of a box, polygons and run lengths the file gives.

    Attributes:
        name: The name of its class.
        box: Left, top, right, bottom, continuous pixels.
        polygons: Of each polygon x and y of its points in turn.
        runs: COCO's compressed text of a mask's run lengths, and the mask's height and width.
        crowd: Whether it is a crowd of objects.
        area: Its pixels as the file has them; None for the mask's or the box's.
    """

    name: str
    box: tuple[float, float, float, float] | None = None
    polygons: tuple[tuple[float, ...], ...] = ()
    runs: tuple[str, int, int] | None = None
    crowd: bool = False
    area: float | None = None

    @property
    def has_mask(self) -> bool:
        """Whether polygons or run lengths say what it covers."""
        return self.runs is not None or any(len(polygon) >= 2 * FEWEST_POINTS for polygon in self.polygons)

    def outer_box(self) -> tuple[float, float, float, float] | None:
        """Return its box, or that around its polygons; None where it has neither."""
        if self.box is not None or not any(self.polygons):
            return self.box
        x = [value for polygon in self.polygons for value in polygon[::2]]
        y = [value for polygon in self.polygons for value in polygon[1::2]]
        return min(x), min(y), max(x), max(y)


@dataclass(frozen=True)
class Marks:
    """The regions of a photo as a file has them, in few bytes; an `Annotation`.

    Attributes:
        classes: The names of the classes in the photo.
        packed: The regions as compressed JSON.
        count: How many they are.
        masked: Whether regions are masks; otherwise boxes.
        relative: Whether coordinates are shares of the photo's width and height.
        stated: Height and width of the photo as the file has them; None where it has none.
    """

    classes: tuple[str, ...]
    packed: bytes
    count: int
    masked: bool = False
    relative: bool = False
    stated: Size | None = None

    @classmethod
    def of(
        cls, marks: Iterable[Mark], *, masked: bool = False, relative: bool = False, stated: Size | None = None
    ) -> Self:
        """Return the annotation of a photo that some regions are marked in."""
        listed = list(marks)
        packed = zlib.compress(json.dumps(listed).encode(), 1)
        names = tuple(dict.fromkeys(mark.name for mark in listed))
        return cls(names, packed, len(listed), masked, relative, stated)

    def marks(self) -> list[Mark]:
        """Return the regions as the file has them."""
        return [Mark(*fields) for fields in json.loads(zlib.decompress(self.packed))]

    def scale(self, size: Size) -> Scale:
        """Return what x and y are to be multiplied by in a photo of some size."""
        if self.relative or self.stated is None:
            return size[::-1] if self.relative else (1, 1)
        return size[1] / self.stated[1], size[0] / self.stated[0]

    def content(self) -> bytes:
        """Return the regions as JSON."""
        return zlib.decompress(self.packed)

    def regions(self, numbers: Mapping[str, int], size: Size) -> Regions:
        """Return the regions; those that cover nothing of the photo are left out. See `Annotation`."""
        marks = [mark for mark in self.marks() if mark.name in numbers]
        scale = self.scale(size)
        if not self.relative and scale != (1, 1):
            marks = [mark._replace(area=mark.area and mark.area * scale[0] * scale[1]) for mark in marks]
        if not self.masked:
            return _boxes(marks, numbers, size, scale)
        masks = [mark_runs(mark, size, scale) for mark in marks]
        # Roundings and polygons outside the photo leave masks of nothing.
        seen = [number for number, runs in enumerate(masks) if len(runs) > 1]
        areas = [marks[number].area or float(masks[number][1::2].sum()) for number in seen]
        return Regions.of_runs(
            size,
            [numbers[marks[number].name] for number in seen],
            [masks[number] for number in seen],
            crowd=[marks[number].crowd for number in seen],
            areas=areas,
        )


def _boxes(marks: list[Mark], numbers: Mapping[str, int], size: Size, scale: Scale) -> Regions:
    height, width = size
    boxes = np.array([_box(mark, size, scale) for mark in marks], dtype=np.float64).reshape(-1, 4)
    boxes = boxes.clip(0, [width, height, width, height])
    seen = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    sides = boxes[:, 2:] - boxes[:, :2]
    areas = [mark.area or float(area) for mark, area in zip(marks, sides.prod(axis=1), strict=True)]
    return Regions.of_boxes(
        size,
        [numbers[mark.name] for mark in marks],
        boxes,
        crowd=[mark.crowd for mark in marks],
        areas=areas,
    ).chosen(np.flatnonzero(seen))


def _box(mark: Mark, size: Size, scale: Scale) -> Box:
    """Return a region's box in pixels of the photo, around its run lengths where it has nothing else."""
    if (outer := mark.outer_box()) is not None:
        return (np.array(outer, dtype=np.float64) * np.tile(scale, 2)).round(DIGITS)
    return Regions.of_runs(size, [0], [mark_runs(mark, size, scale)]).boxes[0]


def mark_runs(mark: Mark, size: Size, scale: Scale) -> RunLengths:
    """Return the run lengths of a region's mask in a photo of some size; the whole box of one that has no mask.

    By the scale x and y of its points are multiplied.

    Raises:
        DataError: its run lengths are not of its own size.
    """
    if mark.runs is not None:
        text, *own = mark.runs
        try:
            runs = runs_of_text(text)
        except ValueError as error:
            raise DataError(f"a mask of '{mark.name}' cannot be read: {error}") from error
        if int(runs.sum()) != own[0] * own[1]:
            raise DataError(f"a mask of '{mark.name}' has {int(runs.sum()):,} pixels, not {own[0]} x {own[1]}")
        return runs if tuple(own) == size else encode_mask(resized(decode_mask(runs, (own[0], own[1])), size))
    polygons = mark.polygons
    if not mark.has_mask and (box := mark.outer_box()) is not None:
        left, top, right, bottom = box
        polygons = ((left, top, right, top, right, bottom, left, bottom),)
    scaled = [
        (np.reshape(polygon[: len(polygon) // 2 * 2], (-1, 2)) * scale).reshape(-1).tolist() for polygon in polygons
    ]
    return polygons_mask(scaled, size)


def resized(mask: Pixels, size: Size) -> Pixels:
    """Return a mask or a map of classes in another size, by the nearest pixel to each pixel's middle."""
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(np.int64) for new, old in zip(size, mask.shape, strict=True)
    )
    return cast("Pixels", mask[rows[:, None], columns[None, :]])


def regions_of(annotation: Annotation, numbers: Mapping[str, int], content: bytes | Path) -> Regions:
    """Return what is marked in a photo, the right way up; what is of the photo as it is stored is turned with it.

    Raises:
        ImageError: the photo cannot be read.
        DataError: the annotation cannot be read, or does not fit the photo.
    """
    stored, turn = stored_size(content)
    if of_stored(annotation.stated, stored, turn):
        return _turned(annotation.regions(numbers, stored), turn)
    return annotation.regions(numbers, stored[::-1] if turn in SIDEWAYS else stored)


def of_stored(stated: Size | None, stored: Size, turn: int) -> bool:
    """Tell whether an annotation is of a photo as it is stored, and not as its EXIF turns it by an orientation."""
    upright = stored[::-1]
    if turn not in SIDEWAYS or stated is None or stated == upright:
        return False
    return stated == stored or (same_shape(stated, stored) and not same_shape(stated, upright))


def same_shape(size: Size, other: Size) -> bool:
    """Tell whether one size is the other one scaled, up to a pixel of rounding of the smaller one."""
    return abs(size[1] * other[0] - size[0] * other[1]) <= max(*size, *other)


def _turned(regions: Regions, turn: int) -> Regions:
    """Return regions turned by an EXIF orientation from 5 to 8, which exchange height and width."""
    height, width = regions.size
    left, top, right, bottom = regions.boxes.T
    down, across = turn in (7, 8), turn in (6, 7)  # which way the new rows and columns run
    rows = (width - right, width - left) if down else (left, right)
    columns = (height - bottom, height - top) if across else (top, bottom)
    move = UPRIGHT[turn]

    def moved(runs: RunLengths) -> RunLengths:
        return encode_mask(move(decode_mask(runs, (height, width))))

    return replace(
        regions,
        size=(width, height),
        boxes=np.stack([columns[0], rows[0], columns[1], rows[1]], axis=1),
        masks=None if regions.masks is None else tuple(map(moved, regions.masks)),
        ignored=None if regions.ignored is None else moved(regions.ignored),
    )
