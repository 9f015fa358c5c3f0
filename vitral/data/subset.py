"""Sources made of others, and splits: a subset, several joined, one with other class numbers, labels or pixels.

Splits are a pure function of the images, their classes and a seed: stratified, with identical images always together. An image
that is both trained on and scored makes the score too good; so images of the same bytes stay together, and count as one image
of the first one's class.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from vitral.advice import counted, function
from vitral.data.batch import evenly
from vitral.data.groups import Kin, keep_trained, split_kin
from vitral.data.names import ALL, some
from vitral.data.source import Routine, Source
from vitral.data.stored import Entry, located
from vitral.images.decode import Pixels, Shrink
from vitral.seeds import generator
from vitral.tasks.task import Label, classes_of

Indices = Int64[np.ndarray, " examples"]
SPLIT_SEED = 0  # fixed, so that a dataset is split in the same way whenever it is opened
HELD_OUT = 0.1  # fraction of a class's images for validation, and for test
DRAWN_ANEW = (
    "The data have no validation split and are not just as the classifier was trained on them, so one was drawn anew from the "
    "training photos: the scores are too good if the classifier was trained on some of these."
)


def stratified(labels: Indices, shares: Sequence[float], *, seed: int, purpose: str) -> list[Indices]:
    """Split examples class by class.

    Args:
        labels: The class of each example.
        shares: The fraction of each part but the first, which takes the rest.
        seed: The seed of the random choice.
        purpose: The purpose of the split, so that two splits under one seed differ.

    Returns:
        The indices of each part, ascending. A class with as many examples as there are parts or more has at least one in
        every part; of a smaller class the first part takes all.
    """
    parts: list[list[int]] = [[] for _ in range(len(shares) + 1)]
    for label in np.unique(labels):
        members = generator(seed, f"split/{purpose}", int(label)).permutation(np.flatnonzero(labels == label))
        counts = [max(1, round(share * len(members))) for share in shares]
        if len(members) < len(parts) or sum(counts) >= len(members):
            counts = [0] * len(shares) if len(members) < len(parts) else [1] * len(shares)
        start = 0
        for part, count in zip(parts[1:], counts, strict=True):
            part.extend(members[start : start + count].tolist())
            start += count
        parts[0].extend(members[start:].tolist())
    return [np.array(sorted(part), dtype=np.int64) for part in parts]


def make_splits(
    entries: Mapping[str, list[Entry]],
    names: Sequence[str],
    notes: list[str],
    contents: Mapping[int, str],
    *,
    whole: bool,
    held_out: float = HELD_OUT,
    kin: Kin | None = None,
) -> dict[str, list[Entry]]:
    """Return the images by "train", "validation" and "test": the data's own splits, or stratified by class.

    Args:
        entries: The images by split, or under "all" without splits.
        names: The classes, in the data's own order.
        notes: Notes on the data, to which decisions are added.
        contents: Hashes of the images' bytes by store index; an image without a hash equals no other.
        whole: Whether data without splits are all for scoring, because they are not just as a classifier learned them; a
            note says of a validation split taken from their training images that it may have been learned.
        held_out: The share of the training images for validation where there are no images for it; 0 for none.
        kin: Which images belong together; None where each is by itself, but for those of equal bytes.
    """
    splits = dict(entries)
    if ALL in entries and whole:
        notes.append(
            "The data have no train and test splits and are not just as the classifier was trained on them, so all of them are "
            "scored: the scores are too good if it was trained on some of these photos."
        )
        return {"test": entries[ALL]}
    if ALL in entries:
        parts = _stratify(entries[ALL], names, (HELD_OUT, HELD_OUT), contents, notes, kin)
        splits = dict(zip(("train", "validation", "test"), parts, strict=True))
    elif "train" in entries and "validation" not in entries and held_out:
        train, validation = _stratify(entries["train"], names, (held_out,), contents, notes, kin)
        splits = {**entries, "train": train, "validation": validation}
        if whole and validation:
            notes.append(DRAWN_ANEW)
    splits = {split: images for split, images in splits.items() if images}
    if ALL in entries or len(names) > 1:
        notes += _made(entries, splits, held_out)
    elif "validation" in splits and "validation" not in entries:
        notes.append(f"{_percent(held_out)} of the images are held out; by them training is followed.")
    return splits


def _made(entries: Mapping[str, list[Entry]], splits: Mapping[str, list[Entry]], held_out: float) -> Iterator[str]:
    """Give what was made of the data's own splits, by what each split has, and the classes that cannot be scored.

    A class of fewer images than there are splits to share them with is trained on alone.
    """
    scored = next((split for split in ("test", "validation") if split in splits), "train")
    made = scored if ALL in entries else "validation"
    bare = _classes(entries.get(ALL, entries.get("train", []))) - _classes(splits.get(made, []))
    each = "each class that has enough of them" if bare else "each class"
    if ALL in entries:
        yield _no_train(each if scored != "train" else "")
    elif "train" in splits and "validation" not in entries and held_out:
        yield _no_validation(each if made in splits else "", held_out)
    if ALL not in entries and "test" not in entries:
        yield Routine(
            f"No test photos with classes: scores are on the {'training' if scored == 'train' else 'validation'} photos."
        )
    if bare and made == scored != "train" and made not in entries:
        yield f"{counted(len(bare), 'class has', 'classes have')} too few photos to be scored: {some(bare)}."


def _no_train(each: str) -> str:
    if not each:
        return "No train/ folder, and too few images of each class to split: all are trained on, and scored."
    return Routine(f"No train/ folder, so the images of {each} were split: 80% train, 10% validation, 10% test.")


def _no_validation(each: str, held_out: float) -> str:
    if not each:
        return "No val/ folder, and too few images of each class for a validation split."
    return Routine(
        f"No val/ folder, so {_percent(held_out)} of the training images of {each} became the validation split."
    )


def _classes(images: Iterable[Entry]) -> set[str]:
    return {name for image in images for name in image.classes}


def _percent(share: float) -> str:
    return f"{share * 100:.2g}%"


def _stratify(
    entries: list[Entry],
    names: Sequence[str],
    shares: tuple[float, ...],
    contents: Mapping[int, str],
    notes: list[str],
    kin: Kin | None,
) -> list[list[Entry]]:
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.array([numbers[entry.classes[0]] if entry.classes else -1 for entry in entries], dtype=np.int64)
    first: dict[str, int] = {}
    members: dict[int, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        content = contents.get(entry.store_index)
        members[first.setdefault(content, index) if content else index].append(index)
    if several := sum(len(indices) > 1 for indices in members.values()):
        notes.append(Routine(f"Identical images are in the same split: {counted(several, 'group')}."))
    if mixed := [indices for indices in members.values() if len({entries[index].classes for index in indices}) > 1]:
        one, other = next((a, b) for a, b in pairwise(mixed[0]) if entries[a].classes != entries[b].classes)
        notes.append(
            f"{counted(len(mixed), 'group')} of identical images are of different classes, such as '{entries[one].name}' and "
            f"'{entries[other].name}'; {function('check')} lists them."
        )
    if kin is not None:
        classes = [[numbers[name] for name in entry.classes] or [-1] for entry in entries]
        split = split_kin(entries, classes, shares, contents, kin, notes, seed=SPLIT_SEED)
        return [[entries[index] for index in part] for part in split]
    firsts = np.array(list(members), dtype=np.int64)
    parts = [firsts[part].tolist() for part in stratified(labels[firsts], shares, seed=SPLIT_SEED, purpose="folder")]
    keep_trained(parts, {group: set(labels[indices].tolist()) for group, indices in members.items()})
    return [[entries[index] for index in sorted(index for group in part for index in members[group])] for part in parts]


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
