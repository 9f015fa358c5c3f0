"""What is found in photos as files: COCO's JSON, maps of classes and of objects, photos with the regions on them, a table.

Everything is in the photos' own pixels, the right way up. The folder appears when all of it is written.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

import numpy as np
from jaxtyping import Int64
from PIL import Image

from vitral.advice import counted, printable
from vitral.classifier.bulk.parts import for_spreadsheets
from vitral.classifier.predicted_regions import PredictedRegions, coco_regions
from vitral.data.source import BadImage
from vitral.errors import ImageError, ModelError
from vitral.files import new_folder, sync_file, write_through
from vitral.images.drawing import encode
from vitral.outputs import check_folder, refuse_inputs
from vitral.paths import CLASS_MAPS, COUNTS, MAPS, OBJECT_MAPS, OVERLAYS, PREDICTIONS
from vitral.tasks.drawn_regions import class_colours, is_ground, region_numbers
from vitral.tasks.regions import VOID

OWN = (PREDICTIONS, COUNTS, *MAPS)
# How a path begins that is in no folder by its name alone, and an address.
ABSOLUTE = re.compile(r"/|[A-Za-z]:/|\w+://")
MOST_OBJECTS = 65_535  # that a map of 16 bits can number


@dataclass(frozen=True)
class WrittenRegions:
    """What was written of photos, those that cannot be read, and of their regions; `things` says whether these are counted."""

    out: str
    images: int
    errors: int
    regions: int
    things: bool

    def lines(self) -> tuple[str, ...]:
        """Return it for people."""
        found = f", {counted(self.regions, 'region')}" if self.things else ""
        bad = f"; {self.errors:,} cannot be read (column 'error' of {COUNTS})" if self.errors else ""
        return (
            f"{self.out}: {counted(self.images, 'photo')}{found}{bad}.",
            f"{PREDICTIONS} has the regions as COCO has them, {COUNTS} a row for each photo, {OVERLAYS}/ what to look at.",
        )


def check_regions_out(out: Path, inputs: Iterable[str | Path], *, overwrite: bool = False) -> None:
    """Check that regions may be written to a folder, a new one that is in none of photos, before anything is computed.

    Raises:
        StorageError: They may not; what is there is untouched.
    """
    refuse_inputs(out, inputs)
    check_folder(out, own=OWN, overwrite=overwrite)


def write_regions(
    predicted: Iterable[PredictedRegions | BadImage],
    out: Path,
    class_names: Sequence[str],
    *,
    inputs: Sequence[str | Path] = (),
) -> WrittenRegions:
    """Write what is found in photos to a folder; only one photo is in memory at a time.

    Args:
        predicted: What is found in each photo, or why it cannot be read.
        out: The folder, which is replaced.
        class_names: The classes, in order.
        inputs: What the user named: a photo in such a folder or archive is called by its path in it, any other by its name, or
            by its whole path where the name is another photo's.

    Raises:
        ImageError: No photo can be read; nothing is written.
        StorageError: The folder cannot be written; what is there is untouched.
    """
    with new_folder(out, own=OWN) as partial:
        writer = _Writer(partial, class_names, [root for name in inputs for root in _roots(name)])
        with open(partial / PREDICTIONS, "w", encoding="utf-8") as coco:
            coco.write('{"annotations": [')
            for each in predicted:
                writer.add(each, coco)
            coco.write(
                f'\n], "images": {json.dumps(writer.images)}, "categories": {json.dumps(_categories(class_names))}}}\n'
            )
        if not writer.rows:
            raise ImageError("No photos are named; name files, folders or a dataset.")
        if not writer.images:
            first = writer.rows[0].error
            raise ImageError(
                f"None of {counted(len(writer.rows), 'photo')} can be read, so that nothing was written; the first: {first}"
            )
        sync_file(partial / PREDICTIONS)
        write_through(partial / COUNTS, writer.table().encode())
    errors = len(writer.rows) - len(writer.images)
    return WrittenRegions(str(out), len(writer.images), errors, writer.regions, writer.things)


def _roots(name: str | Path) -> tuple[str, str]:
    """Return what the name of a photo in a folder, or in an archive, begins with."""
    path = _forward(Path(name).as_posix())
    return ("", ":") if path == "." else (f"{path.rstrip('/')}/", f"{path}:")


def _forward(path: str) -> str:
    return path.replace("\\", "/")


def _parts(path: str) -> list[str]:
    """Return the parts of a path that lead out of no folder."""
    return [part for part in path.split("/") if part not in ("", ".", "..")]


def _categories(class_names: Sequence[str]) -> list[dict[str, Any]]:
    # The number of a class is the same everywhere: in the maps, in the JSON, in Python.
    return [{"id": number, "name": name, "supercategory": ""} for number, name in enumerate(class_names)]


class _Writer:
    """Writes photo after photo, and keeps what stands at the end of the files."""

    def __init__(self, folder: Path, class_names: Sequence[str], roots: Sequence[str]) -> None:
        self.folder, self.class_names, self.roots = folder, class_names, roots
        self.images: list[dict[str, Any]] = []
        self.rows: list[_Row] = []
        self.regions = 0
        self.things = self.masks = False
        self._names: set[str] = set()
        self._taken: set[str] = set()

    def add(self, each: PredictedRegions | BadImage, coco: TextIO) -> None:
        """Write what is found in a photo; the regions go into COCO's JSON."""
        if isinstance(each, BadImage):
            self.rows.append(_Row(each.path, error=each.reason))
            return
        name, number = self._name(each.source), len(self.images) + 1
        height, width = each.size
        self.images.append({"id": number, "file_name": name, "height": height, "width": width})
        for row, label in zip(coco_regions(each.found), each.class_id.tolist(), strict=True):
            coco.write(",\n" if self.regions else "\n")
            self.regions += 1
            coco.write(json.dumps({"id": self.regions, "image_id": number, "category_id": label, "iscrowd": 0} | row))
        self.things |= each.counted
        self.masks |= each.regions.masks is not None
        self.rows.append(_Row(name, each.size, tuple(each.counts().values()), tuple(each.pixels_of_classes().values())))
        self._pictures(each, self._stem(name))

    def _name(self, source: str) -> str:
        """Return what a photo is called below the folders that the user named; never a path out of a folder."""
        source = _forward(source)
        relative = ABSOLUTE.match(source) is None
        fitting = (root for root in self.roots if source.startswith(root) and (root or relative))
        root = max(fitting, key=len, default=None)
        inside = _parts(source.removeprefix(root or "")) or ["photo"]
        name = "/".join(inside[-1:] if root is None else inside)
        if name in self._names:
            name = "/".join(part.removesuffix(":") for part in (*_parts(root or ""), *inside))
        self._names.add(name)
        return name

    def _stem(self, name: str) -> str:
        """Return the name of a photo's images without suffix; where photos differ in that alone, it is part of the name."""
        path, number = PurePosixPath(printable(name)), 1
        stem = path.with_suffix("")
        if str(stem).casefold() in self._taken:
            stem = path.with_name(path.name.replace(".", "-"))
        while str(stem).casefold() in self._taken:
            number += 1
            stem = path.with_name(f"{path.stem}-{number}")
        self._taken.add(str(stem).casefold())
        return str(stem)

    def _pictures(self, each: PredictedRegions, stem: str) -> None:
        """Write a photo's maps, and the photo with its regions."""
        labels = None if each.regions.masks is None else each.class_map
        if labels is not None:
            self._write(f"{CLASS_MAPS}/{stem}.png", class_png(labels, self.class_names))
            if each.counted:
                self._write(f"{OBJECT_MAPS}/{stem}.png", _deep_png(region_numbers(each.regions)))
        if each.pixels is not None:
            self._write(f"{OVERLAYS}/{stem}.jpg", encode(each.overlay(), "JPEG"))

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_through(path, content)

    def table(self) -> str:
        """Return how many regions of each class are in each photo, and which share of it they cover, as CSV."""
        things, masks, errors = self.things, self.masks, len(self.images) < len(self.rows)
        names = self.class_names
        columns = [
            *("photo", "width", "height"),
            *((*names, "all regions") if things else ()),
            *((f"{name}, % of the photo" for name in names) if masks else ()),
            *(("error",) if errors else ()),
        ]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(for_spreadsheets, columns))
        for row in self.rows:
            cells = row.cells(len(names), things=things, masks=masks, errors=errors)
            writer.writerow(map(for_spreadsheets, cells))
        return file.getvalue()


