"""LabelMe's JSON, a file a photo: polygons, rectangles, circles and masks in pixels of the photo as EXIF turns it.

Shapes of one class and one group are parts of one object (labelme, examples/instance_segmentation). A mask is a PNG over the
rectangle of its two points, which both are inside. The same form is written by X-AnyLabeling and others.
"""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from vitral.data.annotations.annotation import Mark, Size
from vitral.data.annotations.drawn import NO_REGION, around, ellipse, stated_size, usable
from vitral.data.annotations.marked import Collected, MarkedPhotos, Trap, split_of_path
from vitral.data.annotations.tree import FileTree
from vitral.described import mapping
from vitral.errors import one_line
from vitral.images.run_lengths import counts_text, encode_mask

FORM = "LabelMe JSON"
KEYS = ("shapes", "imagePath")
WITHOUT_AREA = ("point", "points", "line", "linestrip")
GROUPED = "groups of shapes that are not polygons alone, whose shapes are objects of their own"


def read_labelme(tree: FileTree) -> MarkedPhotos | None:
    """Return what LabelMe's files in a folder say; None where there are none.

    Raises:
        DataError: one cannot be read.
    """
    found = Collected(tree, FORM)
    for path in tree.json_files():
        values = tree.json(path, KEYS, FORM, _checked)
        if values is None:
            continue
        # A file is called like its photo; what it says of the photo's name may be of before that was renamed.
        named = str(values["imagePath"] or "")
        stem = PurePosixPath(path).stem
        photo = named if tree.photo(named, path) is not None else stem
        if (own := found.photo(photo, path, split_of_path(path))) is not None:
            try:
                found.marks[own] = _marks(values["shapes"], size := _size(values), path, found.traps)
                found.stated[own] = size
            except (KeyError, TypeError, ValueError, IndexError, OverflowError, OSError) as error:
                why = f"'{tree.file(path).name}' has a shape that is not LabelMe's ({one_line(error)})"
                found.bad.append(tree.bad(own, why))
    return found.photos() if found.marks or found.traps or found.bad else None


def _checked(values: object) -> Mapping[str, Any] | None:
    """Return the values of a file that has shapes of a photo; None of any other."""
    given = mapping(values)
    shapes = given.get("shapes")
    is_one = "imagePath" in given and isinstance(shapes, list) and all(isinstance(shape, dict) for shape in shapes)
    return given if is_one else None


def _size(values: Mapping[str, Any]) -> Size | None:
    height, width = values.get("imageHeight"), values.get("imageWidth")
    return stated_size(int(height), int(width)) if height and width else None


def _marks(shapes: Sequence[Mapping[str, Any]], size: Size | None, file: str, traps: list[Trap]) -> list[Mark]:
    """Return a photo's regions, of shapes of one group one."""
    groups: dict[tuple[str, object], list[Mark]] = {}
    for number, shape in enumerate(shapes):
        mark = _mark(shape, size)
        if mark is None:
            traps.append(Trap(NO_REGION, file))
            continue
        group = shape.get("group_id")
        groups.setdefault((mark.name, ("shape", number) if group is None else group), []).append(mark)
    marks: list[Mark] = []
    for parts in groups.values():
        if len(parts) > 1 and all(part.polygons for part in parts):
            marks.append(Mark(parts[0].name, polygons=tuple(polygon for part in parts for polygon in part.polygons)))
        else:
            traps.extend([Trap(GROUPED, file)] if len(parts) > 1 else [])
            marks.extend(parts)
    return usable(marks, file, traps)


def _mark(shape: Mapping[str, Any], size: Size | None) -> Mark | None:
    """Return a shape; None of one that covers nothing."""
    name, kind = str(shape.get("label") or ""), shape.get("shape_type") or "polygon"
    if kind in WITHOUT_AREA:
        return None
    points = np.array(shape["points"], dtype=np.float64).reshape(-1, 2)
    outline = tuple(points.reshape(-1).tolist())
    if kind == "rectangle":
        return Mark(name, box=around(outline))
    if kind == "circle":
        radius = math.dist(points[0], points[1])
        return Mark(name, polygons=(ellipse((points[0][0], points[0][1]), (radius, radius), 0),))
    if kind == "mask":
        return Mark(name, runs=_runs(shape["mask"], around(outline), size))
    return Mark(name, polygons=(outline,))


def _runs(encoded: str, box: tuple[float, float, float, float], size: Size | None) -> tuple[str, int, int]:
    """Return a mask's run lengths over the whole photo.

    Raises:
        ValueError: it does not fit into the photo, or the photo's size is not stated; OSError where it is no image.
    """
    if size is None:
        raise ValueError("a mask of a photo whose size is not stated")
    left, top, right, bottom = (round(side) for side in box)
    if min(left, top) < 0 or right >= size[1] or bottom >= size[0]:
        raise ValueError(f"a mask beyond the photo of {size[1]}x{size[0]} pixels")
    with Image.open(io.BytesIO(base64.b64decode(encoded)), formats=("PNG",)) as image:
        if image.size != (right - left + 1, bottom - top + 1):
            raise ValueError(f"a mask of {image.width}x{image.height} pixels in a rectangle of other sides")
        part = np.asarray(image.convert("L")) > 0
    mask = np.zeros(size, dtype=bool)
    mask[top : bottom + 1, left : right + 1] = part
    return counts_text(encode_mask(mask)), *size
