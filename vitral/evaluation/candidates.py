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
from vitral.inference.choice import INTEGERS, Computation, computations_of, predictor_in
from vitral.inference.engines import Precision
from vitral.inference.merging import check_merging
from vitral.inference.predictor import Predictor
from vitral.inference.runtimes import MERGING
from vitral.machine import has_int8
from vitral.models.model import Model

SHARES = (1.0, 7 / 8, 3 / 4, 5 / 8, 1 / 2, 5 / 4)  # of the network's own height and width
MERGED = (1 / 3, 2 / 3, 1.0)  # of the patches, merged in all blocks together
PASSES, SECONDS = 5, 0.4  # of each runtime at the least, that are timed
RUNTIMES_TRIED = 2  # of each precision, at other sizes than the network's own
MILLI = 1e3


@dataclass(frozen=True)
class Candidate:
    """A setting and what it takes.

    Attributes:
        image_size: height and width of the network's images, pixels.
        way: the runtime that is the fastest at this precision and merging.
        milliseconds: that one prepared image takes, the median.
    """

    image_size: tuple[int, int]
    way: Computation
    milliseconds: float

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.way}, {self.image_size[0]}x{self.image_size[1]}"


def candidates(classifier: Classifier, listener: Listener) -> list[Candidate]:
    """Return the settings of a classifier that can be, and that are faster than those of the same size in more precision.

    All runtimes are timed at the network's own size, the two fastest of each precision at the others. int8 is among them where
    the classifier has a form for it, at the size of that.

    Raises:
        ModelError: no runtime computes the network.
    """
    found: list[Candidate] = []
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
        found += [Candidate(size, way, took) for way, took in _worth_it(timed).items()]
        listener(Progress("measure", number + 1, len(sizes)))
    if not found:
        raise ModelError("No runtime that is installed computes this network; take another one.")
    return found


def _ways(classifier: Classifier) -> list[Computation]:
    """Return every runtime in every precision that this machine computes the network in."""
    plain = computations_of(classifier.model, "auto", "auto")
    return [*plain, INTEGERS] if classifier.quantization is not None and has_int8() else plain


def _merging(classifier: Classifier, ranked: Mapping[Precision, Sequence[Computation]]) -> list[Computation]:
    """Return ways to merge tokens, in each precision by the fastest runtime of those that can."""
    able = [next((way for way in ways if way.engine in MERGING), None) for ways in ranked.values()]
    counts = merge_counts(classifier.model)
    return [replace(way, merge=count) for way in able if way is not None and _has(classifier, way) for count in counts]


def _has(classifier: Classifier, way: Computation) -> bool:
    return way.precision != "int8" or classifier.quantization is not None


def _timed(classifier: Classifier, ways: Sequence[Computation]) -> dict[Computation, float]:
    """Return the milliseconds of those that can compute the network."""
    taken: dict[Computation, float] = {}
    for way in ways:
        if not _has(classifier, way):
            continue
        with contextlib.suppress(ModelError):
            taken[way] = milliseconds(predictor_in(classifier.model, way, classifier.quantization))
    return taken


def _ranked(timed: Mapping[Computation, float]) -> dict[Precision, list[Computation]]:
    """Return the ways of each precision, the most precise first, and in it the fastest."""
    ranked: dict[Precision, list[Computation]] = {}
    for precision in get_args(Precision):
        own = [way for way in timed if way.precision == precision]
        if own:
            ranked[precision] = sorted(own, key=timed.__getitem__)
    return ranked


def _worth_it(timed: Mapping[Computation, float]) -> dict[Computation, float]:
    """Return the ways that are faster than all that compute in as much precision and merge as few tokens or fewer."""
    exactness = {precision: place for place, precision in enumerate(get_args(Precision))}
    kept: dict[Computation, float] = {}
    for way in sorted(timed, key=timed.__getitem__):
        if not any(exactness[one.precision] <= exactness[way.precision] and one.merge <= way.merge for one in kept):
            kept[way] = timed[way]
    return kept


def image_sizes(model: Model) -> Iterator[tuple[int, int]]:
    """Give the sizes that are tried: the network's own, then smaller and larger ones, in whole patches."""
    own, step = model.image_size, model.config.size_step
    given = {own}
    yield own
    for share in SHARES:
        size = tuple(max(1, round(side * share / step)) * step for side in own)
        if size not in given:
            given.add(size)
            yield size[0], size[1]


def at_size(classifier: Classifier, size: tuple[int, int]) -> Classifier | None:
    """Return a classifier at another size, at its own itself; None if its network cannot take that."""
    if size == classifier.model.image_size:
        return classifier
    model = copy.deepcopy(classifier.model)
    try:
        model.resize(size)
    except ModelError:
        return None
    return Classifier(model, classifier.preprocessing.with_size(size), classifier.class_names, task=classifier.task)


def merge_counts(model: Model) -> list[int]:
    """Return how many tokens a block may have fewer, 0 not among them; none of a network whose tokens cannot be merged."""
    try:
        check_merging(model)
    except ModelError:
        return []
    rows, columns = model.config.patch_grid.sides
    counts = {round(share * rows * columns / len(model.blocks())) for share in MERGED}
    return sorted(counts - {0})


def milliseconds(predictor: Predictor) -> float:
    """Return what one prepared image takes, the median of several passes; nothing that is done once is timed.

    Raises:
        ModelError: the runtime cannot compute the network.
    """
    images = torch.zeros(1, 3, *predictor.image_size)
    predictor.logits(images)
    predictor.logits(images)
    seconds: list[float] = []
    while len(seconds) < PASSES or sum(seconds) < SECONDS:
        begun = time.perf_counter()
        predictor.logits(images)
        seconds.append(time.perf_counter() - begun)
    return MILLI * statistics.median(seconds)
