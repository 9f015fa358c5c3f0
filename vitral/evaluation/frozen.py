"""What a network's frozen features are worth on a dataset: few-shot regression, nearest neighbours, a linear probe.

Its head has no part in it, so that the classes may be any.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.advice import counted
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset
from vitral.errors import DataError, did_you_mean
from vitral.evaluation.baselines import Labels, extract_features
from vitral.evaluation.evaluate import BATCH_SIZE
from vitral.evaluation.opening import open_test
from vitral.evaluation.probes import (
    DRAWS,
    NEIGHBOURS,
    SHOTS,
    Draws,
    Features,
    FewShot,
    Indices,
    check_features,
    fit_probe,
    knn_accuracy,
    score_few_shot,
)
from vitral.events import Listener, Message, show
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.shown import Presentable, Table, fitting_digits, percent, photos_of

FEW_SHOT = "few-shot"
KNN = "knn"
LINEAR = "linear"
WAYS = (FEW_SHOT, KNN, LINEAR)


@dataclass(frozen=True)
class FrozenScores(Presentable):
    """What simple classifiers on frozen features reach.

    Attributes:
        few_shot: The scores by images per class; empty if they were not wanted.
        knn: The accuracy of the 20 nearest training images' vote, 0 to 1; None if it was not wanted.
        linear: The accuracy of ridge regression on all training images, 0 to 1, the penalty by leave-one-out; None likewise.
    """

    data: str
    split: str
    num_train: int
    num_test: int
    classes: int
    few_shot: tuple[FewShot, ...] = ()
    knn: float | None = None
    linear: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the scores as JSON values, those that were asked for."""
        facts = {name: getattr(self, name) for name in ("data", "split", "num_train", "num_test", "classes")}
        if self.few_shot:
            facts[FEW_SHOT.replace("-", "_")] = [scores.to_json() for scores in self.few_shot]
        if self.knn is not None:
            facts[KNN] = {"accuracy": self.knn, "neighbours": NEIGHBOURS}
        if self.linear is not None:
            facts[LINEAR] = {"accuracy": self.linear}
        return facts

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        return (
            f"{self.data}: {photos_of(self.split, self.num_test)}, {counted(self.classes, 'class', 'classes')}, "
            f"{photos_of('train', self.num_train)}",
        )

    def tables(self) -> tuple[Table, ...]:
        """Return one table with a row a way."""
        digits = fitting_digits(self.num_test)
        draws = len(self.few_shot[0].accuracies) if self.few_shot else 0
        rows = [
            (
                f"{counted(scores.shots, 'photo')} a class",
                percent(scores.mean, digits)
                + (f" ± {100 * scores.deviation:.{digits}f}" if self._differ(scores) else ""),
                f"{scores.images:,}",
            )
            for scores in self.few_shot
        ]
        whole = {f"{NEIGHBOURS} nearest neighbours": self.knn, "linear probe": self.linear}
        rows += [
            (name, self._with_interval(accuracy, digits), f"{self.num_train:,}")
            for name, accuracy in whole.items()
            if accuracy is not None
        ]
        note = f"±: standard deviation of {draws} draws of photos" if draws > 1 else ""
        return (Table("Frozen features", ("From", "Accuracy", "Training photos"), tuple(rows), note=note),)

    def _differ(self, scores: FewShot) -> bool:
        """Tell whether there are several draws, and they are not all of the training images."""
        return len(scores.accuracies) > 1 and scores.images < self.num_train

    def _with_interval(self, accuracy: float, digits: int) -> str:
        low, high = wilson_interval(round(accuracy * self.num_test), self.num_test)
        return f"{percent(accuracy, digits)} ({percent(low, digits)} to {percent(high, digits)})"


