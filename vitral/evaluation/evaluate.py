"""Score a classifier on labelled images, each counted exactly once, classes matched by name."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.source import DataSet, Source
from vitral.evaluation.exactness import Difference, difference_from_exact
from vitral.evaluation.opening import matched, open_split, open_test
from vitral.evaluation.region_scores import tally_source
from vitral.events import Listener, Message, ignore, show
from vitral.images.preprocessing import Preprocessing
from vitral.inference.predictor import collect
from vitral.tasks.shown import Presentable, Table, photos_of
from vitral.tasks.task import Result, Targets, Task

BATCH_SIZE = 64

Right = Bool[np.ndarray, " examples"]


@dataclass(frozen=True)
class Scored(Presentable):
    """The scores of a classifier, and its difference from the network in torch in float32; None where that is what computed."""

    result: Result
    split: str
    difference: Difference | None

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the tables."""
        scored = f"Scores on {photos_of(self.split, self.result.num_examples)}"
        return (scored, *self.result.lines(), *([self.difference.sentence()] if self.difference else []))

    def tables(self) -> tuple[Table, ...]:
        """Return the tables of the scores."""
        return self.result.tables()

    def to_json(self) -> dict[str, Any]:
        """Return the scores and their split as JSON values, with the difference where there is one."""
        difference = {"difference": asdict(self.difference)} if self.difference else {}
        return {**self.result.to_json(), "split": self.split, **difference}


def evaluate(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    split: str | None = None,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> Result:
    """Score a classifier on one split of labelled images.

    Classes are matched by name, so the data's own order and classes that it lacks change nothing. Of a folder without
    split folders that the classifier was trained on, the test split is what training left out; of any other, all of it.
    Of a classifier that computes otherwise than its network in float32, the listener is told how far its answers differ.

    Args:
        classifier: The classifier itself, or whatever `load` takes.
        data: A dataset that is open, or what `open_data` takes (a folder with one sub-folder per class, a table, "digits").
        split: "test", "validation" or "train"; None for the first of them that there is.
        classes: The folder that names the class where folders are nested; None for the one that has the classifier's names.
        batch_size: The number of images computed at once.
        workers: The number of processes that decode; 0 decodes here.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and warnings; they are written to the screen by default.

    Raises:
        DataError: No such data or split, or a class that the classifier does not know.
        ImageError: An image cannot be read.
    """
    classifier = as_classifier(classifier, listener)
    data, split = open_split(
        data, [classifier], split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
    )
    scored = score(classifier, data, split, batch_size=batch_size, workers=workers, listener=listener)
    if scored.difference is not None:
        listener(Message(scored.difference.sentence()))
    return scored.result


def score(
    classifier: Classifier,
    data: DataSet,
    split: str,
    *,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    listener: Listener,
) -> Scored:
    """Score a classifier on a split of data that `open_split` opened, and keep how far a faster computation differs.

    Arguments and errors are those of `evaluate`.
    """
    source = matched(data, split, classifier)
    open_test(classifier, data, split, "evaluate", listener)
    result = evaluate_source(
        classifier, source, task=data.task, batch_size=batch_size, workers=workers, listener=listener
    )
    return Scored(result, split, difference_from_exact(classifier, data.splits[split], listener))


def evaluate_source(
    classifier: Classifier,
    source: Source,
    *,
    task: Task | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    limit: int | None = None,
    listener: Listener = ignore,
) -> Result:
    """Score a classifier on one source of labelled images.

    Args:
        classifier: The classifier to score.
        source: The images and their labels.
        task: The task by which the answers are scored; None for the classifier's own.
        batch_size: The number of images computed at once.
        workers: The number of processes that decode; 0 decodes here.
        limit: The number of images to take of an endless source; a finite one is always taken whole.
        listener: The receiver of progress.

    Raises:
        ImageError: An image cannot be read.
    """
    if classifier.task.dense:
        return tally_source(classifier, source, limit=limit, listener=listener, boundaries=True).result()
    probabilities, targets = predict_probabilities(
        classifier, source, task=task, batch_size=batch_size, workers=workers, limit=limit, listener=listener
    )
    scores = (task or classifier.task).score(
        probabilities, targets, class_names=classifier.class_names, describe=source.describe
    )
    return scores.trained_on(classifier.provenance.class_images)


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

    The arguments are those of `evaluate_source`, and `stop`: it is called after every batch, as often by every process, and
    where it returns True, scoring stops.

    Raises:
        Stopped: `stop` said so.
        ImageError: An image cannot be read.
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


def predict_right(
    classifier: Classifier,
    source: Source,
    *,
    preprocessing: Preprocessing | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    listener: Listener = ignore,
) -> Right:
    """Tell which images of one class each a classifier gets right, in order.

    The arguments are those of `evaluate_source`, and the preprocessing; None for the classifier's.

    Raises:
        ImageError: An image cannot be read.
    """
    probabilities, labels = collect(
        classifier.probabilities,
        source,
        preprocessing or classifier.preprocessing,
        batch_size=batch_size,
        workers=workers,
        purpose="evaluate",
        listener=listener,
    )
    return (probabilities.argmax(dim=1) == labels).numpy()
