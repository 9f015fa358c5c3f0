"""What a classifier of regions finds in photos, one after another: only one is in memory at a time."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from vitral.classifier.inputs import pixels_of
from vitral.classifier.metadata import Calibration
from vitral.classifier.predicted_regions import PredictedRegions
from vitral.data.image_files import LazyImage
from vitral.data.source import BadImage
from vitral.errors import ImageError, ModelError
from vitral.events import Listener, Progress
from vitral.images.geometry import Geometry
from vitral.images.photo import Photo
from vitral.images.preprocessing import Preprocessing
from vitral.inference.predictor import Predictor
from vitral.inference.windows import find_classes_by_windows, find_regions_by_windows, spread_windows
from vitral.models.dense.answers import QueryAnswers
from vitral.models.model import Images
from vitral.tasks.dense import THRESHOLD, dense_task
from vitral.tasks.drawn_regions import class_colours, is_ground
from vitral.tasks.query_answers import class_scores
from vitral.tasks.regions import FoundRegions
from vitral.tasks.task import Task

LONG = 2.0  # times its shorter side: a longer photo is seen through windows, because as a whole it would be squeezed
OVERLAP = 0.25  # of a window with its neighbour
LARGEST = 8.0  # times its own size, at which a photo is seen at most: larger shows no more


class FindsRegions(Protocol):
    """What a classifier of regions is asked for here."""

    task: Task
    preprocessing: Preprocessing
    predictor: Predictor
    class_names: tuple[str, ...]
    calibration: Calibration | None

    def find(self, images: Images, views: Sequence[Geometry]) -> list[FoundRegions]:
        """Return what is found in prepared images."""
        ...


def threshold_of(classifier: FindsRegions) -> float:
    """Return how sure a region must be to be shown: what validation photos told, where there were any."""
    calibration = classifier.calibration
    return THRESHOLD if calibration is None or calibration.threshold is None else calibration.threshold


def shown_by(classifier: FindsRegions) -> dict[str, Any]:
    """Return how its regions are shown, as JSON values.

    "threshold" says how sure they must be, None where there is one for each class; "colours" has that of each class, as CSS
    has it, and "ground" the numbers of the classes that are left as the photo is.
    """
    names = classifier.class_names
    return {
        "threshold": threshold_of(classifier) if dense_task(classifier.task).counted else None,
        "colours": [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in class_colours(len(names)).tolist()],
        "ground": [number for number, name in enumerate(names) if is_ground(name)],
    }


def find_sure(classifier: FindsRegions, photo: Photo, *, windows: float | None = None) -> FoundRegions:
    """Return what `find_in` does without the things of which the classifier is not sure."""
    return only_sure(classifier, find_in(classifier, photo, windows=windows))


def only_sure(classifier: FindsRegions, found: FoundRegions, threshold: float | None = None) -> FoundRegions:
    """Return regions without the things of which the classifier is less sure than a threshold; None for its own."""
    if not dense_task(classifier.task).counted:
        return found
    sure = found.scores >= (threshold_of(classifier) if threshold is None else threshold)
    return FoundRegions(found.regions.chosen(sure), found.scores[sure], found.class_map)


def is_long(height: int, width: int) -> bool:
    """Tell whether a photo of that height and width, pixels, is seen through windows."""
    return max(height, width) > LONG * min(height, width)


def find_in(classifier: FindsRegions, photo: Photo, *, windows: float | None = None) -> FoundRegions:
    """Return what a classifier finds in one photo, in pixels of the whole photo.

    Args:
        classifier: Its task is about regions.
        photo: The photo.
        windows: How many times as large as the network's input the photo's shorter side is seen, through windows; None for
            the photo as a whole, as in training, unless it is very long.

    Raises:
        ModelError: It classifies images as a whole, the network gives no number, or `windows` is out of range.
    """
    preprocessing = classifier.preprocessing
    if windows is not None:
        _check_windows(windows, photo.size, preprocessing.image_size)
    if windows is None and not is_long(*photo.size):
        return classifier.find(preprocessing(photo.pixels)[None], [photo.view(preprocessing)])[0]
    task, compute = dense_task(classifier.task), classifier.predictor.answers
    classes = 1 if task.counted else len(classifier.class_names)
    size, scale = preprocessing.image_size, windows or 1.0
    spread = spread_windows(photo.size, size, scale=scale, overlap=OVERLAP, classes=classes)
    if task.counted:
        return find_regions_by_windows(photo.pixels, spread, preprocessing, compute, task.find)
    return find_classes_by_windows(photo.pixels, spread, preprocessing, partial(_scores, compute), task.find)


def _check_windows(windows: float, photo: tuple[int, int], size: tuple[int, int]) -> None:
    most = max(1.0, LARGEST * min(own / side for own, side in zip(photo, size, strict=True)))
    if not 1 <= windows <= most:
        height, width = photo
        raise ModelError(f"windows is {windows:g}; of a photo of {width}x{height} pixels it may be 1 to {most:.3g}.")


def _scores(compute: Callable[[Images], Any], images: Images) -> Any:  # noqa: ANN401  # a tensor of scores
    """Return the scores of classes at the places of windows, of whatever head."""
    answers = compute(images)
    if not isinstance(answers, QueryAnswers):
        return answers
    assert answers.masks is not None, "a detector's answers have no masks"
    size = answers.masks.shape[-2], answers.masks.shape[-1]
    rows = zip(answers.classes.float(), answers.masks.float(), strict=True)
    return torch.stack([class_scores(*row, size) for row in rows])


def find_in_each(
    classifier: FindsRegions, images: Sequence[LazyImage], listener: Listener, *, windows: float | None = None
) -> Iterator[PredictedRegions | BadImage]:
    """Give what a classifier finds in each photo, in order, or why it cannot be read; `windows` as of `find_in`.

    Raises:
        ModelError: It classifies images as a whole, or the network gives no number.
    """
    counted = dense_task(classifier.task).counted
    for number, image in enumerate(images, start=1):
        try:
            found = find_sure(classifier, Photo.read(image.read), windows=windows)
        except ImageError as error:
            yield BadImage(image.name, str(error))
        else:
            yield PredictedRegions(image.name, found, classifier.class_names, counted, pixels_of(image))
        listener(Progress("predict", number, len(images)))
