"""COCO's panoptic form: a map of segments a photo, each segment's number in red + 256 green + 65,536 blue; its class in JSON.

Classes are things, whose segments are objects, or matter such as sky (panopticapi, README and utils.py). Pixels of no segment
are ignored.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from vitral.data.annotations.annotation import Size, resized
from vitral.data.annotations.marked import NOT_THERE, MarkedPhotos, Photos, json_files, read_bytes, split_of_path
from vitral.data.annotations.mask_images import Values, read_values, size_traps
from vitral.data.annotations.traps import Trap
from vitral.data.names import ALL
from vitral.data.source import BadImage
from vitral.errors import DataError, one_line
from vitral.images.run_lengths import encode_mask
from vitral.paths import Walk
from vitral.tasks.panoptic import PANOPTIC
from vitral.tasks.regions import Regions

FORM = "COCO panoptic"
KEYS = (b'"segments_info"', b'"images"', b'"categories"')
ABSENT = "segments that their map does not have, left out"


@dataclass(frozen=True)
class SegmentMap:
    """The segments of a photo, in an image beside it; an `Annotation`.

    Attributes:
        path: The map.
        classes: The names of the classes in it.
        segments: The number of each segment, its class, and whether it is a crowd.
        stated: The map's height and width, pixels.
        digest: A hash of the map's file.
    """

    path: str
    classes: tuple[str, ...]
    segments: tuple[tuple[int, str, bool], ...]
    stated: Size
    digest: str

    def content(self) -> bytes:
        """Return a hash of the map and its segments."""
        return f"{self.digest} {self.segments}".encode()

    def regions(self, numbers: Mapping[str, int], size: Size) -> Regions:
        """Return a region for each segment. See `Annotation`."""
        values = read_segments(Path(self.path))
        values = values if values.shape == size else resized(values, size)
        known = [segment for segment in self.segments if segment[1] in numbers]
        masks = [values == number for number, *_ in known]
        regions = Regions.of_masks(
            size, [numbers[name] for _, name, _ in known], masks, crowd=[crowd for *_, crowd in known]
        )
        rest = ~np.isin(values, [number for number, *_ in self.segments])
        return replace(regions, ignored=encode_mask(rest) if rest.any() else None)


def read_segments(path: Path) -> Values:
    """Return the number of each pixel's segment.

    Raises:
        DataError: the map cannot be read.
    """
    colours = read_values(path, colours=True)
    return (colours >> 16) | (colours & 0xFF00) | ((colours & 0xFF) << 16)


def read_panoptic(folder: Path, walked: Walk, photos: Photos) -> MarkedPhotos | None:
    """Return what COCO's panoptic files in a folder say; None where there are none.

    Raises:
        DataError: one cannot be read.
    """
    names: dict[int, tuple[str, bool]] = {}
    annotations: dict[str, SegmentMap] = {}
    splits: dict[str, str] = {}
    traps: list[Trap] = []
    bad: list[BadImage] = []
    for path in json_files(walked):
        if (values := _read(folder / path)) is None:
            continue
        split, beside = split_of_path(path), PurePosixPath(path).stem
        called = {image["id"]: str(image["file_name"]) for image in values["images"]}
        names |= {item["id"]: (str(item["name"]), bool(item.get("isthing", 1))) for item in values["categories"]}
        for item in values["annotations"]:
            segments = photos.find(f"{beside}/{item['file_name']}", path, split)
            photo = photos.find(called.get(item["image_id"], ""), path, split, other_than=segments)
            if photo is None or segments is None:
                traps.append(Trap(NOT_THERE, path))
                continue
            try:
                annotations[photo] = found = _map(folder, segments, item, names, traps)
                traps += size_traps(folder / photo, segments, found.stated)
            except DataError as error:
                bad.append(BadImage(str(folder / photo), str(error).rstrip("."), listed=True))
            if (own := split if split != ALL else split_of_path(photo)) != ALL:
                splits[photo] = own
    if not annotations and not bad:
        return None
    ordered = [names[number] for number in sorted(names)]
    return MarkedPhotos(
        form=FORM,
        task=PANOPTIC,
        annotations=annotations,
        class_names=tuple(dict.fromkeys(name for name, _ in ordered)),
        splits=splits,
        things=tuple(dict.fromkeys(name for name, is_thing in ordered if is_thing)),
        traps=tuple(traps),
        bad=tuple(bad),
    )


def _map(
    folder: Path, path: str, item: Mapping[str, Any], names: Mapping[int, tuple[str, bool]], traps: list[Trap]
) -> SegmentMap:
    values = read_segments(folder / path)
    there = set(np.unique(values).tolist())
    listed = [
        (segment["id"], names[segment["category_id"]][0], bool(segment.get("iscrowd")))
        for segment in item["segments_info"]
        if segment["category_id"] in names
    ]
    kept = [segment for segment in listed if segment[0] in there]
    traps += [Trap(ABSENT, path, len(listed) - len(kept))] if len(kept) < len(listed) else []
    height, width = values.shape
    digest = hashlib.blake2b(read_bytes(folder / path, "a map"), digest_size=16).hexdigest()
    return SegmentMap(
        str(folder / path), tuple(dict.fromkeys(name for _, name, _ in kept)), tuple(kept), (height, width), digest
    )


def _read(path: Path) -> dict[str, Any] | None:
    """Return a panoptic JSON file; None for any other.

    Raises:
        DataError: it lacks what the form has.
    """
    content = read_bytes(path, "annotations")
    if not all(key in content for key in KEYS):
        return None
    try:
        values = json.loads(content)
        ids = [image["id"] for image in values["images"]]
        ids += [item["id"] for item in values["categories"] if item["name"]]
        ids += [item["image_id"] for item in values["annotations"] if item["file_name"]]
        ids += [
            each[key]
            for item in values["annotations"]
            for each in item["segments_info"]
            for key in ("id", "category_id")
        ]
        names = [image["file_name"] for image in values["images"]]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise DataError(f"'{path}' cannot be read as COCO's panoptic JSON ({one_line(error)}).") from error
    if not all(isinstance(number, int) for number in ids) or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"'{path}' cannot be read as COCO's panoptic JSON (an id is no number, or a file's name no text)."
        )
    return dict(values)
