"""Stores of encoded images, by index, and splits of a dataset made from them."""

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int64

from vitral.data.annotations.annotation import Annotation, regions_of
from vitral.errors import DataError, ImageError, one_line
from vitral.images.decode import Pixels, Shrink, read_image
from vitral.tasks.regions import Regions
from vitral.tasks.task import Label, classes_of

UNREAD = ("",)  # the classes of an image whose label is not read
MOST_KNOWN = 2_000  # images of a split whose regions stay in memory
MOST_OPEN = 16  # files that a thread keeps open at once


class Store(Protocol):
    """Encoded images by index; safe to use in several processes."""

    def read(self, index: int) -> bytes | Path:
        """Return an image's encoded bytes, or the path of the file that holds them.

        Raises:
            ImageError: they cannot be read; the message names the image.
        """
        ...

    def name(self, index: int) -> str:
        """Return the image's name for people: its path, or its position in a file."""
        ...


def content_at(store: Store, index: int) -> bytes:
    """Return an image's encoded bytes, wherever they are.

    Raises:
        ImageError: they cannot be read.
        OSError: the file that holds them cannot be read.
    """
    content = store.read(index)
    return content if isinstance(content, bytes) else content.read_bytes()


def named(error: ImageError, name: str) -> ImageError:
    """Return an error about an image of which only the bytes were known, with its name."""
    return ImageError(str(error).replace("The image", f"'{name}'", 1))


class Entry(NamedTuple):
    """An image: its index in the store, its name there, its classes, and its size in bytes."""

    store_index: int
    name: str
    classes: tuple[str, ...]
    size: int


def located(ends: Int64[np.ndarray, " lists"], index: int) -> tuple[int, int]:
    """Return in which of several lists an item of all of them is, by the lists' ends, and its index there."""
    number = int(np.searchsorted(ends, index, side="right"))
    return number, index - (0 if number == 0 else int(ends[number - 1]))


class JoinedStores:
    """Several stores as one, each with the number of its images: its images come after those of the one before."""

    def __init__(self, stores: Sequence[tuple[Store, int]]) -> None:
        self._stores = [store for store, _ in stores]
        self._ends = np.cumsum([count for _, count in stores], dtype=np.int64)

    def read(self, index: int) -> bytes | Path:
        """Return an image's bytes, or its path. See `Store`."""
        store, own = self._find(index)
        return store.read(own)

    def name(self, index: int) -> str:
        """Return what an image's own store calls it."""
        store, own = self._find(index)
        return store.name(own)

    def cells(self, column: str) -> list[str] | None:
        """Return each image's cell of a column as text; None where a store has no columns."""
        if not all(hasattr(store, "cells") for store in self._stores):
            return None
        return [cell for store in self._stores for cell in store.cells(column)]  # type: ignore[attr-defined]

    def _find(self, index: int) -> tuple[Store, int]:
        number, own = located(self._ends, index)
        return self._stores[number], own


class ConvertedImages:
    """Images whose encoded bytes are converted as they are read, by what can be sent to worker processes."""

    def __init__(self, images: Store, convert: Callable[[bytes], bytes]) -> None:
        self._images, self._convert = images, convert

    def read(self, index: int) -> bytes:
        """Return the encoded bytes of a converted image. See `Store`."""
        try:
            content = content_at(self._images, index)
        except OSError as error:
            raise ImageError(f"'{self.name(index)}' cannot be read ({one_line(error)}).") from error
        try:
            return self._convert(content)
        except ImageError as error:
            raise named(error, self.name(index)) from error

    def name(self, index: int) -> str:
        """Return the name of the image that is stored."""
        return self._images.name(index)


