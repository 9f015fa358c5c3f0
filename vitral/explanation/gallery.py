"""Explanations of many images at once: what each was taken for, where the network looked, and which come first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from vitral.advice import function
from vitral.classifier.classifier import Classifier
from vitral.data.image_files import LazyImage
from vitral.errors import ImageError
from vitral.events import Listener, Progress, ignore, show, skipping
from vitral.explanation.explain import Explanation, explain
from vitral.explanation.methods import Choice
from vitral.explanation.nearest import TrainingImages
from vitral.images.decode import Pixels
from vitral.images.drawing import thumbnail
from vitral.tasks.unlabelled import check_classifies

MOST = 60  # images of a gallery: a page of more is not looked through


@dataclass(frozen=True)
class GallerySettings:
    """What a gallery shows of every image: arguments of `explain`."""

    method: Choice = "auto"
    label: str | None = None
    layer: int | None = None
    head: int | None = None
    score: bool = False
    training: TrainingImages | None = None


@dataclass(frozen=True, eq=False)
class GalleryEntry:
    """An image of a gallery.

    Attributes:
        overlay: The part that the network saw, the map drawn over it, small.
        truth: Its class, where the folder that it lies in has the name of one; else None.
    """

    name: str
    explanation: Explanation
    overlay: Pixels
    truth: str | None

    def to_json(self) -> dict[str, Any]:
        """Return everything but the images as JSON values."""
        return {"source": self.name, "truth": self.truth, **self.explanation.to_json()}


@dataclass(frozen=True, eq=False)
class Gallery:
    """Explanations of some of many images.

    Attributes:
        entries: The images in the order in which they are shown.
        worst_first: Whether these are the worst, the worst first; else they are evenly spaced, by name.
        warning: Why the maps mean nothing; empty if nothing is known against them.
    """

    entries: tuple[GalleryEntry, ...]
    num_images: int
    worst_first: bool
    unreadable: tuple[str, ...]
    warning: str

    @property
    def num_scored(self) -> int:
        """How many of the maps have scores: all but those of one value throughout."""
        return sum(entry.explanation.faithfulness is not None for entry in self.entries)

    def faithfulness(self) -> tuple[float, float] | None:
        """Return the mean deletion and insertion score of the maps that have any; None if none has."""
        scores = [entry.explanation.faithfulness for entry in self.entries]
        pairs = [(score.deletion, score.insertion) for score in scores if score is not None]
        if not pairs:
            return None
        deletion, insertion = np.mean(pairs, axis=0).tolist()
        return deletion, insertion


def explain_all(
    classifier: Classifier,
    images: Sequence[LazyImage],
    settings: GallerySettings,
    *,
    worst_first: bool = False,
    most: int = MOST,
    listener: Listener = show,
) -> Gallery:
    """Explain some of many images; those that cannot be read are left out, each with a warning.

    With `worst_first` all images are predicted first, and those are taken whose class got the least probability, or, where the
    class is not known, those that the classifier is least sure of; otherwise they are evenly spaced.

    Raises:
        ImageError: None of the images can be read.
        ModelError: The network does not allow these settings.
    """
    check_classifies(classifier.task, function("explain"))
    unreadable: dict[str, None] = {}  # in order, each once
    entries: list[GalleryEntry] = []
    with skipping(listener) as say:

        def skip(image: LazyImage, error: ImageError) -> None:
            unreadable[image.name] = None
            say(error)

        if worst_first:
            sure = list(_sureness(classifier, images, skip, listener))
            order = np.argsort([probability for _, probability in sure], kind="stable")
            candidates = [sure[index][0] for index in order]
        else:
            indices = np.unique(np.linspace(0, len(images) - 1, min(most, len(images))).round().astype(int))
            candidates = [images[index] for index in indices.tolist()]
        for image in candidates:
            if len(entries) == most:
                break
            try:
                entries.append(_entry(classifier, image, settings))
            except ImageError as error:
                skip(image, error)
            listener(Progress("explain", len(entries), min(most, len(candidates))))
    if not entries:
        raise ImageError("None of the images can be read.")
    return Gallery(tuple(entries), len(images), worst_first, tuple(unreadable), classifier.doubt())


def truth_of(name: str, class_names: Sequence[str]) -> str | None:
    """Return the class that an image is of by the folder that it lies in; None if no class is called so."""
    folder = PurePath(name.replace(":", "/")).parent.name  # of an archive's member, too
    return folder if folder in class_names else None


def _sureness(
    classifier: Classifier,
    images: Sequence[LazyImage],
    skip: Callable[[LazyImage, ImageError], None],
    listener: Listener,
) -> Iterator[tuple[LazyImage, float]]:
    """Give each image that can be read with the probability of its class, or of the answer where that is not known."""
    for done, image in enumerate(images, start=1):
        try:
            (prediction,) = classifier.predict(image.read(), top=len(classifier.class_names), listener=ignore)
        except ImageError as error:
            skip(image, error)
            continue
        truth = truth_of(image.name, classifier.class_names)
        yield image, prediction.probability if truth is None else dict(prediction.top)[truth]
        listener(Progress("predict", done, len(images)))


def _entry(classifier: Classifier, image: LazyImage, settings: GallerySettings) -> GalleryEntry:
    explanation = explain(classifier, image.read(), listener=ignore, **vars(settings))
    overlay = thumbnail(explanation.overlay())
    seen = thumbnail(explanation.image)
    # Of many photos the pixels would fill the memory.
    small = replace(explanation, photo=seen, box=(0, 0, *seen.shape[:2]))
    return GalleryEntry(image.name, small, overlay, truth_of(image.name, classifier.class_names))
