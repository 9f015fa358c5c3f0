"""A version of a classifier in service: what it computes for requests, and how many images at once."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_map_only

from vitral.advice import counted
from vitral.classifier.classifier import Classifier, fingerprint
from vitral.classifier.find_regions import find_in, is_long, only_sure
from vitral.classifier.inputs import to_pixels
from vitral.classifier.predicted_regions import PredictedRegions
from vitral.classifier.prediction import Prediction
from vitral.images.geometry import Geometry
from vitral.images.photo import Photo
from vitral.inference.predictor import Image
from vitral.serving.batcher import Lane
from vitral.serving.refusals import RequestRefused, damaged
from vitral.tasks.dense import DenseTask, dense_task
from vitral.tasks.regions import FoundRegions

TRIED = (1, 2, 4, 8, 16, 32)  # images at once, of which the knee is one
TRIAL_SECONDS = 0.15  # for each
PASSES = 4  # for each, unless they take TRIALS_SECONDS
TRIALS_SECONDS = 1.0  # for all together; after that only while larger ones are faster
KNEE = 0.95  # of the best pace: what larger batches add beyond it costs more waiting than it gains
WARMING_SECONDS = 600.0  # that a pass may wait for its turn
LINE = 64  # bytes of a line of the processor's cache
DIGITS = 12  # of the fingerprint in an answer
LONGEST = 48  # times its shorter side: a longer photo would be seen through more windows than a request has images

Given = bytes | np.ndarray | Image  # an encoded image, pixels (height, width, 3) of uint8, or the network's input
Answer = tuple[Float[Tensor, " classes"], float | None]  # the probabilities, and how far from those of the classes


@dataclass(frozen=True, eq=False)
class PreparedPhoto:
    """A photo for a classifier of regions.

    Attributes:
        view: The steps from the photo to it.
        given: The photo as it came, where it is so long that it is seen through windows; otherwise None.
    """

    input: Image
    view: Geometry
    given: bytes | np.ndarray | None


Prepared = Image | PreparedPhoto


def prepare_photo(classifier: Classifier, given: bytes | np.ndarray) -> PreparedPhoto:
    """Return a photo as a classifier of regions takes it.

    Raises:
        ImageError: It cannot be read.
        RequestRefused: It is too long.
    """
    photo = _photo(given)
    height, width = photo.size
    if max(height, width) > LONGEST * min(height, width):
        raise RequestRefused(
            413, "too_long", f"A photo is up to {LONGEST} times as long as wide, not {width}x{height} pixels; cut it."
        )
    preprocessing = classifier.preprocessing
    kept = given if is_long(height, width) else None
    return PreparedPhoto(preprocessing(photo.pixels), photo.view(preprocessing), kept)


def _photo(given: bytes | np.ndarray) -> Photo:
    return Photo.read(partial(to_pixels, given))


def find_together(classifier: Classifier, photos: Sequence[PreparedPhoto]) -> list[FoundRegions | RequestRefused]:
    """Return what is found in each photo, however sure it is, or why there is no answer."""
    whole = [photo.input for photo in photos if photo.given is None]
    answers = classifier.predictor.answers(torch.stack(whole)) if whole else None
    row, found = 0, list[FoundRegions | RequestRefused]()
    for photo in photos:
        if photo.given is not None:
            each = find_in(classifier, _photo(photo.given))
        else:
            answer = tree_map_only(Tensor, itemgetter(slice(row, row + 1)), answers)
            each, row = dense_task(classifier.task).find(answer, [photo.view])[0], row + 1
        # Without the map of classes, which takes eight bytes a pixel as long as an answer is on its way.
        sure = np.isfinite(each.scores).all()
        found.append(FoundRegions(each.regions, each.scores) if sure else damaged())
    return found


def take_from_disk(classifier: Classifier) -> None:
    """Copy weights into memory: those of a file that somebody overwrites in its place would change, or end the process."""
    for value in classifier.state_dict(keep_vars=True).values():
        value.data = _copied(value.data)


def _copied(value: Tensor) -> Tensor:
    """Return a copy that begins at the same place of a line of the processor's cache.

    Libraries of products sum in another order where it is another: the answers would not have the bits of the file's own.
    """
    if value.device.type != "cpu" or not value.is_contiguous() or value.data_ptr() % value.itemsize:
        return value.clone()
    room = torch.empty(value.nbytes + LINE, dtype=torch.uint8)
    start = (value.data_ptr() - room.data_ptr()) % LINE
    return room[start : start + value.nbytes].view(value.dtype).view(value.shape).copy_(value)


class Served:
    """A version of a classifier in service; `alone` makes every image a batch, so that it has the same bits in any company.

    Attributes:
        version: The beginning of a hash of everything that its answers follow from.
        finds_regions: Whether it answers with what is where in a photo, instead of with classes of the photo as a whole.
        preprocessing: What makes a photo the network's input.
        labelled: What its task says of images, after "the images".
        counted: Whether these are things that can be counted, each as sure as it is; otherwise there is one for each class.
        answers: Where prepared images wait for their probabilities, or for what is found in them.
        features: Where they wait for their features.
        others: Where functions that compute with the network wait, one at a time.
    """

    def __init__(self, name: str, classifier: Classifier, *, alone: bool) -> None:
        self.name, self.classifier, self.alone = name, classifier, alone
        self.version = fingerprint(classifier)[:DIGITS]
        self.preprocessing, task = classifier.preprocessing, classifier.task
        self.labelled = task.labelled
        self.finds_regions = isinstance(task, DenseTask)
        self.counted = isinstance(task, DenseTask) and task.counted
        self.answers, self.features = Lane(self._answers), Lane(self._features)
        self.others = Lane(lambda functions: [function() for function in functions], counted=False)

    def prepare(self, given: Given) -> Prepared:
        """Return an image as the network's input.

        Raises:
            ImageError: It cannot be read.
            RequestRefused: It is too long to find regions in.
        """
        if isinstance(given, Tensor):
            return given
        if self.finds_regions:
            return prepare_photo(self.classifier, given)
        return self.preprocessing(to_pixels(given))

    def check_options(self, **given: object) -> None:
        """Refuse options that mean nothing to its answers; None stands for one that is left out.

        Raises:
            RequestRefused: There is such a one.
        """
        possible = "threshold" if self.counted else "" if self.finds_regions else "top"
        for name, value in given.items():
            if value is not None and name != possible:
                raise RequestRefused(
                    422, "not_possible", f"Photos of this classifier {self.labelled}; leave {name} out."
                )

    def regions(self, source: str, found: FoundRegions, threshold: float | None) -> PredictedRegions:
        """Return what is in a photo, without what is less sure than a threshold; None for the classifier's own."""
        sure = only_sure(self.classifier, found, threshold)
        return PredictedRegions(source, sure, self.classifier.class_names, self.counted)

    def prediction(self, source: str, answer: Answer, top: int) -> Prediction:
        """Return what an answer says of an image, with the names of its `top` most probable classes."""
        probabilities, novelty = answer
        novelties = None if novelty is None else torch.tensor([novelty])
        return self.classifier.predictions([source], probabilities[None], novelties, top=top)[0]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of a prepared image, pixels."""
        return self.preprocessing.image_size

    @property
    def image_bytes(self) -> int:
        """The size of a prepared image."""
        height, width = self.image_size
        return 3 * 4 * height * width

    def described(self) -> str:
        """Return what it is and how fast, in one line."""
        classifier = self.classifier
        classes, batch = counted(len(classifier.class_names), "class", "classes"), counted(self.answers.most, "image")
        return (
            f"{classes}, {classifier.predictor.describe()}, {classifier.predictor.computed_by}, "
            f"{1 / self.answers.seconds:,.0f} images/s in batches of up to {batch}"
        )

    def blank(self) -> np.ndarray:
        """Return a black image that preparing has to resize, (height, width, 3) of uint8."""
        height, width = self.image_size
        return np.zeros((2 * height, 2 * width, 3), np.uint8)

    def warm(self, run: Callable[[Callable[[], Any], float], Future[Any]]) -> None:
        """Compute batches of every size that is tried, so that nothing is made at a client's cost, and find the knee.

        `run` lets a function compute when its turn comes, between the batches of requests.
        """
        pace: dict[int, float] = {}
        blank = self.prepare(self.blank())
        until = time.monotonic() + TRIALS_SECONDS
        for count in TRIED[:1] if self.alone else TRIED:
            before = max(pace.values(), default=0.0)
            pace[count] = self._pace([blank] * count, run)
            if KNEE * pace[count] < before and time.monotonic() > until:
                break  # larger batches of a slow network take long to try
        best = max(pace.values())
        most = next(count for count in pace if pace[count] >= KNEE * best)
        for lane in (self.answers, self.features):
            lane.most, lane.seconds = most, 1 / pace[most]

    def _pace(self, images: list[Prepared], run: Callable[[Callable[[], Any], float], Future[Any]]) -> float:
        """Return the images/s of batches of these."""
        taken: list[float] = []
        while len(taken) < 2 or sum(taken) < (TRIAL_SECONDS if len(taken) >= PASSES else TRIALS_SECONDS):
            taken.append(run(lambda: self._timed(images), time.monotonic() + WARMING_SECONDS).result())
        # What the first pass makes is not timed; other work on the machine disturbs the fastest least.
        return len(images) / min(taken[1:])

    def _timed(self, images: list[Prepared]) -> float:
        started = time.monotonic()
        self._answers(images)
        return time.monotonic() - started

    def _answers(self, images: list[Any]) -> list[Any]:
        """Return the answer to each prepared image, or why it has none, of which the others of its batch hear nothing."""
        if self.finds_regions:
            return list(find_together(self.classifier, images))
        return list(self._probabilities(images))

    def _probabilities(self, images: list[Image]) -> list[Answer | RequestRefused]:
        probabilities, novelties = self.classifier.answers(torch.stack(images))
        far = [None] * len(images) if novelties is None else novelties.tolist()
        sound = probabilities.isfinite().all(dim=1).tolist()
        rows = zip(probabilities, far, sound, strict=True)
        return [(row, novelty) if is_sound else damaged() for row, novelty, is_sound in rows]

    def _features(self, images: list[Prepared]) -> Sequence[Float[Tensor, " features"]]:
        inputs = [each.input if isinstance(each, PreparedPhoto) else each for each in images]
        return list(self.classifier.predictor.features(torch.stack(inputs)))
