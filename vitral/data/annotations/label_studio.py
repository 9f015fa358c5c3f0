"""Label Studio's JSON, whole or "min": boxes, polygons, ellipses and brush strokes of photos, in per cent of the original.

It is a list of tasks, or a file for each task or each annotation, as it fills a storage.
Whatever angle the photo was viewed at (`image_rotation`), the coordinates are those of the photo unturned, and `rotation` turns
a box clockwise about its top left corner, an ellipse about its centre (label-studio-frontend, src/regions, `serialize`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from jaxtyping import UInt8

from vitral.data.annotations.annotation import Mark, Size
from vitral.data.annotations.drawn import NAMELESS, NO_REGION, around, ellipse, stated_size, turned_box, usable
from vitral.data.annotations.marked import (
    Collected,
    MarkedPhotos,
    Trap,
)
from vitral.data.annotations.tree import FileTree
from vitral.described import mapping
from vitral.errors import DataError, one_line
from vitral.images.decode import EXTENSIONS
from vitral.images.run_lengths import RunLengths, counts_text, encode_mask

FORM = "Label Studio JSON"
SEVERAL = "annotations of photos that several people marked, left out but for that of the ground truth or the last"
UNFINISHED = "photos that were skipped, or that nobody marked yet, left out"
OPAQUE = 3  # the channel of a brush stroke's RGBA that holds the mask
LABELS = "labels"  # how the keys of a region's classes end: "rectanglelabels", "polygonlabels", "labels"
Values = UInt8[np.ndarray, " values"]


def read_label_studio(tree: FileTree) -> MarkedPhotos | None:
    """Return what exports of Label Studio in a folder say; None where there are none.

    Raises:
        DataError: one cannot be read.
    """
    found = Collected(tree, FORM)
    for path in tree.json_files():
        for task in tree.json(path, ["original_width"], FORM, _tasks) or []:
            if "annotations" in task and not finished(task):
                found.traps.append(Trap(UNFINISHED, path))
                continue
            if (photo := found.photo(photo_named(task, path), path)) is not None:
                found.stated[photo], found.marks[photo] = _read_task(task, path, found.traps)
    return found.photos(relative=True) if found.marks or found.traps else None


def _tasks(values: object) -> list[dict[str, Any]]:
    """Return the tasks of an export; none of any other file."""
    tasks = [_whole(mapping(task)) for task in (values if isinstance(values, list) else [values])]
    return tasks if any(True for task in tasks for _ in _regions(task)) else []


def _whole(task: dict[str, Any]) -> dict[str, Any]:
    """Return a task with its annotations, of an annotation that has its task in it, as a storage is given them."""
    inside = mapping(task.get("task"))
    return {**inside, "annotations": [task]} if "result" in task and "data" in inside else task


def photo_named(task: Mapping[str, Any], file: str) -> str:
    """Return the name of a task's photo: without address, but with its folders and the prefix of an upload.

    Raises:
        DataError: the task names no image.
    """
    data = mapping(task.get("data")) or task
    for value in (*data.values(), task.get("file_upload")):
        if isinstance(value, str):
            parts = urlsplit(value)
            path = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]  # a local file's: /data/local-files/?d=PATH
            if path.lower().endswith(EXTENSIONS):
                return path
    raise DataError(f"'{file}' cannot be read: its task {task.get('id', '?')} names no image.")


def _read_task(task: Mapping[str, Any], file: str, traps: list[Trap]) -> tuple[Size | None, list[Mark]]:
    """Return the size of a task's photo, and what is marked on it, in shares of its sides.

    Of several people's annotations the one that is marked as ground truth counts, or else the last.
    """
    regions = list(_regions(task))
    named = [(name, region) for region in regions if (name := _name(region))]
    try:
        size = _size(regions[0]) if regions else None
        marks = [mark for name, region in named if (mark := _mark(region, name)) is not None]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise DataError(
            f"'{file}' cannot be read: a region of its task {task.get('id', '?')} is not Label Studio's ({one_line(error)})."
        ) from error
    # Where classes are chosen by a tool of its own, each region stands there twice: without a class, and with it.
    classed = {region.get("id") for _, region in named}
    counts = {
        NAMELESS: sum(not _name(region) and region.get("id") not in classed for region in regions),
        NO_REGION: len(named) - len(marks),
        SEVERAL: len(finished(task)) - 1,
    }
    traps += [Trap(kind, file, count) for kind, count in counts.items() if count > 0]
    return size, usable(marks, file, traps)


def finished(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a task's annotations in the whole form, without those that were given up."""
    found = task.get("annotations")
    return [each for each in map(mapping, found if isinstance(found, list) else []) if not each.get("was_cancelled")]


