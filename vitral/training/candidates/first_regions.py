"""The first classifier of regions: a linear layer in closed form, on filters alone or joined with a start's frozen maps."""

import copy
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from vitral import distributed, torchrun
from vitral.classifier.find_regions import find_in
from vitral.classifier.metadata import Calibration
from vitral.data.batch import evenly
from vitral.data.scorable import chosen_marked, first_marked
from vitral.data.source import Source
from vitral.data.subset import Subset, spread_over
from vitral.evaluation.baselines import Stopwatch
from vitral.evaluation.region_probe import fit_regions
from vitral.evaluation.region_scores import tally_source
from vitral.images.photo import Photo
from vitral.models.dense.dense_model import DenseConfig, DenseModel, with_region_head
from vitral.models.dense.ridge import RidgeHeadConfig
from vitral.models.families import build
from vitral.models.pixels import PixelsConfig
from vitral.tasks.dense import FITTED
from vitral.training.candidates.result import PIXELS, PROBE, Candidate
from vitral.training.clock import FITTING_SHARE
from vitral.training.scoring.validation import VALIDATION_IMAGES, limited
from vitral.training.session import Run

DIRECTIONS = 16  # of a start's maps
HELD_OUT = 4  # without validation photos every fourth training photo judges a fit on the others
LATE_PHOTOS = 8  # to fit on and to judge by, where the time is over before there is anything
TIMED = 2  # photos that say how long one takes


@dataclass(frozen=True)
class RegionModel:
    """A network of regions in closed form, and how good it is.

    Attributes:
        candidate: What it is called, and its figure.
        model: The network.
        photos: The number of photos that it is fitted on.
        calibration: From where on it is sure of what it finds, by the photos that judge it; None where that is not ranked.
    """

    candidate: Candidate
    model: DenseModel
    photos: int
    calibration: Calibration | None


def best_of_regions(run: Run, train: Source, *, seconds: float, after: int, late: bool = False) -> list[RegionModel]:
    """Return what is fitted on filters alone and on a start's maps besides, the better one on validation photos first.

    Without validation photos every fourth training photo judges, by a fit on the others.

    Args:
        run: The run, whose task is about regions.
        train: The photos to fit on.
        seconds: That it may take.
        after: Photos that are yet to be put through it in that time.
        late: Whether one is fitted on filters and few photos where there is no time for more.

    Returns:
        Those for which there was time; none of one photo.
    """
    if len(train) < 2:
        return []
    fitted: list[RegionModel] = []
    stopwatch, networks = Stopwatch(seconds), _affordable(run, train, seconds, after)
    if networks:
        fitting, judges = _shared_out(run, train, min(most for _, _, most in networks))
    for number, (name, model, _) in enumerate(networks):
        made = _made(run, name, model, fitting, judges, FITTING_SHARE * stopwatch.left() / (len(networks) - number))
        if made is None:
            break
        better = not fitted or run.headline.improves(made.candidate.figure, fitted[0].candidate.figure)
        fitted.insert(0 if better else 1, made)
    if not fitted and late:
        name, model = next(_networks(run))
        fitting, judges = _shared_out(run, _few(train, LATE_PHOTOS), LATE_PHOTOS)
        made = _made(run, name, model, fitting, judges, math.inf)
        return [] if made is None else [made]
    return fitted


def _affordable(run: Run, train: Source, seconds: float, after: int) -> list[tuple[str, DenseModel, int]]:
    """Return the networks for which there is time, each with the number of photos that it could be judged by."""
    networks = list(_networks(run))
    found = []
    for name, model in networks:
        a_photo = distributed.broadcast(_photo_seconds(run, model, train))
        most = (1 - FITTING_SHARE) * seconds / len(networks) / a_photo - after
        if most >= 1:
            found.append((name, model, int(min(most, VALIDATION_IMAGES))))
    return found


def _shared_out(run: Run, train: Source, most: int) -> tuple[Source, Source]:
    """Return the photos to fit on, and those that judge every network: of the validation photos what validates later, too."""
    if "validation" in run.splits:
        return train, limited(run.data, "validation", most, seed=run.recipe.seed)
    every = range(len(train))
    held_out = (first_marked(train, every) or 0) % HELD_OUT
    fitting, judging = (
        Subset(train, [index for index in every if (index % HELD_OUT == held_out) == held]) for held in (False, True)
    )
    return fitting, _few(judging, most)


def _networks(run: Run) -> Iterator[tuple[str, DenseModel]]:
    """Give the networks whose heads can be fitted, by the candidate's name."""
    objects, size, classes = run.task.name != "semantic", run.model.image_size, run.num_classes
    alone = RidgeHeadConfig(objects=objects)
    pixels = PixelsConfig(image_size=size)
    yield PIXELS, with_region_head(build(pixels), alone, classes, seed=0)
    if run.plan.origin == "weights":
        joined = RidgeHeadConfig(directions=DIRECTIONS, objects=objects)
        backbone = copy.deepcopy(run.model.without_region_head()).cpu()
        config = DenseConfig(backbone=backbone.config, head=joined, num_classes=classes, image_size=size)
        yield PROBE, DenseModel(config, backbone).eval()


def _made(
    run: Run, name: str, model: DenseModel, fitting: Source, judges: Source, seconds: float
) -> RegionModel | None:
    """Fit a network's head and judge it; None where there is no time for that."""
    photos = _fitted(run, model, fitting, seconds)
    if photos is None:
        return None
    figures = tally_source(run.classifier_of(model), judges, listener=run.listener).figures()
    split = "validation" if "validation" in run.splits else "training"
    candidate = Candidate(name, next(iter(figures.values())), len(judges), split)
    return RegionModel(
        candidate, model, photos, Calibration.of_regions(figures.get(FITTED), run.data.name, len(judges))
    )


def _few(source: Source, most: int) -> Subset:
    """Return at most so many photos, evenly spread, with one on which something is marked."""
    return chosen_marked(source, evenly(range(len(source)), most))


def _photo_seconds(run: Run, model: DenseModel, source: Source) -> float:
    """Return the seconds that a photo takes, from its file to what is found in it."""
    classifier, few = run.classifier_of(model), spread_over(source, TIMED)
    began = time.perf_counter()
    for index in range(len(few)):
        find_in(classifier, Photo.read(partial(few.image, index)))
    return (time.perf_counter() - began) / len(few)


def _fitted(run: Run, model: DenseModel, source: Source, seconds: float) -> int | None:
    """Fit a head in the main process and give it to the others; return on how many photos, None where time is too short."""
    photos = None
    if torchrun.is_main():
        preprocessing = run.classifier_of(model).preprocessing
        fit = fit_regions(model, source, preprocessing, seconds=seconds, seed=run.recipe.seed, listener=run.listener)
        photos = None if fit is None else fit.photos
    photos, weights = distributed.broadcast((photos, model.head.state_dict()))
    model.head.load_state_dict(weights)
    return photos
