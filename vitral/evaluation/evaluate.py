"""Score a classifier on labelled images, each counted exactly once, classes matched by name."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.names import side_by_side
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.data.subset import Renumbered
from vitral.errors import DataError, did_you_mean
from vitral.evaluation.looks import open_test
from vitral.events import Listener, Message, ignore
from vitral.inference.batching import collect
from vitral.progress import show
from vitral.tasks.any_label import ANY_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Result, Targets, Task

BATCH_SIZE = 64
SPLITS = ("train", "validation", "test")


def evaluate(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    split: str | None = None,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool = False,
    listener: Listener = show,
) -> Result:
    """Score a classifier on one split of labelled images.

    Classes are matched by name, so the data's own order and classes that it lacks change nothing. Of a folder without
    split folders that the classifier was trained on, the test split is what training left out; of any other, all of it.

    Args:
        classifier: what to score: itself, or whatever `load` takes.
        data: what `open_data` takes (a folder with one sub-folder a class, a table, "digits", ...), or a dataset already open.
        split: "test", "validation" or "train"; None for test, or validation where there is no test,
            or train where there is neither.
        classes: of nested folders, which one names the class; None for the one whose names the classifier knows.
        batch_size: images computed at once.
        workers: processes that decode; 0 decodes here.
        skip_bad_images: leave out images that cannot be read, instead of an error.
        listener: receives progress and warnings; they are written to the screen if left out.

    Raises:
        DataError: no such data or split, or a class that the classifier does not know.
        ImageError: an image cannot be read.
    """
    classifier = as_classifier(classifier, listener)
    data, split = open_split(
        data, [classifier], split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
    )
    columns = match_classes(data, classifier.class_names)
    open_test(classifier, data, split, "evaluate", listener)
    return evaluate_source(
        classifier,
        data.splits[split],
        columns=columns,
        task=data.task,
        batch_size=batch_size,
        workers=workers,
        listener=listener,
    )


def open_split(
    data: DataSet | str | Path,
    classifiers: Sequence[Classifier],
    *,
    split: str | None,
    classes: Reading | None,
    skip_bad_images: bool,
    listener: Listener,
) -> tuple[DataSet, str]:
    """Return the dataset that classifiers of one task are scored on, and the name of the split.

    Args:
        data: what `open_data` takes, or a dataset already open.
        classifiers: data without splits that one of them was trained on are split as for its training.
        split: see `evaluate`.
        classes: of nested folders, which one names the class; None for the one whose names the classifiers know.
        skip_bad_images: leave out images that cannot be read, instead of an error.
        listener: receives progress, notes and warnings.

    Raises:
        DataError: no such data or split, or a class that no classifier knows.
        ImageError: an image cannot be read.
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
        for note in data.notes:
            listener(Message(note))
    data = data.for_task(_scored_as(data, classifiers[0]))
    if split is None:
        split = data.scored_split()
        if split == "train":
            listener(
                Message(
                    f"{data.name} has no test or validation images; these are scores of the training images.",
                    warning=True,
                )
            )
    if split not in data.splits:
        known = ", ".join(data.splits)
        raise DataError(f"{data.name} has no split '{split}', only {known}.{did_you_mean(split, data.splits)}")
    return data, split


def trained_on(classifier: Classifier) -> str:
    """Return the fingerprint of the data that a classifier was trained on; empty if it is not known."""
    return str(classifier.provenance.training.get("data_fingerprint", ""))


def _scored_as(data: DataSet, classifier: Classifier) -> Task:
    """Return the task by which a classifier's answers are scored: its own, or that of data of which any label is right."""
    return ANY_LABEL if data.task == ANY_LABEL and classifier.task == SINGLE_LABEL else classifier.task


def evaluate_source(
    classifier: Classifier,
    source: Source,
    *,
    columns: Int64[np.ndarray, " data_classes"] | None = None,
    task: Task | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    limit: int | None = None,
    listener: Listener = ignore,
) -> Result:
    """Score a classifier on one source of labelled images.

    Args:
        classifier: what to score.
        source: images and labels.
        columns: the classifier's class for each class of the source; None where they are the same.
        task: by which the answers are scored; None for the classifier's own.
        batch_size: images computed at once.
        workers: processes that decode; 0 decodes here.
        limit: images to take of an endless source; a finite one is always taken whole.
        listener: receives progress.

    Raises:
        ImageError: an image cannot be read.
    """
    if columns is not None:
        source = Renumbered(source, columns)
    probabilities, targets = predict_probabilities(
        classifier, source, task=task, batch_size=batch_size, workers=workers, limit=limit, listener=listener
    )
    return (task or classifier.task).score(
        probabilities, targets, class_names=classifier.class_names, describe=source.describe
    )


def predict_probabilities(
    classifier: Classifier,
    source: Source,
    *,
    task: Task | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    limit: int | None = None,
    listener: Listener = ignore,
    stop: Callable[[], bool] | None = None,
) -> tuple[Float[Tensor, "examples classes"], Targets]:
    """Return the probabilities and the encoded label of every image of a source, in order.

    Args:
        classifier: the network with its preprocessing.
        source: images and labels.
        task: what the labels are; None for the classifier's own.
        batch_size: images computed at once.
        workers: processes that decode; 0 decodes here.
        limit: images to take of an endless source; a finite one is always taken whole.
        listener: receives progress.
        stop: asked after every batch, as often by every process, whether to stop.

    Raises:
        Stopped: `stop` said so.
        ImageError: an image cannot be read.
    """
    return collect(
        classifier.probabilities,
        source,
        classifier.preprocessing,
        batch_size=batch_size,
        workers=workers,
        limit=limit,
        purpose="evaluate",
        listener=listener,
        encode=partial((task or classifier.task).encode, num_classes=len(classifier.class_names)),
        stop=stop,
    )


def match_classes(data: DataSet, class_names: tuple[str, ...]) -> Int64[np.ndarray, " data_classes"]:
    """Return for each of the data's classes the classifier's class of that name.

    Raises:
        DataError: it has none.
    """
    columns = {name: column for column, name in enumerate(class_names)}
    return np.array(list(_columns(data, columns)), dtype=np.int64)


def _columns(data: DataSet, columns: dict[str, int]) -> Iterator[int]:
    for name in data.class_names:
        if name not in columns:
            raise DataError(
                f"The classifier does not know the class '{name}' of {data.name}.{did_you_mean(name, columns)} "
                f"{side_by_side(columns, data.class_names)}"
            )
        yield columns[name]
