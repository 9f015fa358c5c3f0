"""Decide between two classifiers: both are asked about the same images, and only what chance does not explain counts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int64

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.names import natural_key, some
from vitral.data.source import DataSet, Source, same_data
from vitral.data.subset import Renumbered
from vitral.errors import DataError, did_you_mean
from vitral.evaluation.compare_regions import RegionComparison, compare_regions
from vitral.evaluation.comparison import (
    ClassDifference,
    ComparedClassifier,
    Comparison,
    OneRight,
    difference_interval,
    holm,
    images_needed,
    mcnemar_exact,
    outcome,
)
from vitral.evaluation.evaluate import BATCH_SIZE, predict_probabilities
from vitral.evaluation.opening import check_one_class_each, matched, open_split, open_test
from vitral.events import Listener, Message, show
from vitral.tasks.metrics import Evaluation

MOST_IMAGES = 50  # that one classifier alone gets right, in the result
MOST_CLASSES = 20  # in a message
UNKNOWN = -1  # the column of a class that a classifier does not know
Labels = Int64[np.ndarray, " examples"]


def compare(
    first: Classifier | str | Path,
    second: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    split: str | None = None,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> Comparison | RegionComparison:
    """Decide between two classifiers on the same labelled images: the first is better, worse, or it is not decided.

    Each prepares the images in its own way. Classes are matched by name. Of a folder without split folders that one of the two
    was trained on, the test split is what that training left out; of any other, all of it.

    Args:
        first: The first classifier itself, or whatever `load` takes.
        second: The second classifier, likewise.
        data: A dataset that is open, or what `open_data` takes (a folder with one sub-folder per class, a table, "digits").
        split: "test", "validation" or "train"; None for the first of them that there is.
        classes: The folder that names the class where folders are nested; None for the one that has the classifiers' names.
        batch_size: The number of images computed at once.
        workers: The number of processes that decode; 0 decodes here.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and warnings; they are written to the screen by default.

    Raises:
        DataError: No such data or split, a class that one of the two does not know, or images that do not have one class each.
        WeightsError: There is no such classifier.
        ImageError: An image cannot be read.
    """
    pair = as_classifier(first, listener), as_classifier(second, listener)
    names = (
        "the first" if isinstance(first, Classifier) else str(first),
        "the second" if isinstance(second, Classifier) else str(second),
    )
    dense = all(classifier.task.dense for classifier in pair)
    for name, classifier in zip(names, pair, strict=True):
        if not (dense or classifier.task.comparable):
            raise DataError(
                f"{name} is a classifier of the task '{classifier.task.name}'; only classifiers of images that have one class "
                "each can be compared."
            )
    opened, split = open_split(
        data, pair, split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
    )
    source = opened.splits[split]
    if not dense:
        check_one_class_each(opened)
        _check_classes(opened, source, names, pair, listener)
    for classifier in pair:
        open_test(classifier, opened, split, "compare", listener)
    if dense:
        return compare_regions(names, pair, matched(opened, split, pair[0]), split, listener)
    first_answers, second_answers = (
        _ask(classifier, source, opened.class_names, batch_size=batch_size, workers=workers, listener=listener)
        for classifier in pair
    )
    return _compared(opened, split, names, pair, (first_answers, second_answers))


def _check_classes(
    data: DataSet, source: Source, names: tuple[str, str], pair: Sequence[Classifier], listener: Listener
) -> None:
    """Refuse images of a class that one of the two does not know, after the classes were shown side by side."""
    labels = range(len(data.class_names)) if source.endless else np.unique(source.labels()).tolist()
    wanted = {data.class_names[label] for label in labels if label >= 0}
    for name, classifier in zip(names, pair, strict=True):
        known = set(classifier.class_names)
        if unknown := sorted(wanted - known, key=natural_key):
            for line in side_by_side((data.name, wanted), *zip(names, (set(c.class_names) for c in pair), strict=True)):
                listener(Message(line))
            raise DataError(
                f"{name} does not know {len(unknown)} of the {len(wanted)} classes of {data.name} ({some(unknown)}), so the "
                f"two cannot be compared on them.{did_you_mean(unknown[0], known)}"
            )


def side_by_side(*columns: tuple[str, Collection[str]]) -> list[str]:
    """Return headings with the classes below them, those first that not every column has, as at most 20 lines of text."""
    every = {name for _, names in columns for name in names}
    order = sorted(every, key=lambda name: (all(name in names for _, names in columns), natural_key(name)))
    rows = [[name if name in names else "–" for _, names in columns] for name in order[:MOST_CLASSES]]
    table = [[heading for heading, _ in columns], *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return [*lines, *([f"and {len(every) - MOST_CLASSES} more"] if len(every) > MOST_CLASSES else [])]


@dataclass(frozen=True, eq=False)
class _Answers:
    """What a classifier says of every image of a source; its answers have names and probabilities."""

    evaluation: Evaluation
    labels: Labels  # as the data number the classes
    names: tuple[str, ...]
    probabilities: Float64[np.ndarray, " examples"]
    right: Bool[np.ndarray, " examples"]


def _ask(
    classifier: Classifier,
    source: Source,
    data_classes: Sequence[str],
    *,
    batch_size: int,
    workers: int,
    listener: Listener,
) -> _Answers:
    column = {name: index for index, name in enumerate(classifier.class_names)}
    columns = np.array([column.get(name, UNKNOWN) for name in data_classes], dtype=np.int64)
    renumbered = Renumbered(source, columns)
    probabilities, targets = predict_probabilities(
        classifier, renumbered, batch_size=batch_size, workers=workers, listener=listener
    )
    evaluation = classifier.task.score(
        probabilities, targets, class_names=classifier.class_names, describe=source.describe
    )
    assert isinstance(evaluation, Evaluation)
    values, truth = probabilities.numpy(), targets.numpy()
    picked = values.argmax(axis=1)
    numbers = {int(column): number for number, column in enumerate(columns) if column != UNKNOWN}
    return _Answers(
        evaluation=evaluation,
        labels=np.array([numbers[label] for label in truth.tolist()], dtype=np.int64),
        names=tuple(classifier.class_names[index] for index in picked),
        probabilities=values[np.arange(len(picked)), picked].astype(np.float64),
        right=picked == truth,
    )


def _compared(
    data: DataSet,
    split: str,
    names: tuple[str, str],
    pair: tuple[Classifier, Classifier],
    answers: tuple[_Answers, _Answers],
) -> Comparison:
    first, second = answers
    only = first.right & ~second.right, second.right & ~first.right
    alone = int(only[0].sum()), int(only[1].sum())
    images = len(first.right)
    p_value = mcnemar_exact(*alone)
    verdict = outcome(*alone, p_value)
    return Comparison(
        verdict=verdict,
        data=data.name,
        split=split,
        images=images,
        first=_side(names[0], pair[0], first, alone[0]),
        second=_side(names[1], pair[1], second, alone[1]),
        difference=(alone[0] - alone[1]) / images,
        difference_interval=difference_interval(*alone, images),
        p_value=p_value,
        both_right=int((first.right & second.right).sum()),
        both_wrong=int((~first.right & ~second.right).sum()),
        same_answer=float(np.mean([mine == theirs for mine, theirs in zip(first.names, second.names, strict=True)])),
        images_needed=images_needed(*alone, images) if verdict == "not decided" else None,
        classes=_by_class(data.class_names, first, second),
        only_first=_one_right(data, split, only[0], second, first.labels),
        only_second=_one_right(data, split, only[1], first, first.labels),
        unshared=_unshared(*pair),
        remarks=_remarks(data, split, names, pair),
    )


def _side(name: str, classifier: Classifier, answers: _Answers, alone: int) -> ComparedClassifier:
    scores = answers.evaluation
    parameters = sum(parameter.numel() for parameter in classifier.parameters()) or None
    return ComparedClassifier(name, scores.top1, scores.top1_interval, alone, scores.ece, scores.nll, parameters)


def _by_class(class_names: Sequence[str], ours: _Answers, theirs: _Answers) -> tuple[ClassDifference, ...]:
    """Return the classes that have images, the surest difference first, of equals the larger one."""

    def count(chosen: Bool[np.ndarray, " examples"]) -> list[int]:
        return np.bincount(ours.labels[chosen], minlength=len(class_names)).tolist()

    images, first, second = count(np.ones_like(ours.right)), count(ours.right), count(theirs.right)
    only_first, only_second = count(ours.right & ~theirs.right), count(theirs.right & ~ours.right)
    present = [index for index, number in enumerate(images) if number]
    apart = [index for index in present if only_first[index] or only_second[index]]
    corrected = dict(zip(apart, holm([mcnemar_exact(only_first[i], only_second[i]) for i in apart]), strict=True))
    differences = [
        ClassDifference(
            name=class_names[index],
            images=images[index],
            first=first[index] / images[index],
            second=second[index] / images[index],
            only_first=only_first[index],
            only_second=only_second[index],
            p_value=corrected.get(index, 1.0),
            verdict=outcome(only_first[index], only_second[index], corrected.get(index, 1.0)),
        )
        for index in present
    ]
    return tuple(sorted(differences, key=lambda each: (each.p_value, -abs(each.first - each.second))))


def _one_right(
    data: DataSet, split: str, chosen: Bool[np.ndarray, " examples"], wrong: _Answers, labels: Labels
) -> tuple[OneRight, ...]:
    """Return images that one classifier gets right, those first of which the other is surest."""
    indices = np.flatnonzero(chosen)
    surest = indices[np.argsort(-wrong.probabilities[indices], kind="stable")][:MOST_IMAGES]
    source = data.splits[split]
    return tuple(
        OneRight(
            index=index,
            description=source.describe(index),
            truth=data.class_names[labels[index]],
            answer=wrong.names[index],
            probability=float(wrong.probabilities[index]),
        )
        for index in surest.tolist()
    )


def _unshared(first: Classifier, second: Classifier) -> tuple[tuple[str, str], ...]:
    known, others = set(first.class_names), set(second.class_names)
    apart = sorted(known ^ others, key=natural_key)
    return tuple((name, "") if name in known else ("", name) for name in apart)


def _remarks(data: DataSet, split: str, names: tuple[str, str], pair: tuple[Classifier, Classifier]) -> tuple[str, ...]:
    """Return what is unfair: images that one of the two may have been trained on."""
    ours = [same_data(classifier.provenance.data_fingerprint, data.fingerprint) for classifier in pair]
    if split == "train" and any(ours):
        which = " and ".join(name for name, mine in zip(names, ours, strict=True) if mine)
        return (f"{which} was trained on these photos, so its score says little of new ones.",)
    if any(ours) and not all(ours) and pair[ours.index(False)].provenance.data_fingerprint:
        return (
            f"{names[ours.index(True)]} was trained without these photos; {names[ours.index(False)]} was trained on other "
            "data, and whether these photos are among them is not known.",
        )
    return ()
