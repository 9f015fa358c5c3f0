"""Labels that are probably wrong: found by a classifier's features, and listed in a table to fill in."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vitral.advice import argument, counted
from vitral.checks.check_data import check_data
from vitral.checks.corrections import (
    COLUMNS,
    Correction,
    corrections_table,
    moved_images,
    read_corrections,
    table_mark,
)
from vitral.classifier.bulk.parts import for_spreadsheets
from vitral.classifier.classifier import Classifier
from vitral.data.classes import Reading
from vitral.data.listing import Opening
from vitral.data.names import some
from vitral.data.open import list_data
from vitral.errors import DataError, ImageError, StorageError
from vitral.evaluation.evaluate import score
from vitral.evaluation.opening import open_split
from vitral.events import Listener, show
from vitral.files import write_file
from vitral.images.decode import Pixels, read_image
from vitral.images.drawing import thumbnail
from vitral.outputs import check_file
from vitral.paths import is_folder, is_regular
from vitral.tasks.shown import Presentable, Table, percent

MOST_MISTAKES = 20  # of the classifier that are shown besides the doubtful labels
SHOWN = 10


@dataclass(frozen=True)
class Doubtful:
    """An image whose label is probably wrong, and the class that it more probably has, with its probability, 0 to 1."""

    image: str
    label: str
    suggestion: str
    probability: float


@dataclass(frozen=True, repr=False)
class DoubtfulLabels(Presentable):
    """The labels to look at, the most doubtful first.

    Attributes:
        expected: How many labels may be wrong at most; None where the features are too weak to tell.
        accuracy: How often the features name the label of an image that they were not fitted on, 0 to 1.
        thumbnails: The images, small, in the order of the labels; None for one that cannot be shown.
    """

    data: str
    class_names: tuple[str, ...]
    labels: tuple[Doubtful, ...]
    expected: int | None
    accuracy: float
    thumbnails: tuple[Pixels | None, ...]

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        count = len(self.labels)
        if not count:
            return ("No label looks wrong.",)
        most = "how many are wrong cannot be said" if self.expected is None else f"up to {self.expected:,} may be wrong"
        return (
            f"{counted(count, 'label')} to look at; {most}. They are judged by features that are right on "
            f"{percent(self.accuracy)} of the photos.",
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the first of them."""
        shown = ((one.image, one.label, one.suggestion, percent(one.probability)) for one in self.labels[:SHOWN])
        title, columns = "The most doubtful", ("Image", "Label", "Rather", "Probability")
        return (Table(title, columns, tuple(shown), names=3),) if self.labels else ()

    def to_json(self) -> dict[str, Any]:
        """Return everything but the images as JSON values."""
        return {
            "data": self.data,
            "class_names": list(self.class_names),
            "labels": [asdict(label) for label in self.labels],
            "expected": self.expected,
            "accuracy": self.accuracy,
        }


def find_doubtful(
    data: str | Path, classifier: Classifier, *, classes: Reading | None = None, listener: Listener = show
) -> DoubtfulLabels:
    """Return the labels that the features of a classifier doubt, and its surest mistakes on validation images.

    Raises:
        DataError: There are no such data, or their images have not one class each.
        ModelError: The classifier has no features to show.
    """
    checked = check_data(data, classes=classes, classifier=classifier, listener=listener)
    if checked.doubts is None:
        raise DataError(f"No label of '{data}' can be doubted: images need one class each, and several images a class.")
    found = {one.name: Doubtful(one.name, one.label, one.predicted, one.probability) for one in checked.suspects}
    found |= {one.image: one for one in _mistakes(data, classifier, classes, listener) if one.image not in found}
    labels = tuple(replace(one, image=_below(str(data), one.image)) for one in found.values())
    thumbnails = tuple(map(_thumbnail, found))
    doubts = checked.doubts
    return DoubtfulLabels(str(data), checked.class_names, labels, doubts.expected, doubts.accuracy, thumbnails)


