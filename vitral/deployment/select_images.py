"""Which of many images without labels to label next, as a table to fill in."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from vitral.advice import counted
from vitral.classifier.bulk.parts import for_spreadsheets
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.image_files import LazyImage, plain_images, prepare
from vitral.errors import DataError, ImageError, ModelError
from vitral.evaluation.probes import check_features
from vitral.evaluation.selection import learning_curve, select, unsureness
from vitral.evaluation.unknown_classes import needed
from vitral.events import Listener, Progress, show
from vitral.files import write_file
from vitral.inference.predictor import in_batches
from vitral.outputs import check_file
from vitral.paths import look_at, nearest_path
from vitral.tasks.shown import Presentable, Table, percent
from vitral.tasks.unlabelled import check_classifies

BATCH_SIZE = 16
SHOWN = 10
COLUMNS = ("image", "label", "guess", "probability")


@dataclass(frozen=True)
class Chosen:
    """An image to label.

    Attributes:
        image: Its path.
        guess: The most probable class.
        probability: Its probability, 0 to 1.
    """

    image: str
    guess: str
    probability: float


@dataclass(frozen=True, repr=False)
class Selection(Presentable):
    """Images to label next, those that tell most first.

    Attributes:
        out: The table; empty where none was written.
        images: The number of images that were looked at.
        chosen: Those to label.
        more: How many more images one point of accuracy takes; empty where that cannot be told.
    """

    out: str
    images: int
    chosen: tuple[Chosen, ...]
    more: str

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        where = f", in {self.out}: fill in its column 'label'" if self.out else ""
        return (
            f"{len(self.chosen):,} of {counted(self.images, 'photo')} to label next{where}.",
            *filter(None, [self.more]),
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the first of them."""
        rows = tuple((one.image, one.guess, percent(one.probability)) for one in self.chosen[:SHOWN])
        return (Table("The first of them", ("Image", "Guess", "Probability"), rows),)


def select_images(
    images: str | Path | Iterable[str | Path],
    classifier: Classifier | str | Path,
    *,
    count: int = 50,
    out: str | Path | None = None,
    skip_bad_images: bool | None = None,
    overwrite: bool = False,
    listener: Listener = show,
) -> Selection:
    """Choose the images that tell a classifier most once they are labelled: those it is unsure of, each unlike the others.

    Args:
        images: Image files, and folders of such.
        classifier: The classifier, or whatever `load` takes, which keeps the features of its images.
        count: The number of images to choose.
        out: The .csv file to fill in, which `finetune` takes as data then; None to write none.
        skip_bad_images: Whether to leave out images that cannot be read, naming each; False for an error.
        overwrite: Whether to replace the file.
        listener: The receiver of progress and notes; they are written to the screen by default.

    Raises:
        DataError: Something else than image files and folders is named, or `count` is below 1.
        ImageError: An image cannot be read, or there are none.
        WeightsError: The classifier keeps no features.
        StorageError: The file cannot be written.
    """
    if count < 1:
        raise DataError(f"At least one image is chosen, not {count}.")
    names = [str(name) for name in ([images] if isinstance(images, str | Path) else images)]
    if out is not None:
        if Path(out).suffix.lower() != ".csv":
            raise DataError(f"The table to fill in is a .csv file, not '{out}'.")
        check_file(Path(out), inputs=names, overwrite=overwrite)
    listed = [image for name in names for image in _plain(name, listener)]
    classifier = as_classifier(classifier, listener, tuned=False)
    check_classifies(classifier.task, "A selection of photos")
    known = needed(classifier, classifier.folder or "The classifier")
    seen, features, probabilities = _looked_at(classifier, listed, listener, skip_bad_images=skip_bad_images)
    best = select(known.space, features, unsureness(probabilities), count).tolist()
    chosen = tuple(Chosen(seen[index], *classifier.name_top(probabilities[index], 1)[0]) for index in best)
    if out is not None:
        write_file(Path(out), _table(chosen))
    curve = learning_curve(known, len(classifier.class_names))
    return Selection("" if out is None else str(out), len(seen), chosen, "" if curve is None else curve.sentence())


def _plain(name: str, listener: Listener) -> list[LazyImage]:
    if (found := plain_images(name, listener)) is None:
        near = "" if look_at(name) else nearest_path(name)
        raise DataError(f"'{name}' is no image file and no folder of such, which alone can be chosen from.{near}")
    return found


def _looked_at(
    classifier: Classifier, images: list[LazyImage], listener: Listener, *, skip_bad_images: bool | None
) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """Return the names of images, their features and their probabilities."""
    prepared = prepare(
        images, classifier.preprocessing, skip_bad_images=skip_bad_images is not False, listener=listener
    )
    seen: list[str] = []
    rows: list[tuple[torch.Tensor, torch.Tensor]] = []
    for names, batch in in_batches(prepared, BATCH_SIZE):
        probabilities, features = classifier.with_features(torch.stack(batch))
        rows.append((features, probabilities))
        seen += names
        listener(Progress("look at images", len(seen), len(images)))
    if not seen:
        raise ImageError("None of the images can be read.")
    features, probabilities = (torch.cat([row[column] for row in rows]) for column in (0, 1))
    check_features(features)
    if probabilities.shape[1] < 2:
        raise ModelError("A classifier of one class is never unsure; give it two.")
    return seen, features, probabilities


def _table(chosen: Iterable[Chosen]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for one in chosen:
        path, guess = (for_spreadsheets(cell) for cell in (str(Path(one.image).absolute()), one.guess))
        writer.writerow((path, "", guess, f"{one.probability:.4f}"))
    return text.getvalue()
