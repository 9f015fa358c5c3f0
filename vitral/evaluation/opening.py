"""Open what a classifier is scored on: the data, the split, and the classes, which are matched by name.

How often the test split of a run's data was looked at is counted: each time is written into its run.json, and said where
somebody chooses by it. A test split is worth what it is because nothing was chosen by it. Whoever looks ten times and keeps the
best has fitted to it.
"""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from vitral import torchrun
from vitral.advice import argument, counted
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.names import one_spelling, side_by_side
from vitral.data.open import open_data
from vitral.data.source import TRAINED, DataSet, Routine, Source, images_of_content, whole
from vitral.data.subset import DRAWN_ANEW, Renumbered
from vitral.described import read_object
from vitral.errors import DataError, StorageError, did_you_mean
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.paths import CLASSIFIER, DATA_FILE, RUN_FILE

LOOKS = "test_opened"  # in run.json: a list
TEST = "test"
SPLITS = ("train", "validation", "test")
CHOOSING = ("compare",)  # functions that users choose by,
FEW_LOOKS = 2  # after more looks than which they hear of it


def note_look(folder: Path, data: DataSet, by: str) -> int:
    """Write into a run's folder that the test split of some data is opened, and return how often that of its own data was.

    Raises:
        StorageError: It cannot be written.
    """
    run = read_object(folder / RUN_FILE)
    look = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": by,
        "command": _command(),
        "split": TEST,
        "data": data.name,
        "data_fingerprint": data.fingerprint,
        "images": len(data.splits[TEST]),
    }
    write_file(folder / RUN_FILE, json.dumps({**run, LOOKS: [*_looks(run), look]}, indent=2))
    return times_opened(folder)


def times_opened(folder: Path) -> int:
    """Return how often the test split of a run's own data was opened, by its training and by others, as far as is known."""
    run = read_object(folder / RUN_FILE)
    return sum(_data(look) == _data(run) for look in _looks(run))


def open_test(classifier: Classifier, data: DataSet, split: str, by: str, listener: Listener) -> None:
    """Log that a classifier is scored on a test split, in the run that it comes from; where it is to be chosen by, say so.

    Nothing is done for another split, or a classifier of no run. Where the run's folder cannot be written, that is said.
    """
    folder = _run_of(classifier)
    if split != TEST or folder is None or not torchrun.is_main():
        return
    try:
        times = note_look(folder, data, by)
    except StorageError as error:
        listener(Message(f"That the test photos were used could not be logged: {error}", warning=True))
        return
    if by in CHOOSING and times > FEW_LOOKS and whole(data.fingerprint) == _data(read_object(folder / RUN_FILE)):
        listener(Message(sentence(times)))


def opened(classifier: Classifier) -> tuple[tuple[str, str], ...]:
    """Return how often the test photos of a classifier's run were used, as name and value; nothing where it is not known."""
    folder = _run_of(classifier)
    return () if folder is None else opened_times(folder)


def opened_times(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return how often the test photos of a run were used, as name and value; nothing where it is not known."""
    times = times_opened(folder)
    return (("Test photos used", counted(times, "time")),) if times else ()


def sentence(times: int) -> str:
    """Return how often test photos were used, and what that means for a choice by them, in one sentence."""
    return (
        f"The test photos of this run have been used {times} times: what is chosen by them looks better than it is. Choose by "
        f"the validation photos: {argument('split', 'validation')}."
    )


def _run_of(classifier: Classifier) -> Path | None:
    folder = classifier.folder
    if folder is None or folder.name != CLASSIFIER or not (folder.parent / RUN_FILE).is_file():
        return None
    return folder.parent


def _looks(run: dict[str, Any]) -> list[dict[str, Any]]:
    looks = run.get(LOOKS)
    return [look for look in looks if isinstance(look, dict)] if isinstance(looks, list) else []


def _data(record: dict[str, Any]) -> str | None:
    """Return which data a run or a look is of: with all their training images or a share of them, the test split is one."""
    fingerprint = record.get("data_fingerprint")
    return whole(fingerprint) if isinstance(fingerprint, str) else None


def _command() -> str:
    """Return the command line of this process."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # as of python -m vitral
    return shlex.join([name, *sys.argv[1:]])


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
    skip_bad_images: bool | None,
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
            f"Photos of {data.name} {data.task.labelled}; only photos that have one class each can be scored here."
        )


def open_split(
    data: DataSet | str | Path,
    classifiers: Sequence[Classifier],
    *,
    split: str | None,
    classes: Reading | None,
    skip_bad_images: bool | None,
    listener: Listener,
    validation: bool = False,
) -> tuple[DataSet, str]:
    """Return the dataset that classifiers of one task are scored on, and the name of the split.

    Args:
        data: A dataset that is open, or what `open_data` takes.
        classifiers: The classifiers; data without splits that one of them was trained on are split as for its training.
        split: The split, as `evaluate` takes it.
        classes: The folder that names the class where folders are nested; None for the one that has the classifiers' names.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
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
            trained_on=[classifier.provenance.data_fingerprint for classifier in classifiers],
            listener=listener,
        )
        used = validation or (split or data.scored_split()) == "validation"
        for note in data.notes:
            if note != DRAWN_ANEW or used:
                listener(Message(note, detail=isinstance(note, Routine)))
    data = data.for_task(data.task.scoring(classifiers[0].task))
    if split is None:
        split = data.scored_split()
        if split == "train":
            said = f"{data.name} has no test or validation photos; these are scores of the training photos."
            listener(Message(said, warning=True))
    if split not in data.splits:
        known = ", ".join(data.splits)
        raise DataError(f"{data.name} has no split '{split}', only {known}.{did_you_mean(split, data.splits)}")
    for line in {line for classifier in classifiers if (line := _learned(classifier, data, split))}:
        listener(Message(line, warning=True))
    return data, split


def _learned(classifier: Classifier, data: DataSet, split: str) -> str:
    """Return a line on the images of a split that the run of a classifier trained on, known by their bytes; empty for none."""
    folder = _run_of(classifier)
    if folder is None or split == "train":
        return ""
    images = images_of_content(data.contents.get(split))
    seen = len(images & images_of_content(read_object(folder / DATA_FILE).get(TRAINED)))
    if not seen:
        return ""
    were = "was" if seen == 1 else "were"
    return (
        f"{seen:,} of {counted(len(images), 'photo')} scored here {were} in the training of '{folder}': the score says little "
        "of new photos."
    )


def match_classes(data: DataSet, class_names: tuple[str, ...]) -> Int64[np.ndarray, " data_classes"]:
    """Return for each of the data's classes the classifier's class of that name.

    Raises:
        DataError: It has none.
    """
    spelled = one_spelling(Counter((*class_names, *data.class_names)), class_names)
    columns = {name: column for column, name in enumerate(class_names)}
    named = [spelled.get(name, name) for name in data.class_names]
    for name in named:
        if name not in columns:
            raise DataError(
                f"The classifier does not know the class '{name}' of {data.name}.{did_you_mean(name, columns)} "
                f"{side_by_side(columns, data.class_names)}"
            )
    return np.array([columns[name] for name in named], dtype=np.int64)


def matched(data: DataSet, split: str, classifier: Classifier) -> Source:
    """Return the images of a split with the numbers that a classifier gives their classes.

    Raises:
        DataError: It does not know a class.
    """
    return Renumbered(data.splits[split], match_classes(data, classifier.class_names))
