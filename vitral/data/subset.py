"""Sources made of others: a subset, several joined, and one with other class numbers, labels or pixels."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from vitral.data.sampling import evenly
from vitral.data.source import Source
from vitral.data.stored import located
from vitral.images.decode import Pixels, Shrink
from vitral.tasks.task import Label, classes_of


class _Selection:
    """Images of other sources, each as its own source has it; further classes change one thing of them."""

    endless: bool = False
    shards: tuple[int, ...] = ()

    def _find(self, index: int) -> tuple[Source, int]:
        """Return the source of an image, and its index there."""
        raise NotImplementedError

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as RGB pixels."""
        source, own = self._find(index)
        return source.image(own, shrink)

    def encoded(self, index: int) -> bytes | Path | None:
        """Return an image as it is stored."""
        source, own = self._find(index)
        return source.encoded(own)

    def label(self, index: int) -> Label:
        """Return the label of an image."""
        source, own = self._find(index)
        return source.label(own)

    def describe(self, index: int) -> str:
        """Return its own source's name of the image."""
        source, own = self._find(index)
        return source.describe(own)


class Subset(_Selection):
    """Some images of a finite source, by their indices in it, in a given order."""

    def __init__(self, source: Source, indices: Sequence[int] | Int64[np.ndarray, " examples"]) -> None:
        self._source = source
        self._indices = np.asarray(indices, dtype=np.int64)
        if (np.diff(self._indices) >= 0).all():  # the shards' ends, where the order is kept; empty shards are dropped
            ends = np.searchsorted(self._indices, source.shards)
            self.shards = tuple(int(end) for end in np.unique(ends) if end)

    def __len__(self) -> int:
        return len(self._indices)

    def _find(self, index: int) -> tuple[Source, int]:
        return self._source, int(self._indices[index])

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order."""
        if self._source.endless:
            first = [(*classes_of(self.label(index)), -1)[0] for index in range(len(self))]
            return np.array(first, dtype=np.int64)
        return self._source.labels()[self._indices]


class Joined(_Selection):
    """Finite sources with the same classes, one after another."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._ends = np.cumsum([len(source) for source in self._sources])
        begins = [0, *self._ends[:-1].tolist()]
        if all(source.shards for source in self._sources):
            pairs = zip(begins, self._sources, strict=True)
            self.shards = tuple(begin + end for begin, source in pairs for end in source.shards)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _find(self, index: int) -> tuple[Source, int]:
        number, own = located(self._ends, index)
        return self._sources[number], own

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order."""
        return np.concatenate([source.labels() for source in self._sources])


def spread_over(source: Source, most: int) -> Subset:
    """Return so many images of a finite source at the most, evenly spread."""
    return Subset(source, evenly(range(len(source)), most))


class _Changed(_Selection):
    """A source as it is, for those that change one thing of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.endless, self.shards = source.endless, source.shards

    def __len__(self) -> int:
        return len(self._source)

    def _find(self, index: int) -> tuple[Source, int]:
        return self._source, index

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes in order."""
        return self._source.labels()


class Renumbered(_Changed):
    """A source whose classes have other numbers: of each class its new one."""

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
    """A source whose images have other labels: the class of each image, in order."""

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
    """A source whose images are changed, each with its index, by what can be sent to worker processes; nothing else is."""

    def __init__(self, source: Source, draw: Callable[[Pixels, int], Pixels]) -> None:
        super().__init__(source)
        self._draw = draw

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as RGB pixels, changed."""
        return self._draw(self._source.image(index, shrink), index)

    def encoded(self, index: int) -> bytes | Path | None:
        """Return None: a changed image is not stored."""
        return None