@dataclass(frozen=True)
class _Row:
    """A photo's row: its name, height and width, the regions and the pixels of each class, or why it cannot be read."""

    name: str
    size: tuple[int, int] | None = None
    counts: tuple[int, ...] = ()
    pixels: tuple[int, ...] = ()
    error: str = ""

    def cells(self, classes: int, *, things: bool, masks: bool, errors: bool) -> list[str]:
        if self.size is None:
            empty = 2 + (classes + 1 if things else 0) + (classes if masks else 0)
            return [self.name, *[""] * empty, self.error]
        height, width = self.size
        return [
            *(self.name, str(width), str(height)),
            *((*map(str, self.counts), str(sum(self.counts))) if things else ()),
            *((f"{100 * pixels / (height * width):.4g}" for pixels in self.pixels) if masks else ()),
            *([self.error] if errors else []),
        ]


def class_png(labels: Int64[np.ndarray, "height width"], class_names: Sequence[str]) -> bytes:
    """Return a map of classes as a PNG: each pixel the number of its class, with a colour for each; white for none.

    Of more than 255 classes it has 16 bits and no colours, and 65535 stands for none.
    """
    if len(class_names) > VOID:
        return _deep_png(np.where(labels == VOID, MOST_OBJECTS, labels))
    palette = np.full((256, 3), 255, dtype=np.uint8)
    colours = class_colours(len(class_names))
    colours[[number for number, name in enumerate(class_names) if is_ground(name)]] = 0
    palette[: len(colours)] = colours
    image = Image.fromarray(labels.astype(np.uint8), "P")
    image.putpalette(palette.tobytes())
    return _png(image)


def _deep_png(numbers: Int64[np.ndarray, "height width"]) -> bytes:
    if numbers.max(initial=0) > MOST_OBJECTS:
        raise ModelError(f"A map of 16 bits cannot number {numbers.max():,} objects of one photo.")
    return _png(Image.fromarray(numbers.astype(np.uint16)))


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
