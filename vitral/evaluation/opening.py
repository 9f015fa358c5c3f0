"""Open what a classifier is scored on: the data, the split, and the classes, which are matched by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.names import side_by_side
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.data.splits import DRAWN_ANEW
from vitral.data.subset import Renumbered
from vitral.errors import DataError, did_you_mean
from vitral.events import Listener, Message

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Opened:
    """A classifier and a split of images of one class each that it can be asked about."""

    classifier: Classifier
    data: DataSet
    split: str
    source: Source  # the images of the split, with the classifier's numbers of their classes


def open_for(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    split: str | None,
    classes: Reading | None,
    skip_bad_images: bool,
    listener: Listener,
) -> Opened:
    """Return a classifier and the images of one class each that it is scored on.

    The classifier is given as itself, or by whatever `load` takes; the other arguments are those of `open_split`.

    Raises:
        DataError: No such data or split, a class that the classifier does not know, or images without one class each.
        ImageError: An image cannot be read.
    """
    scored = as_classifier(classifier, listener)
    opened, split = open_split(
        data, [scored], split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
    )
    check_one_class_each(opened)
    return Opened(scored, opened, split, matched(opened, split, scored))


def check_one_class_each(data: DataSet) -> None:
    """Refuse images that may have several classes, or none.

    Raises:
        DataError: The dataset's may.
    """
    if not data.task.comparable:
        raise DataError(
            f"Images of {data.name} {data.task.labelled}; only images that have one class each can be scored here."
        )


def open_split(
    data: DataSet | str | Path,
    classifiers: Sequence[Classifier],
    *,
    split: str | None,
    classes: Reading | None,
    skip_bad_images: bool,
    listener: Listener,
    validation: bool = False,
) -> tuple[DataSet, str]:
    """Return the dataset that classifiers of one task are scored on, and the name of the split.

    Args:
        data: A dataset that is open, or what `open_data` takes.
        classifiers: The classifiers; data without splits that one of them was trained on are split as for its training.
        split: The split, as `evaluate` takes it.
        classes: The folder that names the class where folders are nested; None for the one that has the classifiers' names.
        skip_bad_images: Whether to leave out images that cannot be read instead of raising an error.
        listener: The receiver of progress, notes and warnings.
        validation: Whether the validation images are used as well, whichever split is named.

    Raises:
        DataError: No such data or split, or a class that no classifier knows.
        ImageError: An image cannot be read.
    """
    if not isinstance(data, DataSet):
        if split is not None and split not in SPLITS:  # said before an image is read
            raise DataError(f"There is no split '{split}', only {', '.join(SPLITS)}.{did_you_mean(split, SPLITS)}")
        data = open_data(
            data,
            class_names=tuple(dict.fromkeys(name for classifier in classifiers for name in classifier.class_names)),
            classes=classes,
            skip_bad_images=skip_bad_images,
            trained_on=[trained_on(classifier) for classifier in classifiers],
            listener=listener,
        )
        used = validation or (split or data.scored_split()) == "validation"
        for note in data.notes:
            if note != DRAWN_ANEW or used:
                listener(Message(note))
    data = data.for_task(data.task.scoring(classifiers[0].task))
    if split is None:
        split = data.scored_split()
        if split == "train":
            said = f"{data.name} has no test or validation images; these are scores of the training images."
            listener(Message(said, warning=True))
    if split not in data.splits:
        known = ", ".join(data.splits)
        raise DataError(f"{data.name} has no split '{split}', only {known}.{did_you_mean(split, data.splits)}")
    return data, split


def trained_on(classifier: Classifier) -> str:
    """Return the fingerprint of the data that a classifier was trained on; empty if it is not known."""
    training = classifier.provenance.training
    return str(training.get("data_fingerprint", ""))


def match_classes(data: DataSet, class_names: tuple[str, ...]) -> Int64[np.ndarray, " data_classes"]:
    """Return for each of the data's classes the classifier's class of that name.

    Raises:
        DataError: It has none.
    """
    columns = {name: column for column, name in enumerate(class_names)}
    for name in data.class_names:
        if name not in columns:
            raise DataError(
                f"The classifier does not know the class '{name}' of {data.name}.{did_you_mean(name, columns)} "
                f"{side_by_side(columns, data.class_names)}"
            )
    return np.array([columns[name] for name in data.class_names], dtype=np.int64)


def matched(data: DataSet, split: str, classifier: Classifier) -> Source:
    """Return the images of a split with the numbers that a classifier gives their classes.

    Raises:
        DataError: It does not know a class.
    """
    return Renumbered(data.splits[split], match_classes(data, classifier.class_names))
