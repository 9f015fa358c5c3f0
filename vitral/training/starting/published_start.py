"""The start of a run that named none: published weights that pay, from the cache or fetched, or none of them."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.data.source import DataSet
from vitral.errors import ModelError, VitralError, WeightsError
from vitral.evaluation.baselines import sample
from vitral.evaluation.start_probes import Images, probe_start
from vitral.events import Event, Listener, Message, Progress
from vitral.models.catalog import variant
from vitral.models.costs import COSTS
from vitral.models.families import replace as replace_config
from vitral.training.choose import start as starts
from vitral.training.choose.draft import Draft
from vitral.training.choose.network import macs
from vitral.training.choose.recipe import fitting_size, image_size
from vitral.training.choose.start import Start
from vitral.training.clock import PACE_SECONDS, TRIAL_SHARE, Clock
from vitral.training.facts import Facts
from vitral.training.optimization.optimizers import autocast, training_device
from vitral.training.plan import ChosenStart
from vitral.weights.named.table import PublishedWeights as Row
from vitral.weights.named.table import answering, find, host, kept, may_fetch, rows, without_network

BETTER = "Expect much better results online."
MORE = "Expect much better results with more time."
# A start, with the weights as they were loaded for it; None where they are yet to be loaded, or are random.
Found = tuple[ChosenStart, Classifier | None]


@dataclass(frozen=True)
class _Search:
    """What a start is looked for by; `fetching` is whether what is not on this machine is fetched."""

    draft: Draft
    data: DataSet
    facts: Facts
    listener: Listener
    fetching: bool


def find_start(draft: Draft, data: DataSet, facts: Facts, clock: Clock, listener: Listener, *, fetching: bool) -> Found:
    """Return the start for a request that leaves it open, and its weights; those are fetched if they are not here.

    Where nothing is to be fetched, for a plan, a network of the same kind stands in for what is not on this machine.

    Raises:
        VitralError: An image cannot be read.
    """
    loaded: Classifier | None = None

    def choose() -> ChosenStart:
        nonlocal loaded
        left = replace(facts, budget_seconds=None if clock.seconds is None else clock.left())
        chosen, loaded = _choose(_Search(draft, data, left, listener, fetching))
        return chosen

    chosen = distributed.by_main(choose)
    if fetching:
        return _everywhere(chosen, loaded, listener)
    return chosen, loaded or (_stand_in(chosen.name) if chosen.name else None)


def _everywhere(chosen: ChosenStart, loaded: Classifier | None, listener: Listener) -> Found:
    """Return a choice with its weights in every process of a job; from scratch in all where one of them cannot have those.

    The processes may be on several machines, each with a cache of its own.
    """
    failed = ""
    if chosen.name and loaded is None:
        try:
            loaded = load(chosen.name, listener=listener)
        except (VitralError, OSError) as error:
            failed = str(error)
    failures = [one for one in distributed.gather(failed) if one]
    if not failures:
        return chosen, loaded
    listener(Message(f"{failures[0]} So training starts from zero.", warning=True))
    return starts.from_scratch(f"not every machine of the job has {chosen.name}"), None


def _choose(search: _Search) -> Found:
    """Choose a start, and load it; from scratch where none pays, none can be had, or what was to be had did not come."""
    facts, data = search.facts, search.facts.data
    if none_pays := starts.why_none_pays(data.images, data.known_side):
        return starts.from_scratch(none_pays), None
    free = [row for row in rows().values() if is_free(row)]
    here = [row for row in free if kept(row) is not None]
    offered = starts_of(here, search.draft, facts, cached=True)
    chosen, why = starts.choose_start(offered, facts)
    while chosen is not None:
        with without_network(not search.fetching):
            if taken := _had(search, chosen, why, offered):
                return taken
        offered = [start for start in offered if start.name != chosen.name]  # a damaged one must not hide the others
        chosen, why = starts.choose_start(offered, facts)
    if not may_fetch():
        none = "none of the downloaded weights suit these photos" if here else "no weights are on this machine"
        return starts.from_scratch(f"downloads are off, and {none}", "" if here else BETTER), None
    return _fetched(search, [row for row in free if row not in here])


def _fetched(search: _Search, free: Sequence[Row]) -> Found:
    """Choose a start of some that are not here, and fetch it; the network is tried only if there is time to fetch one."""
    facts = search.facts
    seconds = starts.seconds_of(facts)
    small = [row for row in free if row.megabytes <= starts.most_megabytes(seconds)]
    if not small:
        return starts.from_scratch("there is too little time to download weights", MORE), None
    reached = answering(small)
    if not reached:
        return starts.from_scratch("no internet and no downloaded weights", BETTER), None
    offered = starts_of([row for row in small if host(row) in reached], search.draft, facts, cached=False)
    chosen, why = starts.choose_start(offered, facts)
    if chosen is None:
        return starts.from_scratch(why), None
    return _had(search, chosen, why, offered) or (starts.from_scratch(f"the download of {chosen.name} failed"), None)


def is_free(row: Row) -> bool:
    """Tell whether published weights are free for products, and their score was confirmed: others are never chosen."""
    return row.products == "yes" and row.score is not None and not {"score", "licence"} & set(row.unverified)


def starts_of(listed: Sequence[Row], draft: Draft, facts: Facts, *, cached: bool) -> list[Start]:
    """Return published weights with a score as starts for a run, each at the size that it has time for.

    Those are left out whose network cannot take the size that was asked for.
    """
    found = (_start(row, facts, draft.recipe.image_size, cached=cached) for row in listed)
    return [start for start in found if start is not None]


def _start(row: Row, facts: Facts, asked_size: int | None, *, cached: bool) -> Start | None:
    config = variant(row.model)
    own = image_size(row.image_size, facts.data.known_side, on_gpu=facts.machine.has_gpu)[0]
    sizes = [asked_size] if asked_size else [fitting_size(config, round(share * own)) for share in (starts.SMALLER, 1)]

    def cost(size: int) -> float:  # no network has to be built to be counted
        return macs(row.model, size) if config.known_macs is None else config.known_macs

    size = starts.size_in_time(facts, sizes, cost)
    try:
        config = replace_config(config, image_size=(size, size))
    except ModelError:
        return None
    assert row.score is not None, "rows without a score are left out"
    return Start(
        name=row.name,
        dataset=row.dataset,
        score=row.score,
        metric=row.metric,
        megabytes=row.megabytes,
        licence=row.licence,
        host=host(row),
        cached=cached,
        parameters=COSTS[row.model].parameters,
        size=size,
        macs=cost(size),
    )


def _had(search: _Search, chosen: Start, why: str, offered: Sequence[Start]) -> Found | None:
    """Load a start, and another to compare it with where there is time for both; or the network that stands in for it.

    None where the start cannot be had, which a warning says.
    """
    # Features are computed by all processes of a job together, and this is one of them.
    facts, listener = search.facts, search.listener
    other = starts.rival(chosen, offered, facts) if distributed.world() == 1 else None
    if not search.fetching and not chosen.cached:
        lines = (why, starts.where_from(chosen, fetching=False, other=other))
        return ChosenStart(chosen.name, lines, chosen.size), _stand_in(chosen.name)
    ends = monotonic() + TRIAL_SHARE * starts.seconds_of(facts)  # of both downloads
    try:
        loaded = {chosen.name: _loaded(chosen, listener, ends)}
    except (VitralError, OSError) as error:
        listener(Message(f"{error} So the run does not start from {chosen.name}.", warning=True))
        return None
    if other is not None:
        try:
            loaded[other.name] = _loaded(other, listener, ends)
        except (VitralError, OSError) as error:
            listener(Message(f"{error} So {chosen.name} is compared with nothing.", warning=True))
        else:
            count = starts.images_to_probe((chosen, other), facts)
            chosen, why = starts.compared(_probed(search, (chosen, other), loaded, count), count)
    lines = (why, starts.where_from(chosen, fetching=True))
    return ChosenStart(chosen.name, lines, chosen.size), loaded[chosen.name]


def _loaded(start: Start, listener: Listener, ends: float) -> Classifier:
    """Load published weights, after fetching them if they are not here; a download that would last longer is given up."""
    return load(start.name, listener=_within(listener, ends - monotonic()))


def _within(listener: Listener, seconds: float) -> Listener:
    """Return a listener that ends a download as soon as its pace says that it would take more than so many seconds."""
    began = monotonic()

    def hear(event: Event) -> None:
        listener(event)
        if isinstance(event, Progress) and event.done < event.total:
            spent = monotonic() - began
            if spent > PACE_SECONDS and spent * event.total > seconds * max(event.done, 1):
                raise WeightsError(
                    f"The download is too slow: {event.done:,} of {event.total:,} MB came in {spent:.0f} s, and stay here."
                )

    return hear


def _stand_in(name: str) -> Classifier:
    """Return the network of published weights, without them: of the same size and cost."""
    row = find(name)
    return load(row.model, image_size=row.image_size, architecture=row.architecture)


def _probed(
    search: _Search, pair: Sequence[Start], loaded: Mapping[str, Classifier], count: int
) -> list[tuple[Start, float]]:
    """Return of each start how often linear probes on its features are right about images that were left out of their fit."""
    recipe, train = search.draft.recipe, search.data.splits["train"]
    train = sample(train, count, seed=recipe.seed, purpose="images to compare starts by")
    images = Images(train, None, len(search.data.class_names))
    context = partial(autocast, training_device(), recipe.precision)
    figures = []
    for start in pair:
        published = loaded[start.name]
        model = copy.deepcopy(published.model)  # which resizing would change for good
        model.resize(start.size)
        preprocessing = published.preprocessing.with_size(model.image_size)
        classifier = Classifier(model, preprocessing, published.class_names, task=published.task).to(training_device())
        figures.append((start, probe_start(classifier, images, search.listener, context=context).accuracy))
    return figures
