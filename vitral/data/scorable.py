"""Photos on which something is marked: the others teach and count, too, but of them alone no figure is made."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset
from vitral.images.photo import Photo
from vitral.tasks.regions import Regions
from vitral.tasks.shown import photos_of
from vitral.tasks.task import Label

# What follows where nothing is marked in a split.
BARE = {
    "validation": "there is nothing to compare networks by, so what is trained is delivered",
    "test": "they are not scored",
}


def is_marked(label: Label) -> bool:
    """Tell whether a label has a region by which answers are scored, which a crowd is not."""
    return isinstance(label, Regions) and not label.crowd.all()


def marked_photo(source: Source, index: int) -> tuple[Photo, Regions]:
    """Return a photo of regions, and what is marked in it."""
    label = source.label(index)
    assert isinstance(label, Regions), "the label of another task"
    return Photo.read(partial(source.image, index)), label


def first_marked(source: Source, indices: Iterable[int]) -> int | None:
    """Return the first of some photos of a source on which something is marked; None where that is none."""
    return next((index for index in indices if is_marked(source.label(index))), None)


def chosen_marked(source: Source, indices: Sequence[int]) -> Subset:
    """Return some photos of a finite source; where nothing is marked in them, with the first of all that has something.

    It takes the place of the last one.
    """
    if first_marked(source, indices) is None and (marked := first_marked(source, range(len(source)))) is not None:
        indices = sorted([*indices[:-1], marked])
    return Subset(source, indices)


def scorable(data: DataSet) -> DataSet:
    """Return photos of regions without the splits to validate or score on in which nothing is marked; a note names them."""
    looked_at = {name: source for name, source in data.splits.items() if name in BARE and not source.endless}
    bare = {name: len(each) for name, each in looked_at.items() if first_marked(each, range(len(each))) is None}
    notes = [f"Nothing is marked in the {photos_of(name, count)}: {BARE[name]}." for name, count in bare.items()]
    splits = {name: source for name, source in data.splits.items() if name not in bare}
    return replace(data, splits=splits, notes=(*data.notes, *notes))
