"""The settings among which `tune` chooses: sizes, precisions and merging, each by the runtime that is fastest at it."""

import contextlib
import copy
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import torch

from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError
from vitral.events import Listener, Progress
from vitral.inference.choice import INTEGERS, computations_of, predictor_in
from vitral.inference.engines import Computation, Precision
from vitral.inference.merging import check_merging
from vitral.inference.predictor import Predictor
from vitral.inference.runtimes import MERGING
from vitral.machine import has_int8
from vitral.models.model import Model

SHARES = (1.0, 7 / 8, 3 / 4, 5 / 8, 1 / 2, 5 / 4)  # of the network's own height and width
MERGED = (1 / 3, 2 / 3, 1.0)  # of the patches, merged in all blocks together
PASSES = 5  # least number of timed passes of each runtime
SECONDS = 0.4  # least time of them
RUNTIMES_TRIED = 2  # of each precision, at other sizes than the network's own
MILLI = 1e3


@dataclass(frozen=True)
class TimedSetting:
    """A setting, with the fastest runtime at its precision and merging, and its speed."""

    image_size: tuple[int, int]  # height and width, pixels
    way: Computation
    milliseconds: float  # the median for one prepared image

    def __str__(self) -> str:
        """Return the setting in words."""
        return f"{self.way}, {self.image_size[0]}x{self.image_size[1]}"


def candidates(classifier: Classifier, listener: Listener) -> list[TimedSetting]:
    """Return the settings of a classifier that are faster than those of the same size and more precision.

    All runtimes are timed at the network's own size, the two fastest of each precision at other sizes. int8 is among them if
    the classifier has been quantized, at the size of that.

    Raises:
        ModelError: No runtime computes the network.
    """
    found: list[TimedSetting] = []
    ranked: dict[Precision, list[Computation]] = {}
    sizes = list(image_sizes(classifier.model))
    for number, size in enumerate(sizes):
        sized = at_size(classifier, size)
        if sized is None:
            continue
        timed = _timed(sized, [way for ways in ranked.values() for way in ways[:RUNTIMES_TRIED]] or _ways(sized))
        if not ranked:
            ranked = _ranked(timed)
        timed |= _timed(sized, _merging(sized, ranked))
        found += [TimedSetting(size, way, took) for way, took in _worth_it(timed).items()]
        listener(Progress("measure", number + 1, len(sizes)))
    if not found:
        raise ModelError("No runtime that is installed computes this network; take another one.")
    return found


def _ways(classifier: Classifier) -> list[Computation]:
    """Return every runtime, in every precision in which this machine computes the network."""
    plain = computations_of(classifier.model, "auto", "auto")
    return [*plain, INTEGERS] if classifier.quantization is not None and has_int8() else plain


def _merging(classifier: Classifier, ranked: Mapping[Precision, Sequence[Computation]]) -> list[Computation]:
    """Return the settings that merge tokens, in each precision with the fastest runtime that can."""
    able = [next((way for way in ways if way.engine in MERGING), None) for ways in ranked.values()]
    counts = merge_counts(classifier.model)
    return [replace(way, merge=count) for way in able if way is not None and _has(classifier, way) for count in counts]


def _has(classifier: Classifier, way: Computation) -> bool:
    return way.precision != "int8" or classifier.quantization is not None


def _timed(classifier: Classifier, ways: Sequence[Computation]) -> dict[Computation, float]:
    """Return the milliseconds of those that can compute the network."""
    timed: dict[Computation, float] = {}
    for way in ways:
        if not _has(classifier, way):
            continue
        with contextlib.suppress(ModelError):
            timed[way] = milliseconds(predictor_in(classifier.model, way, classifier.quantization))
    return timed


def _ranked(timed: Mapping[Computation, float]) -> dict[Precision, list[Computation]]:
    """Return the runtimes of each precision, the most precise first, and within it the fastest."""
    fastest = sorted(timed, key=timed.__getitem__)
    ranked = {each: [way for way in fastest if way.precision == each] for each in get_args(Precision)}
    return {precision: ways for precision, ways in ranked.items() if ways}


def _worth_it(timed: Mapping[Computation, float]) -> dict[Computation, float]:
    """Return the runtimes that are faster than all of at least their precision that merge no more tokens."""
    exactness = {precision: place for place, precision in enumerate(get_args(Precision))}
    fastest: dict[Computation, float] = {}
    for way in sorted(timed, key=timed.__getitem__):
        if not any(
            exactness[faster.precision] <= exactness[way.precision] and faster.merge <= way.merge for faster in fastest
        ):
            fastest[way] = timed[way]
    return fastest


def image_sizes(model: Model) -> Iterator[tuple[int, int]]:
    """Yield the image sizes to try: the network's own, then smaller and larger ones, in whole patches."""
    own, step = model.image_size, model.config.size_step
    scaled = ([max(1, round(side * share / step)) * step for side in own] for share in SHARES)
    yield from dict.fromkeys([own, *((height, width) for height, width in scaled)])


def at_size(classifier: Classifier, size: tuple[int, int]) -> Classifier | None:
    """Return a classifier at an image size; None if its network cannot take that."""
    if size == classifier.model.image_size:
        return classifier
    model = copy.deepcopy(classifier.model)
    try:
        model.resize(size)
    except ModelError:
        return None
    return Classifier(model, classifier.preprocessing.with_size(size), classifier.class_names, task=classifier.task)


def merge_counts(model: Model) -> list[int]:
    """Return by how many tokens each block may shrink, 0 left out; empty if the network cannot merge tokens."""
    try:
        check_merging(model)
    except ModelError:
        return []
    grid = model.config.patch_grid
    rows, columns = grid.sides
    counts = {round(share * rows * columns / len(model.blocks())) for share in MERGED}
    return sorted(counts - {0})


def milliseconds(predictor: Predictor) -> float:
    """Return the median time for one prepared image over several passes, without what is done once.

    Raises:
        ModelError: The runtime cannot compute the network.
    """
    images = torch.zeros(1, 3, *predictor.image_size)
    predictor.logits(images)
    predictor.logits(images)
    seconds: list[float] = []
    while len(seconds) < PASSES or sum(seconds) < SECONDS:
        began = time.perf_counter()
        predictor.logits(images)
        seconds.append(time.perf_counter() - began)
    return MILLI * statistics.median(seconds)