def _mistakes(data: str | Path, classifier: Classifier, classes: Reading | None, listener: Listener) -> list[Doubtful]:
    """Return the surest mistakes on validation images, never on test images; none of classes that it does not know."""
    try:
        opened, split = open_split(
            data, [classifier], split=None, classes=classes, skip_bad_images=True, listener=listener, validation=True
        )
        split = "validation" if "validation" in opened.splits else split
        result = score(classifier, opened, split, listener=listener).result
    except DataError:
        return []
    return [
        Doubtful(one.description, one.truth, one.predicted, one.probability) for one in result.mistakes[:MOST_MISTAKES]
    ]


def _below(data: str, image: str) -> str:
    """Return an image's path below the folder of the data; as it is where it does not lie there."""
    path = os.path.relpath(image, data) if is_folder(data) and is_regular(image) else image
    return image if path.startswith("..") else Path(path).as_posix()


def _thumbnail(image: str) -> Pixels | None:
    try:
        return thumbnail(read_image(image)) if is_regular(image) else None
    except ImageError:
        return None


def check_corrections(
    data: str, path: Path, *, inputs: Iterable[str | Path] = (), overwrite: bool = False
) -> list[Correction]:
    """Check that a table of corrections may be written, and return what is filled in there already and stays.

    That is nothing with `overwrite`. Corrections that were applied to the data do not stay either.

    Raises:
        StorageError: Another file has the name, or a table with corrections of other images.
    """
    check_file(path, inputs=[data, *inputs], mark=table_mark(path), overwrite=overwrite)
    earlier = [] if overwrite or not path.exists() or not path.stat().st_size else read_corrections(path)
    others, moved = _not_in(data, earlier), moved_images(data)
    if lost := [one.image for one in earlier if one in others and os.path.abspath(Path(data, one.image)) not in moved]:
        which = "correction whose image is" if len(lost) == 1 else "corrections whose images are"
        raise StorageError(
            f"'{path}' would lose {len(lost):,} {which} not in '{data}' ({some(lost)}); choose another {argument('out')}, or "
            f"add {argument('overwrite', True)}."
        )
    return [one for one in earlier if one not in others]


def _not_in(data: str, corrections: Sequence[Correction]) -> set[Correction]:
    """Return the corrections whose images are not in the data, as far as that can be seen."""
    inside = is_folder(data)
    missing = {one for one in corrections if not (inside and is_regular(Path(data, one.image)))}
    if not missing:
        return set()
    try:
        listing = list_data(data, Opening())
    except DataError:  # which is said where they are opened
        return missing if inside else set()
    listed = (listing.store.name(entry.store_index) for entries in listing.entries.values() for entry in entries)
    there = {os.path.abspath(name) for name in listed}
    return {one for one in missing if os.path.abspath(one.image) not in there}


def write_corrections(found: DoubtfulLabels, path: Path, *, overwrite: bool = False) -> int:
    """Write the doubtful labels as a .csv file whose column "correction" is to be filled in.

    What is filled in already in such a file stays, but for what was applied; nothing stays with `overwrite`.

    Returns:
        How many corrections stay.

    Raises:
        StorageError: Another file has the name, or a table with corrections of other images; or it cannot be written.
    """
    stay = {(one.image, one.label): one for one in check_corrections(found.data, path, overwrite=overwrite)}
    rows = []
    listed = {(one.image, one.label): (one.suggestion, f"{one.probability:.4f}") for one in found.labels}
    for (image, label), (suggestion, probability) in {**dict.fromkeys(stay, ("", "")), **listed}.items():
        correction = stay[image, label].correction if (image, label) in stay else ""
        cells = (*map(for_spreadsheets, (image, label, suggestion)), probability, for_spreadsheets(correction))
        rows.append(dict(zip(COLUMNS, cells, strict=True)))
    write_file(path, corrections_table(rows))
    return len(stay)
