"""What it costs to bring images of other shapes to the network's: squashed, cropped, padded, or at their native aspect."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vitral.classifier.classifier import Classifier
from vitral.data.classes import Reading
from vitral.data.source import DataSet, Source
from vitral.data.subset import Redrawn, Subset
from vitral.errors import ModelError
from vitral.evaluation.comparison import LEVEL, mcnemar_exact
from vitral.evaluation.evaluate import BATCH_SIZE, Right, predict_right
from vitral.evaluation.opening import open_for
from vitral.events import Listener, Message, show
from vitral.images.decode import Pixels
from vitral.images.preprocessing import Preprocessing
from vitral.inference.native import NativeAspect, size_of_shape
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.shown import Presentable, Table, range_text, right_of, table_of

VALIDATION = "validation"
# Height by width; an image's native aspect is rounded to one of them.
SHAPES = (1 / 2, 2 / 3, 3 / 4, 1.0, 4 / 3, 3 / 2, 2.0)


@dataclass(frozen=True)
class Padding:
    """Pads images at both ends to a network's shape, height divided by width, with a colour."""

    shape: float
    colour: tuple[int, int, int]

    def __call__(self, image: Pixels, index: int) -> Pixels:
        """Return an image in the middle of its padding."""
        height, width = image.shape[:2]
        rows, columns = max(height, round(width * self.shape)), max(width, round(height / self.shape))
        padded = np.empty((rows, columns, 3), dtype=np.uint8)
        padded[:] = self.colour
        top, left = (rows - height) // 2, (columns - width) // 2
        padded[top : top + height, left : left + width] = image
        return padded


@dataclass(frozen=True)
class Resizing:
    """One way to bring images to the network.

    Attributes:
        name: "squash", "crop", "pad" or "native aspect".
        accuracy: The share of images that are right, 0 to 1.
        interval: Wilson's 95 % interval of that.
        p_value: The probability that chance alone gives such a distance from the classifier's own way, by McNemar's exact test.
    """

    name: str
    accuracy: float
    interval: tuple[float, float]
    p_value: float
    own: bool


