"""What a classifier of regions computes for requests: photos prepared, computed together, and told."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from vitral.classifier.classifier import Classifier
from vitral.classifier.find_regions import find_in, is_long
from vitral.classifier.inputs import to_pixels
from vitral.images.geometry import Geometry
from vitral.images.photo import Photo
from vitral.inference.predictor import Image
from vitral.serving.refusals import RequestRefused, damaged
from vitral.tasks.dense import dense_task
from vitral.tasks.regions import FoundRegions

LONGEST = 48  # times its shorter side: a longer photo would be seen through more windows than a request has images


@dataclass(frozen=True, eq=False)
class PreparedPhoto:
    """A photo for a classifier of regions.

    Attributes:
        input: The network's input.
        view: The steps from the photo to it.
        given: The photo as it came, where it is so long that it is seen through windows; otherwise None.
    """

    input: Image
    view: Geometry
    given: bytes | np.ndarray | None


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