def results_of(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give what is said of a task's photo, each as one object; of several annotations that of the ground truth, or the last."""
    every = finished(task)
    chosen = next((each for each in every if each.get("ground_truth")), every[-1] if every else {})
    yield from ({**each, **mapping(each.get("value"))} for each in map(mapping, chosen.get("result") or []))


def _regions(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give a task's regions, each as one object: of the whole form what is in "value" beside the rest."""
    if finished(task):
        yield from (result for result in results_of(task) if "original_width" in result)
    elif "data" not in task:
        lists = (value for value in task.values() if isinstance(value, list))
        yield from (each for value in lists for each in map(mapping, value) if "original_width" in each)


def _name(region: Mapping[str, Any]) -> str:
    """Return a region's class; empty where it has none."""
    named = (value for key, value in region.items() if key.endswith(LABELS) and isinstance(value, list) and value)
    return str(next(named, [""])[0])


def _mark(region: Mapping[str, Any], name: str) -> Mark | None:
    """Return a region in shares of its photo's sides; None for a point, which has no area."""
    height, width = _size(region)
    if "rle" in region:
        return Mark(name, runs=(counts_text(decode_brush(region["rle"], (height, width))), height, width))
    unit = np.array([width, height]) / 100
    degrees = float(region.get("rotation") or 0)
    if "points" in region:
        points = np.array(region["points"], dtype=np.float64).reshape(-1, 2)
        return Mark(name, polygons=(tuple((points / 100).reshape(-1).tolist()),))
    x, y = (np.array([region["x"], region["y"]], dtype=np.float64) * unit).tolist()
    if "radiusX" in region:
        radii = np.array([region["radiusX"], region["radiusY"]], dtype=np.float64) * unit
        outline = ellipse((x, y), (radii[0], radii[1]), degrees)
    elif "height" in region:
        across, down = (np.array([region["width"], region["height"]], dtype=np.float64) * unit).tolist()
        outline = turned_box((x, y, x + across, y + down), degrees, (x, y))
    else:
        return None
    shares = tuple((np.reshape(outline, (-1, 2)) / (width, height)).reshape(-1).tolist())
    if "radiusX" in region:
        return Mark(name, polygons=(shares,))
    return Mark(name, box=around(shares))


def _size(region: Mapping[str, Any]) -> Size:
    return stated_size(int(region["original_height"]), int(region["original_width"]))


def decode_brush(packed: Sequence[int], size: tuple[int, int]) -> RunLengths:
    """Return the mask of a brush stroke, whose RGBA pixels are packed as its frontend does (rle-pack).

    Bits, from the highest of each byte: 32 of the number of values, 5 of the bits of a value less 1, four times 4 of the bits
    of a length less 1; then runs: whether it repeats one value, 2 which of the lengths, its length less 1, its values.

    Raises:
        ValueError: they are no mask of that size.
    """
    height, width = size
    values = _unpack(np.array(packed, dtype=np.uint8), 4 * height * width)
    return encode_mask(values.reshape(height, width, 4)[..., OPAQUE] > 0)


def _unpack(packed: Values, expected: int) -> Values:
    place = 0

    def skip(count: int) -> slice:
        """Go on by so many bits, and return the bytes that hold them."""
        nonlocal place
        first, place = place // 8, place + count
        if place > 8 * len(packed):
            raise ValueError("cut short")
        return slice(first, -(-place // 8))

    def read(count: int) -> int:
        return int.from_bytes(packed[skip(count)].tobytes(), "big") >> -place % 8 & (1 << count) - 1

    def read_each(count: int, width: int) -> Values:
        """Return so many values that each have so many bits."""
        begun = place % 8
        bits = np.unpackbits(packed[skip(count * width)])[begun : begun + count * width]
        return bits.reshape(count, width) @ (1 << np.arange(width, dtype=np.uint8)[::-1])

    number, width = read(32), read(5) + 1
    lengths = [read(4) + 1 for _ in range(4)]
    if number != expected or width > 8:
        raise ValueError(f"a brush stroke of {number:,} values, where the photo has {expected:,}")
    values = np.zeros(number, dtype=np.uint8)
    done = 0
    while done < number:
        repeats, count = read(1), read(lengths[read(2)]) + 1
        values[done : done + count] = read(width) if repeats else read_each(min(count, number - done), width)
        done += count
    return values
