"""A part of a source, several as one, one whose classes are renumbered as in a model, and one whose images are redrawn."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from vitral.data.source import Source
from vitral.data.stored import located
from vitral.images.decode import Pixels, Shrink
from vitral.tasks.task import Label, classes_of


class Subset:
    """Some images of a finite source, in a given order.

    Args:
        source: the whole source.
        indices: its images to use.
    """

    endless = False

    def __init__(self, source: Source, indices: Sequence[int] | Int64[np.ndarray, " examples"]) -> None:
        self._source = source
        self._indices = np.asarray(indices, dtype=np.int64)
        self.shards = self._shards()

    def _shards(self) -> tuple[int, ...]:
        """Return the shards' ends where the subset keeps the order; empty shards are dropped."""
        if not self._source.shards or bool((np.diff(self._indices) < 0).any()):
            return ()
        ends = np.searchsorted(self._indices, self._source.shards)
        return tuple(int(end) for end in np.unique(ends) if end)

    def __len__(self) -> int:
        """Return how many images there are."""
        return len(self._indices)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as RGB pixels."""
        return self._source.image(int(self._indices[index]), shrink)

    def encoded(self, index: int) -> bytes | Path | None:
        """Return an image as it is stored."""
        return self._source.encoded(int(self._indices[index]))

    def label(self, index: int) -> Label:
        """Return the label of an image."""
        return self._source.label(int(self._indices[index]))

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order."""
        if self._source.endless:
            first = [(*classes_of(self.label(index)), -1)[0] for index in range(len(self))]
            return np.array(first, dtype=np.int64)
        return self._source.labels()[self._indices]

    def describe(self, index: int) -> str:
        """Return the whole source's name of the image."""
        return self._source.describe(int(self._indices[index]))


class Joined:
    """Finite sources with the same classes, one after another."""

    endless = False

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._ends = np.cumsum([len(source) for source in self._sources])
        begins = [0, *self._ends[:-1].tolist()]
        sharded = all(source.shards for source in self._sources)
        self.shards: tuple[int, ...] = (
            tuple(begin + end for begin, source in zip(begins, self._sources, strict=True) for end in source.shards)
            if sharded
            else ()
        )

    def __len__(self) -> int:
        """Return how many images there are in all."""
        return int(self._ends[-1])

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as RGB pixels."""
        source, offset = self._find(index)
        return source.image(offset, shrink)

    def encoded(self, index: int) -> bytes | Path | None:
        """Return an image as it is stored."""
        source, offset = self._find(index)
        return source.encoded(offset)

    def label(self, index: int) -> Label:
        """Return the label of an image."""
        source, offset = self._find(index)
        return source.label(offset)

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order."""
        return np.concatenate([source.labels() for source in self._sources])

    def describe(self, index: int) -> str:
        """Return its own source's name of the image."""
        source, offset = self._find(index)
        return source.describe(offset)

    def _find(self, index: int) -> tuple[Source, int]:
        number, offset = located(self._ends, index)
        return self._sources[number], offset


def spread_over(source: Source, most: int) -> Subset:
    """Return so many images of a finite source at the most, evenly spread."""
    return Subset(source, np.unique(np.linspace(0, len(source) - 1, min(most, len(source))).astype(np.int64)))


class _Changed:
    """A source as it is, for those that change one thing of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.endless, self.shards = source.endless, source.shards

    def __len__(self) -> int:
        return len(self._source)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as RGB pixels."""
        return self._source.image(index, shrink)

    def encoded(self, index: int) -> bytes | Path | None:
        """Return an image as it is stored."""
        return self._source.encoded(index)

    def label(self, index: int) -> Label:
        """Return the label of an image."""
        return self._source.label(index)

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order."""
        return self._source.labels()

    def describe(self, index: int) -> str:
        """Return what the source calls the image."""
        return self._source.describe(index)


class Renumbered(_Changed):
    """A source whose classes have other numbers.

    Args:
        source: Images and labels.
        numbers: The new number of each class.
    """

    def __init__(self, source: Source, numbers: Int64[np.ndarray, " classes"]) -> None:
        super().__init__(source)
        self._numbers = numbers

    def label(self, index: int) -> Label:
        """Return the label of an image, renumbered."""
        label = self._source.label(index)
        if isinstance(label, int):
            return int(self._numbers[label])
        return tuple(sorted(self._numbers[list(label)].tolist())) if isinstance(label, tuple) else label

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order, renumbered."""
        labels = self._source.labels()
        return np.where(labels < 0, labels, self._numbers[labels])


class Relabelled(_Changed):
    """A source whose images have other labels.

    Args:
        source: The images.
        labels: The class of each image, in order.
    """

    def __init__(self, source: Source, labels: Int64[np.ndarray, " examples"]) -> None:
        super().__init__(source)
        self._labels = labels

    def label(self, index: int) -> Label:
        """Return the new label of an image."""
        return int(self._labels[index])

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the new classes in order."""
        return self._labels


class Redrawn(_Changed):
    """A source whose images are changed, and nothing else.

    Args:
        source: Images and labels.
        draw: From an image and its index to the changed image; it can be sent to worker processes.
    """

    def __init__(self, source: Source, draw: Callable[[Pixels, int], Pixels]) -> None:
        super().__init__(source)
        self._draw = draw

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as RGB pixels, changed."""
        return self._draw(self._source.image(index, shrink), index)

    def encoded(self, index: int) -> bytes | Path | None:
        """Return None: a changed image is not stored."""
        return None
