"""VTAB's images in datasets that TFDS prepared."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8

from vitral.data.batch import evenly
from vitral.data.listing import Listing, Opening
from vitral.data.stored import Entry
from vitral.data.vtab.prepared import PreparedDataset, RecordPlace, find
from vitral.data.vtab.records import Records, parse
from vitral.data.vtab.tasks import VtabTask
from vitral.errors import DataError, ImageError
from vitral.events import Progress
from vitral.images.decode import read_image

IMAGE = "image"  # the feature that holds the image in all datasets
SHOWN = 100  # records between two lines of progress

Grey = UInt8[np.ndarray, "height width"]
Colour = UInt8[np.ndarray, "height width 3"]


class ExampleImages:
    """The images of examples, from a record each, their pixel values multiplied by a factor."""

    def __init__(self, files: Sequence[Records], located: Sequence[RecordPlace], *, scale: int = 1) -> None:
        self._files = list(files)
        self._located = np.array(located, dtype=np.int64)
        self._scale = scale

    def read(self, index: int) -> bytes:
        """Return an image's encoded bytes. See `Store`."""
        file, record = self._located[index].tolist()
        try:
            values = parse(self._files[file].read(record)).get(IMAGE)
        except DataError as error:
            raise ImageError(f"'{self.name(index)}' cannot be read: {error}.") from error
        if not values:
            raise ImageError(f"'{self.name(index)}' has no feature '{IMAGE}' that holds an image.")
        return bytes(values[0]) if self._scale == 1 else scaled(values[0], self._scale)

    def name(self, index: int) -> str:
        """Return file and record, such as "clevr-train.tfrecord-00000-of-00128[17]"."""
        file, record = self._located[index].tolist()
        return f"{self._files[file].path.name}[{record}]"


def encoded(pixels: Grey | Colour) -> bytes:
    """Return pixels, grey or RGB, as a PNG file."""
    _, data = cv2.imencode(".png", pixels if pixels.ndim == 2 else pixels[:, :, ::-1])  # OpenCV has blue first
    return data.tobytes()


def scaled(image: bytes, factor: int) -> bytes:
    """Return an image with its values multiplied, as a PNG file, or raise ImageError if it cannot be decoded."""
    return encoded(np.minimum(read_image(image).astype(np.int64) * factor, 255).astype(np.uint8))


def list_prepared(root: Path, task: VtabTask, how: Opening, most_test: int | None) -> Listing | None:
    """Return the images of a task in a dataset that TFDS prepared; None where there is no such dataset."""
    prepared = find(root, task.dataset, task.version)
    if prepared is None:
        return None
    located = {split: prepared.locate(part) for split, part in task.parts.items()}
    notes = (*_notes(prepared, task), *task.size_notes(len(located["test"])))
    located["test"] = evenly(located["test"], most_test)
    names = task.names or prepared.names() or task.numbered
    if len(names) != task.classes:
        raise DataError(f"'{prepared.folder}' names {len(names)} classes; VTAB's {task.name} has {task.classes}.")
    everything = [place for places in located.values() for place in places]
    store = ExampleImages(prepared.files, everything, scale=task.scale)
    entries: dict[str, list[Entry]] = {}
    index = 0
    for split, places in located.items():
        for file, place in places:
            name = store.name(index)
            record = prepared.files[file].read(place)
            where = str(prepared.folder / name)
            label = task.class_of(partial(parse, record), where, advice="prepare the dataset again")
            entries.setdefault(split, []).append(Entry(index, name, (names[label],), len(record)))
            index += 1
            if index % SHOWN == 0 or index == len(everything):
                how.listener(Progress("read labels", index, len(everything)))
    return task.listing(store, entries, names, notes)


def _notes(prepared: PreparedDataset, task: VtabTask) -> tuple[str, ...]:
    images = f"images of {task.name}, from TFDS {task.dataset} {prepared.version}."
    if prepared.is_of(task.version):
        return (f"VTAB-1k's official {images}",)
    other = f"VTAB is defined on version {task.version} of {task.dataset}, whose images may be in another order."
    return (f"VTAB-1k's slices of {images}", other)
