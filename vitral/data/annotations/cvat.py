"""CVAT's XML, version 1.1, for images and for video: boxes, polygons, ellipses, masks (CVAT, docs/manual/advanced/xml_format).

Coordinates are continuous pixels of the photo. Of shapes that cover each other, those of greater z_order lie above. A mask's
runs go along the rows of its own box. A frame's shape with outside="1" has left the image.
"""

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

import numpy as np

from vitral.data.annotations.annotation import Mark, Size
from vitral.data.annotations.drawn import NO_REGION, around, ellipse, stated_size, turned_box, usable
from vitral.data.annotations.marked import (
    Collected,
    MarkedPhotos,
    Trap,
    split_of_path,
)
from vitral.data.annotations.tree import FileTree
from vitral.data.chosen import note
from vitral.data.names import split_within
from vitral.errors import DataError, one_line
from vitral.images.run_lengths import counts_text, encode_mask

FORM = "CVAT XML"
SHAPES = ("box", "polygon", "ellipse", "mask")
WITHOUT_AREA = ("points", "polyline", "skeleton", "cuboid", "tag")  # shapes and kinds of labels


def read_cvat(tree: FileTree) -> MarkedPhotos | None:
    """Return what CVAT's files in a folder say; None where there are none.

    Raises:
        DataError: one cannot be read, beside others or alone.
    """
    found = Collected(tree, FORM)
    names: dict[str, None] = {}
    damaged: DataError | None = None
    others = tags = 0
    for path in tree.ending(".xml"):
        try:
            root = tree.xml(path)
        except DataError as error:  # one of many files of another form is that form's to tell
            damaged = error
            continue
        if not _is_cvat(root):
            others += 1
            continue
        names |= dict.fromkeys(class_names(root))
        tags += sum(1 for _ in root.iterfind("image/tag"))
        for image, shapes in _images(root):
            name = image.get("name") or ""
            split = split_within(image.get("subset") or "") or split_of_path(path)
            if (photo := found.photo(name, path, split)) is not None:
                found.stated[photo], found.marks[photo] = _photo(name, image, shapes, path, found.traps)
                names |= dict.fromkeys(mark.name for mark in found.marks[photo])
    if damaged is not None and not others:
        raise damaged
    if tags and not any(found.marks.values()):
        note(
            f"{FORM} in '{tree.title}' has tags of whole photos and no shapes, which is not read; let CVAT export it as "
            "'ImageNet 1.0', a folder for each class."
        )
        return None
    return found.photos([*names]) if found.marks or found.traps else None


def _is_cvat(root: Element) -> bool:
    return root.tag == "annotations" and (root.find("image") is not None or root.find("track") is not None)


def class_names(root: Element) -> tuple[str, ...]:
    """Return the labels of a task in its order, but for those of points, lines and parts of skeletons."""
    labels = [
        label
        for label in root.iterfind("meta//label")
        if label.find("parent") is None and label.findtext("type") not in WITHOUT_AREA
    ]
    return tuple(dict.fromkeys(name for label in labels if (name := label.findtext("name"))))


def _images(root: Element) -> list[tuple[dict[str, str], list[Element]]]:
    """Return each photo's attributes and its shapes; a video's frames are photos, too."""
    original = root.find("meta//original_size")
    size = {} if original is None else {side.tag: side.text or "" for side in original}
    frames = [({"name": name, **size}, shapes) for name, shapes in _frames(root).items()]
    return [*((image.attrib, list(image)) for image in root.iterfind("image")), *frames]


def _frames(root: Element) -> dict[str, list[Element]]:
    """Return the shapes of each frame of a video by the name that CVAT gives to its image."""
    frames: dict[str, list[Element]] = {}
    for track in root.iterfind("track"):
        for shape in track:
            there = frames.setdefault(f"frame_{int(shape.get('frame') or 0):06d}", [])
            if shape.get("outside") != "1":
                shape.set("label", track.get("label") or "")
                there.append(shape)
    return frames


def _photo(
    name: str, image: Mapping[str, str], shapes: Sequence[Element], file: str, traps: list[Trap]
) -> tuple[Size | None, list[Mark]]:
    """Return a photo's size, and its regions, those that cover others last."""
    try:
        size = stated_size(int(image["height"]), int(image["width"])) if {"height", "width"} <= image.keys() else None
        ordered = sorted(shapes, key=lambda shape: int(shape.get("z_order") or 0))
        marks = [_mark(shape, size) for shape in ordered if shape.tag in SHAPES]
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"'{file}' cannot be read: a shape of '{name}' is not CVAT's ({one_line(error)}).") from error
    if others := sum(shape.tag in WITHOUT_AREA[:-1] for shape in shapes):
        traps.append(Trap(NO_REGION, file, others))
    return size, usable(marks, file, traps)


def _mark(shape: Element, size: Size | None) -> Mark:
    """Return a shape as it is drawn."""
    name, degrees = shape.get("label") or "", float(shape.get("rotation") or 0)
    if shape.tag == "polygon":
        points = [[float(side) for side in point.split(",")] for point in shape.attrib["points"].split(";")]
        return Mark(name, polygons=(tuple(np.array(points).reshape(-1, 2).reshape(-1).tolist()),))
    if shape.tag == "ellipse":
        x, y, across, down = (float(shape.attrib[key]) for key in ("cx", "cy", "rx", "ry"))
        return Mark(name, polygons=(ellipse((x, y), (across, down), degrees),))
    if shape.tag == "mask":
        return Mark(name, runs=_runs(shape, size))
    left, top, right, bottom = (float(shape.attrib[key]) for key in ("xtl", "ytl", "xbr", "ybr"))
    if not degrees:
        return Mark(name, box=(left, top, right, bottom))
    corners = turned_box((left, top, right, bottom), degrees, ((left + right) / 2, (top + bottom) / 2))
    return Mark(name, box=around(corners))


def _runs(shape: Element, size: Size | None) -> tuple[str, int, int]:
    """Return a mask's run lengths over the whole photo.

    Raises:
        ValueError: it does not fit into the photo, or the photo's size is not stated.
    """
    left, top, width, height = (int(shape.attrib[key]) for key in ("left", "top", "width", "height"))
    counts = np.array([int(count) for count in shape.attrib["rle"].split(",")], dtype=np.int64)
    if size is None or min(left, top, *counts.tolist()) < 0 or counts.sum() != width * height:
        raise ValueError(f"a mask of {counts.sum():,} pixels in a box of {width}x{height}")
    if left + width > size[1] or top + height > size[0]:
        raise ValueError(f"a mask beyond the photo of {size[1]}x{size[0]} pixels")
    mask = np.zeros(size, dtype=bool)
    inside = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    mask[top : top + height, left : left + width] = inside.reshape(height, width)
    return counts_text(encode_mask(mask)), *size