@dataclass(frozen=True, repr=False)
class Aspects(Presentable):
    """The ways side by side, in a fixed order, on validation images; `skipped` says why one is missing, one line each."""

    data: str
    images: int
    ways: tuple[Resizing, ...]
    skipped: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return the accuracies in one line."""
        return ", ".join(f"{way.name} {way.accuracy:.1%}" for way in self.ways)

    def lines(self) -> tuple[str, ...]:
        """Return what is to be done, and what is missing."""
        own = next(way for way in self.ways if way.own)
        better = [way for way in self.ways if way.accuracy > own.accuracy and way.p_value < LEVEL]
        best = max(better, key=lambda way: way.accuracy, default=None)
        verdict = f"{'Nothing' if best is None else best.name.capitalize()} is surely better than {own.name}"
        scored = right_of(own.accuracy, self.images, VALIDATION)
        return (f"{verdict}, which the classifier uses: {scored}.", *self.skipped)

    def tables(self) -> tuple[Table, ...]:
        """Return every way with its interval."""
        columns: Sequence[tuple[str, Callable[[Resizing], str]]] = (
            ("Resizing", lambda way: f"{way.name} (its own)" if way.own else way.name),
            ("Accuracy", lambda way: f"{way.accuracy:.2%}"),
            ("95%", lambda way: range_text(way.interval)),
            ("p", lambda way: "" if way.own else f"{way.p_value:.3f}"),
        )
        return (table_of("How photos are brought to the size of the network", self.ways, columns),)


def aspects(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> Aspects:
    """Score a classifier on validation images that are squashed, cropped, padded, and in about their native aspect ratio.

    In its native aspect an image goes into a network at its own shape, with about as many pixels; where the network takes one
    shape at once, at the nearest of seven.

    Args:
        classifier: The classifier itself, or whatever `load` takes.
        data: The data that it was trained on, or a dataset with a validation split.
        classes: The folder that names the class where folders are nested; None for the one that has the classifier's names.
        batch_size: The number of images computed at once.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and warnings; they are written to the screen by default.

    Raises:
        DataError: There are no validation images, or they do not have one class each.
    """
    opened = open_for(
        classifier, data, split=VALIDATION, classes=classes, skip_bad_images=skip_bad_images, listener=listener
    )
    scored = opened.classifier
    right, skipped = {}, []
    for name, way in _ways(scored, batch_size).items():
        try:
            right[name] = way(opened.source)
        except ModelError as error:
            skipped.append(f"Without {name}: {error}")
            continue
        listener(Message(f"{name}: {right[name].mean():.2%}"))
    own = scored.preprocessing.resize
    made = tuple(_way(name, answers, right[own], is_own=name == own) for name, answers in right.items())
    return Aspects(opened.data.name, len(opened.source), made, tuple(skipped))


def _way(name: str, right: Right, own: Right, *, is_own: bool) -> Resizing:
    alone = int((right & ~own).sum()), int((own & ~right).sum())
    interval = wilson_interval(int(right.sum()), len(right))
    return Resizing(name, float(right.mean()), interval, mcnemar_exact(*alone), is_own)


def _ways(classifier: Classifier, batch_size: int) -> Mapping[str, Callable[[Source], Right]]:
    own = classifier.preprocessing
    whole = own.whole()

    def scored(preprocessing: Preprocessing, source: Source) -> Right:
        return predict_right(classifier, source, preprocessing=preprocessing, batch_size=batch_size)

    def padded(source: Source) -> Right:
        height, width = own.image_size
        return scored(whole, Redrawn(source, Padding(height / width, own.mean_colour)))

    return {
        "squash": lambda source: scored(replace(own, resize="squash"), source),
        "crop": lambda source: scored(replace(own, resize="crop"), source),
        "pad": padded,
        "native aspect": lambda source: _native(classifier, whole, source, batch_size),
    }


def _native(classifier: Classifier, whole: Preprocessing, source: Source, batch_size: int) -> Right:
    """Return which images are right by the network at their own shape, or at the nearest of a few where it takes one at once.

    A network that cannot be resized is a `ModelError`.
    """
    try:
        packing = NativeAspect(classifier.model)
    except ModelError:
        return _at_shapes(classifier, whole, source, batch_size)
    right = np.zeros(len(source), dtype=bool)
    for first in range(0, len(source), batch_size):
        indices = range(first, min(first + batch_size, len(source)))
        images = [packing.prepare(source.image(index), classifier.preprocessing) for index in indices]
        answers = classifier.to_probabilities(packing.logits(images)).argmax(dim=1)
        right[first : first + batch_size] = answers.numpy() == np.array([source.label(index) for index in indices])
    return right


def _at_shapes(classifier: Classifier, whole: Preprocessing, source: Source, batch_size: int) -> Right:
    """Return which images are right by the network at the nearest of a few shapes."""
    nearest = np.array([_nearest(source.image(index)) for index in range(len(source))])
    right = np.zeros(len(source), dtype=bool)
    for number in np.unique(nearest).tolist():
        indices = np.flatnonzero(nearest == number)
        model = copy.deepcopy(classifier.model)
        model.resize(size_of_shape(whole.image_size, SHAPES[number], model.config.size_step))
        shaped = Classifier(model, whole.with_size(model.image_size), classifier.class_names, task=classifier.task)
        right[indices] = predict_right(shaped, Subset(source, indices), batch_size=batch_size)
    return right


def _nearest(image: Pixels) -> int:
    """Return the index of the shape that an image's is nearest to, by ratio."""
    shape = image.shape[0] / image.shape[1]
    return int(np.argmin([abs(math.log(shape / known)) for known in SHAPES]))