def parse_ways(text: str) -> tuple[str, ...]:
    """Return the ways that a text names, with commas between them.

    Raises:
        DataError: There is no such way.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in WAYS]:
        known = ", ".join(WAYS)
        raise DataError(f"Frozen features are scored by {known}, not '{unknown[0]}'.{did_you_mean(unknown[0], WAYS)}")
    return names


def score_frozen(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    ways: Sequence[str] = WAYS,
    shots: Sequence[int] = SHOTS,
    draws: int = DRAWS,
    split: str | None = None,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> FrozenScores:
    """Score a network's frozen features on a dataset, whatever its classes.

    Few-shot alone computes the features of the images that are drawn, the other ways those of all training images. Images of
    a published training split are not held out for validation where there is a test split: all of them may be drawn.

    Args:
        classifier: The network with its preprocessing, or whatever `load` takes.
        data: A dataset that is open, or what `open_data` takes.
        ways: "few-shot", "knn", "linear".
        shots: The numbers of images per class; those that no class has are left out.
        draws: The number of draws of the few images; their seeds count from 0.
        split: The split, "test" or "validation"; None for test, or validation where there is no test.
        classes: The folder that names the class where folders are nested.
        batch_size: The number of images computed at once.
        workers: The number of processes that decode; 0 decodes here.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and notes; they are written to the screen by default.

    Raises:
        DataError: No such data, split or way, an endless dataset, one whose images have not one class each, or no class of
            so many images.
        ImageError: An image cannot be read.
        ModelError: The network gives no finite numbers.
    """
    ways = parse_ways(ways if isinstance(ways, str) else ",".join(ways))
    classifier = as_classifier(classifier, listener, tuned=False)
    if not isinstance(data, DataSet):
        data = open_data(data, classes=classes, skip_bad_images=skip_bad_images, hold_out=False, listener=listener)
        for note in data.notes:
            listener(Message(note))
    train, test, split = _splits(data, split)
    open_test(classifier, data, split, "score_frozen", listener)

    def see(source: Source) -> tuple[Features, Labels]:
        seen = extract_features(classifier, source, batch_size=batch_size, workers=workers, listener=listener)
        check_features(seen[0])
        return seen

    num_classes = len(data.class_names)
    few = _draws(data, train.labels(), shots, draws) if FEW_SHOT in ways else None
    indices = few.union() if few is not None and len(ways) == 1 else np.arange(len(train))
    known, scored = see(Subset(train, indices)), see(test)
    return FrozenScores(
        data.name,
        split,
        len(train),
        len(test),
        num_classes,
        few_shot=() if few is None else score_few_shot(few, indices, *known, *scored, classes=num_classes),
        knn=knn_accuracy(*known, *scored) if KNN in ways else None,
        linear=fit_probe(*known, classes=num_classes).accuracy(*scored) if LINEAR in ways else None,
    )


def _draws(data: DataSet, labels: Indices, shots: Sequence[int], draws: int) -> Draws:
    """Draw images for the numbers that at least one class has, or raise DataError if there is none."""
    classes = len(data.class_names)
    most = int(np.bincount(labels[labels >= 0], minlength=classes).max())
    there = [count for count in shots if count <= most]
    if shots and not there:
        raise DataError(
            f"No class of {data.name} has {counted(min(shots), 'photo')} to learn from; the largest has {most:,}."
        )
    return Draws.of(labels, classes, shots=there, draws=draws)


def _splits(data: DataSet, split: str | None) -> tuple[Source, Source, str]:
    """Return the training images, the images to score, and the name of their split."""
    if not data.task.exclusive:
        raise DataError(
            f"The images of {data.name} {data.task.labelled}; frozen features are scored on one class each."
        )
    split = split or data.scored_split()
    if split == "train" or split not in data.splits or "train" not in data.splits:
        others = ", ".join(name for name in data.splits if name != "train") or "none"
        raise DataError(
            f"{data.name} has no split '{split}' to score on beside its training images; there is {others}."
        )
    train, test = data.splits["train"], data.splits[split]
    if train.endless or test.endless:
        raise DataError(f"{data.name} is endless; frozen features are scored on a dataset that has an end.")
    return train, test, split