class Strings:
    """Many strings in one buffer.

    A list of as many would be copied, page by page, into every worker process, since reading it changes reference counts.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        encoded = [string.encode(errors="surrogateescape") for string in strings]
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(string) for string in encoded], dtype=np.int64)

    def __getitem__(self, index: int) -> str:
        start = 0 if index == 0 else self._ends[index - 1]
        return self._bytes[start : self._ends[index]].tobytes().decode(errors="surrogateescape")


def open_binary(path: str) -> BinaryIO:
    """Open a file to read bytes."""
    return open(path, "rb")


class Handles:
    """Open files by name, separately for each thread and process, since a file has only one position.

    What opens a name for reading is a module-level function, so that it can be sent to another process.
    """

    def __init__(self, opener: Callable[[str], Any]) -> None:
        self._opener = opener
        self._open: dict[tuple[int, int], dict[str, Any]] = {}
        weakref.finalize(self, _close, self._open)

    def get(self, name: str) -> Any:  # noqa: ANN401  # any type of file
        """Return the open file of that name."""
        opened = self._open.setdefault((os.getpid(), threading.get_ident()), {})
        if name not in opened:
            if len(opened) >= MOST_OPEN:
                opened.pop(next(iter(opened))).close()
            opened[name] = self._opener(name)
        return opened[name]

    def bytes_at(self, path: str | Path, offset: int, size: int) -> bytes | None:
        """Return bytes of a file; None where it ends before them."""
        file = self.get(str(path))
        file.seek(offset)
        data: bytes = file.read(size)
        return data if len(data) == size else None

    def __reduce__(self) -> tuple[Any, ...]:
        return Handles, (self._opener,)  # open files are not sent


def _close(files: dict[tuple[int, int], dict[str, Any]]) -> None:
    for opened in files.values():
        while opened:
            opened.popitem()[1].close()


class StoredImages:
    """A split: images of a store by their indices there, in order, each with its label; see `Source`."""

    endless = False

    def __init__(
        self,
        store: Store,
        indices: Sequence[int],
        labels: Sequence[Label],
        shards: tuple[int, ...] = (),
        bits: int | None = None,
        annotations: Sequence[Annotation] = (),
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        self._store = store
        self._indices = np.array(indices, dtype=np.int64)
        lists = [classes_of(label) for label in labels]
        self._several = any(isinstance(label, tuple) for label in labels)
        self._labels = np.array([label for several in lists for label in several], dtype=np.int64)
        self._ends = np.cumsum([len(several) for several in lists], dtype=np.int64)
        self.shards, self.bits = shards, bits
        self._annotations, self._numbers = annotations, numbers or {}
        self._known: dict[int, Regions] = {}

    def __len__(self) -> int:
        return len(self._indices)

    def encoded(self, index: int) -> bytes | Path:
        """Return an image as it is stored."""
        return self._store.read(int(self._indices[index]))

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as RGB pixels, the right way up, or raise ImageError if it cannot be read."""
        return self.decoded(index, self.encoded(index), shrink)

    def decoded(self, index: int, content: bytes | Path, shrink: Shrink | None = None) -> Pixels:
        """Return as RGB pixels what `encoded` gave, or raise ImageError that names the image."""
        try:
            return read_image(content, shrink=shrink, bits=self.bits)
        except ImageError as error:
            if isinstance(content, bytes):
                raise named(error, self.describe(index)) from error
            raise

    def annotation(self, index: int) -> Annotation | None:
        """Return what is marked in an image, as its format says it; None for images of classes."""
        return self._annotations[index] if self._annotations else None

    def label(self, index: int) -> Label:
        """Return the label of an image, or raise DataError if what is marked in it cannot be read."""
        if self._annotations:
            return self._regions(index)
        start = 0 if index == 0 else int(self._ends[index - 1])
        opened = self._labels[start : self._ends[index]]
        if self._several:
            return tuple(opened.tolist())
        return int(opened[0]) if len(opened) else None

    def _regions(self, index: int) -> Regions:
        known = self._known.get(index)
        if known is not None:
            return known
        try:
            regions = regions_of(self._annotations[index], self._numbers, self.encoded(index))
        except DataError as error:
            raise DataError(f"'{self.describe(index)}': {error}") from error
        if len(self._known) < MOST_KNOWN:  # a training looks at each of few images many times
            self._known[index] = regions
        return regions

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order; of several the first of each, of none -1."""
        if len(self._labels) == len(self._ends) and not self._several:
            return self._labels
        starts = np.concatenate([[0], self._ends[:-1]])
        padded = np.append(self._labels, -1)
        return np.where(starts < self._ends, padded[np.minimum(starts, len(self._labels))], -1)

    def describe(self, index: int) -> str:
        """Return the image's name for people."""
        return self._store.name(int(self._indices[index]))
