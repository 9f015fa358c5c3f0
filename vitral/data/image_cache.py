"""Training images that are decoded once and kept in memory, for every process that prepares batches."""

import contextlib
import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from vitral import distributed
from vitral.data.source import Source
from vitral.errors import ImageError
from vitral.images.augment import Augmentation, decoding_factor, kept_shape, shrunk
from vitral.images.decode import Pixels, Shrink
from vitral.machine import free_bytes

SHARE = 0.25  # of the free memory that kept images may take
PROBES = 16  # images that are decoded to find the size of the kept ones
ROOM = 1.5  # room for an image, as a multiple of the largest probed one where they differ
HEAD = 16  # bytes before an image, for its kept and its whole height and width
ALIGNED = 16  # bytes that the room of an image is a multiple of


class CachedImages:
    """The images of a source in the size of `kept_shape`, each decoded when it is first needed.

    The pixels depend on the image alone: an image that is not kept, because memory is short or because it is larger than the
    images that were probed, is decoded anew each time, to the same pixels. Forked processes share the images that any of them
    has decoded; a process that is started otherwise keeps its own, in its part of the memory. The limit is in bytes; None for a
    quarter of what is free, shared by the processes of a job.
    """

    def __init__(
        self, source: Source, augmentation: Augmentation, size: tuple[int, int], *, limit: int | None = None
    ) -> None:
        self._source, self._augmentation, self._size = source, augmentation, size
        self._limit = int(free_bytes() * SHARE / distributed.world()) if limit is None else limit
        self._slots, self._ready = np.zeros((0, 0), np.uint8), np.zeros(0, np.uint8)
        self._opened = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _for_another_process, (self._source, self._augmentation, self._size, self._limit)

    def __len__(self) -> int:
        return len(self._ready)

    def open(self) -> list[str]:
        """Take the memory, before processes are forked that are to share it; return a line if it is too little for all."""
        if self._opened or self._source.endless:
            return []
        self._opened = True
        count = len(self._source)
        sizes = [pixels.nbytes for pixels in self._probed()] or [0]
        largest = max(sizes) if max(sizes) == min(sizes) else int(ROOM * max(sizes))
        slot = -(-(HEAD + largest) // ALIGNED) * ALIGNED
        room = min(count, self._limit // (slot + 1))
        if room:
            memory = np.frombuffer(mmap.mmap(-1, room * (slot + 1)), np.uint8)  # pages not written to take no memory
            self._slots, self._ready = memory[: room * slot].reshape(room, slot), memory[room * slot :]
        if room == count:
            return []
        return [
            f"Images: decoded ones may take {self._limit / 2**30:.1f} GiB, which holds {room:,} of {count:,}; the others are "
            "decoded anew each time (augmentation.decode)."
        ]

    def _probed(self) -> Iterator[Pixels]:
        """Give some images, spread evenly; of a source that is best read in order its first ones."""
        step = 1 if self._source.shards else max(len(self._source) // PROBES, 1)
        for index in range(0, len(self._source), step)[:PROBES]:
            with contextlib.suppress(ImageError):  # reported when it is trained on
                yield self._decoded(index)[0]

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as it is kept, read-only; `shrink` is called with the whole image's height and width."""
        self.open()
        pixels, whole = self._from_memory(index) if index < len(self) else self._decoded(index)
        if shrink is not None:
            shrink(*whole)
        return pixels

    def _from_memory(self, index: int) -> tuple[Pixels, tuple[int, int]]:
        slot = self._slots[index]
        if not self._ready[index]:
            pixels, whole = self._decoded(index)
            if HEAD + pixels.nbytes > len(slot):
                return pixels, whole
            slot[:HEAD].view(np.int32)[:] = (*pixels.shape[:2], *whole)
            slot[HEAD : HEAD + pixels.nbytes] = pixels.reshape(-1)
            self._ready[index] = 1  # last, because another process may read at any time
        rows, columns, height, width = slot[:HEAD].view(np.int32).tolist()
        pixels = slot[HEAD : HEAD + rows * columns * 3].reshape(rows, columns, 3)
        pixels.flags.writeable = False
        return pixels, (height, width)

    def _decoded(self, index: int) -> tuple[Pixels, tuple[int, int]]:
        """Return an image as it is to be kept, and the height and width of the whole."""
        heard: list[tuple[int, int]] = []

        def shrink(height: int, width: int) -> int:
            heard.append((height, width))
            return decoding_factor(heard[0], kept_shape(heard[0], self._augmentation, self._size))

        pixels = self._source.image(index, shrink)
        whole = heard[0] if heard else (pixels.shape[0], pixels.shape[1])
        return shrunk(pixels, kept_shape(whole, self._augmentation, self._size)), whole


def _for_another_process(source: Source, augmentation: Augmentation, size: tuple[int, int], limit: int) -> CachedImages:
    return CachedImages(source, augmentation, size, limit=limit // (os.cpu_count() or 1))
