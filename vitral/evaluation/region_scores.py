"""What a classifier of regions finds in the images of a source, added up image by image, so that none need be kept."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.classifier.find_regions import find_in, threshold_of
from vitral.data.scorable import marked_photo
from vitral.data.source import Source
from vitral.data.subset import spread_over
from vitral.errors import DataError, Stopped
from vitral.events import Listener, Progress, ignore
from vitral.tasks.dense import DenseTask
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.query_answers import SURE
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.resampling import PhotoTally, mean_known
from vitral.tasks.task import Task

FITTED_ON = 40  # photos by which it is fitted how sure a query must be
TRIED = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # probabilities above which a query has pixels
DIGITS = 12  # beyond which two figures of the same answers may differ, by the order of sums
TOGETHER = 8  # images after which the processes of a job tell one another what they found


def tally_source(
    classifier: Classifier,
    source: Source,
    *,
    limit: int | None = None,
    listener: Listener = ignore,
    stop: Callable[[], bool] | None = None,
    boundaries: bool = False,
) -> PhotoTally:
    """Return the tally of what a classifier finds in every image of a source, each counted once.

    The processes of a job share the images out, and each ends with the whole tally.

    `limit` is the number of images to take of an endless source. `stop` says after every few images, in every process alike,
    whether to stop. `boundaries` is that of `DenseTask.tally_regions`.

    Raises:
        Stopped: `stop` said so.
        DataError: The source is empty.
        ImageError: An image cannot be read.
    """
    task = classifier.task
    assert isinstance(task, DenseTask), "a task of regions"
    count = min(len(source), limit) if source.endless and limit is not None else len(source)
    if count == 0:
        raise DataError("There are no images to evaluate; name a split that has some.")
    tally = task.tally_regions(classifier.class_names, threshold_of(classifier), boundaries=boundaries)
    rank, world = distributed.rank(), distributed.world()
    for first in range(0, count, TOGETHER * world):
        last = min(first + TOGETHER * world, count)
        mine = [_found(classifier, source, index) for index in range(first + rank, last, world)]
        for found, truth, name in (each for theirs in distributed.gather(mine) for each in theirs):
            tally.add([found], [truth], [name])
        listener(Progress("evaluate", last, count))
        if stop is not None and stop():
            raise Stopped
    return tally


def _found(classifier: Classifier, source: Source, index: int) -> tuple[FoundRegions, Regions, str]:
    """Return what is found in an image, what is there, and what it is called."""
    photo, truth = marked_photo(source, index)
    return find_in(classifier, photo), truth, source.describe(index)


def fitted_task(classifier: Classifier, validating: Source | None) -> Task:
    """Return a classifier's task; of a panoptic one with how sure a query must be where some validation photos tell.

    That is where their panoptic quality is best; of equal ones what is nearest to EoMT's own. The processes of a job share the
    photos out.
    """
    task = classifier.task
    if not isinstance(task, Panoptic) or validating is None or not len(validating):
        return task
    few = spread_over(validating, FITTED_ON)
    tried = sorted(TRIED, key=lambda sure: abs(sure - SURE))
    tally, counted = task.tally_regions(classifier.class_names), []
    rank, world = distributed.rank(), distributed.world()
    mine = [_segments_of(classifier, task, few, index, tried) for index in range(rank, len(few), world)]
    for found, truth, counts in (each for theirs in distributed.gather(mine) for each in theirs):
        tally.add(found, [truth] * len(found), [""] * len(found))
        counted += counts
    figures = mean_known(tally.by_class(np.array(counted, dtype=np.float64).T)).round(DIGITS)
    return task if np.isnan(figures).any() else replace(task, sure=tried[int(figures.argmax())])


def _segments_of(
    classifier: Classifier, task: Panoptic, source: Source, index: int, sures: Sequence[float]
) -> tuple[list[FoundRegions], Regions, list[list[bool]]]:
    """Return the different answers about a photo, what is there, and of each answer which of `sures` give it."""
    photo, truth = marked_photo(source, index)
    views = [photo.view(classifier.preprocessing)]
    answers = classifier.predictor.answers(classifier.preprocessing(photo.pixels)[None])
    (found,) = task.find_by_sureness(answers, views, sures)
    different = list({id(each): each for each in found}.values())
    return different, truth, [[each is one for each in found] for one in different]
