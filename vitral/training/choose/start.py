"""Which published weights pay as the start of a run that named none, with the reasons: functions of facts, which fetch nothing.

What is compared is published, measured on this machine or asked of the data. How the figures weigh against each other is ours.
Whether a start is better than none is no question here: a run tries both, see `decide.fresh_attempt`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vitral.advice import counted
from vitral.training.choose.network import FINE_BELOW, LARGE_SET, LEAST
from vitral.training.choose.recipe import length
from vitral.training.clock import (
    FEATURES_SHARE,
    FORWARD_SPEED,
    LINE_SPEED,
    PATIENCE_SECONDS,
    TRAINING_SHARE,
    TRIAL_SHARE,
)
from vitral.training.facts import STATE_BYTES, Facts
from vitral.training.plan import ChosenStart
from vitral.training.settings.durations import rounded

# Scores of different kinds cannot be compared, so that a kind counts only where no start of one before it pays: frozen
# features first, since the first classifier is a layer on them; then labels, whose features transfer; then captions.
KINDS = ("k-NN", "linear", "fine-tuned", "top-1", "zero-shot")
# Scores are compared in whole points, less these for each doubling of the time that a run takes with a start: a doubling
# counts in full where training fills the time, and not at all where it takes no time. So DINOv2's S (79.0) is taken on two
# cores, where its B (82.1) takes four times as long, and B where there is time for it; registers (79.1) do not pay at S.
POINTS = 6.0
MOST_MEGABYTES = 500.0  # of all that a command fetches by itself
MOST_PROBED = 1000  # images to compare starts by, at most,
FEWEST_PROBED = 30  # at least,
A_CLASS = 3  # and at least so many of a class
RIVAL_SIZE = 0.5  # of the chosen start's parameters: a smaller network is not fetched to be compared with it
SMALLER = 4 / 7  # of the side: 128 pixels in place of 224, a third of the time
TELLING = 10  # images of a class whose features make a start worth it, where there is no time for those of all
PASSES_ANEW = 10  # over many tiny images, for which a start needs time to be better than a network of their own size


@dataclass(frozen=True)
class Start:
    """Published weights that a run could begin with.

    Attributes:
        name: MODEL@TRAINING.
        dataset: what they were trained on.
        score: on ImageNet, percent.
        metric: what the score measures.
        megabytes: of the file.
        licence: its name.
        host: the server that it comes from.
        cached: whether it is on this machine.
        parameters: of the network.
        size: pixels, of the images that it would be used on.
        macs: multiply-accumulates of such an image's forward pass.
    """

    name: str
    dataset: str
    score: float
    metric: str
    megabytes: int
    licence: str
    host: str
    cached: bool
    parameters: int
    size: int
    macs: float

    def described(self) -> str:
        """Return size and licence."""
        return f"{self.megabytes:,} MB, licence {self.licence}"


def seconds_of(facts: Facts) -> float:
    """Return the time that the command may take."""
    return PATIENCE_SECONDS if facts.budget_seconds is None else max(facts.budget_seconds, 0.0)


def feature_seconds(facts: Facts, start: Start, images: int) -> float:
    """Return what the features of so many images take."""
    return images * start.macs / (FORWARD_SPEED * facts.machine.own_speed)


def from_scratch(reason: str, advice: str = "") -> ChosenStart:
    """Return the choice of random weights, and why in one line; `advice` is a sentence on what would help."""
    return ChosenStart("", (f"{reason[0].upper()}{reason[1:]}, so training starts from zero. {advice}".rstrip(),))


def why_none_pays(images: int, side: float) -> str:
    """Return why images are not for any published start, whatever that is; empty where one may pay."""
    if side < LEAST:
        return f"published weights are for larger photos than {side:.0f} pixels"
    return "" if images else "there are no training photos"


def most_megabytes(seconds: float) -> float:
    """Return what a command may fetch unasked in the time that it may take."""
    return min(MOST_MEGABYTES, LINE_SPEED * TRIAL_SHARE * seconds)


def choose_start(starts: Sequence[Start], facts: Facts) -> tuple[Start | None, str]:
    """Return the start that pays best of those that can be had, None if none does, and the reason in one line."""
    best = _best(starts, facts)
    return (None, _why_not(starts, facts)) if best is None else (best, _why_start(best, facts))


def _best(starts: Sequence[Start], facts: Facts) -> Start | None:
    paying = [start for start in starts if _pays(start, facts)]
    for kind in KINDS:
        if of_kind := [start for start in paying if start.metric == kind]:
            return max(of_kind, key=lambda start: _worth(start, facts))
    return None


def rival(chosen: Start, starts: Sequence[Start], facts: Facts) -> Start | None:
    """Return what the chosen start is to be compared with by probes; None if nothing is, or there is no time for it.

    The best of another kind of score, for published figures cannot order the two; else the second best of the same kind. One
    that was trained on the same images would be another of the same family.
    """
    room = most_megabytes(seconds_of(facts)) - (0.0 if chosen.cached else chosen.megabytes)
    others = [
        one
        for one in starts
        if one.dataset != chosen.dataset
        and (one.cached or (one.megabytes <= room and one.parameters >= RIVAL_SIZE * chosen.parameters))
    ]
    other = _best([one for one in others if one.metric != chosen.metric], facts) or _best(others, facts)
    return other if other is not None and images_to_probe((chosen, other), facts) else None


def images_to_probe(starts: Sequence[Start], facts: Facts) -> int:
    """Return by how many images several starts are compared; 0 where there is no time for enough of them."""
    an_image = sum(feature_seconds(facts, start, 1) for start in starts)
    count = min(MOST_PROBED, facts.data.images, int(TRIAL_SHARE * seconds_of(facts) / max(an_image, 1e-12)))
    data = facts.data
    probed = facts.task.closed_form and not facts.task.dense
    can_be_probed = probed and data.classes > 0 and count >= max(FEWEST_PROBED, A_CLASS * data.classes)
    return count if can_be_probed else 0


def _why_start(chosen: Start, facts: Facts) -> str:
    takes = rounded(feature_seconds(facts, chosen, facts.data.images))
    among = "on this machine" if chosen.cached else "that are small enough to download"
    return (
        f"Weights: {chosen.name}, of the free ones {among} the best by published score ({chosen.score:g} {chosen.metric}) and "
        f"cost; the features of {counted(facts.data.images, 'photo')} take about {takes}."
    )


def compared(figures: Sequence[tuple[Start, float]], images: int) -> tuple[Start, str]:
    """Return the best of starts by the share of images that each one's probe got right, of equals the cheaper, and why."""
    ranked = sorted(figures, key=lambda one: (-one[1], one[0].macs))
    best, said = ranked[0][0], ", ".join(f"{start.name} {figure:.1%}" for start, figure in ranked)
    probes = (
        f"the better of two by linear probes on {images:,} training photos, each left out of the fit that judges it"
    )
    return best, f"Weights: {best.name}, {probes}: {said}."


def where_from(chosen: Start, *, fetching: bool, other: Start | None = None) -> str:
    """Return in one line where a start comes from, with size and licence.

    Where nothing is fetched the line speaks of what would be, and of the other start that it would be compared with.
    """
    if chosen.cached:
        return f"  They are on this machine: {chosen.described()}."
    if fetching:
        return f"  They come from {chosen.host}: {chosen.described()}."
    line = f"  They would be downloaded from {chosen.host}: {chosen.described()}."
    if other is None:
        return line
    return f"{line[:-1]}; and {other.name} from {other.host}: {other.described()}, of which the better probe decides."


def _why_not(starts: Sequence[Start], facts: Facts) -> str:
    if not starts:
        return "no published weights take photos of that size"
    if not any(_fits(start, facts) for start in starts):
        return "no published weights fit the memory"
    if all(_learned_better_anew(start, facts) for start in starts):
        many = f"{facts.data.images:,} photos of {facts.data.known_side:.0f} pixels"
        return f"{many} are enough without published weights, and {rounded(seconds_of(facts))} too short to train those on them"
    return (
        f"the features of {counted(_telling(facts), 'photo')} would take even the smallest published network more than a third "
        f"of {rounded(seconds_of(facts))}"
    )


def _worth(start: Start, facts: Facts) -> float:
    """Return a start's score less what it costs, in points."""
    batch, steps, _ = length(facts.data.images, on_gpu=facts.machine.has_gpu)
    training = batch * steps * start.macs / facts.machine.own_speed
    download = 0.0 if start.cached else start.megabytes / LINE_SPEED
    return round(start.score) - POINTS * math.log2(1 + (download + training) / max(seconds_of(facts), 1e-9))


def _pays(start: Start, facts: Facts) -> bool:
    """Tell whether a start is worth more than none: there is time for its features, and no better way to spend it."""
    in_time = feature_seconds(facts, start, _telling(facts)) <= FEATURES_SHARE * seconds_of(facts)
    return _fits(start, facts) and in_time and not _learned_better_anew(start, facts)


def _telling(facts: Facts) -> int:
    """Return of how many images the features must be had in time."""
    return min(facts.data.images, max(FEWEST_PROBED, TELLING * facts.data.classes))


def size_in_time(facts: Facts, sizes: Sequence[int], macs: Callable[[int], float]) -> int:
    """Return the largest of some sizes, pixels, at which the features of all training images are had in time; else the least.

    Features of larger images are hardly ever worse; `macs` gives the cost of an image by its size.
    """
    room = FEATURES_SHARE * seconds_of(facts) * FORWARD_SPEED * facts.machine.own_speed
    return max((size for size in sizes if facts.data.images * macs(size) <= room), default=min(sizes))


def _fits(start: Start, facts: Facts) -> bool:
    return facts.machine.usable_bytes is None or start.parameters * STATE_BYTES <= facts.machine.usable_bytes


def _learned_better_anew(start: Start, facts: Facts) -> bool:
    """Tell whether a network of their own size learns images better than a start: many and tiny ones in a short time.

    A start pays there only if it can be trained as well: the network from scratch reaches about 90 % on CIFAR-10's 50,000
    images of 32 pixels in ten minutes on two cores (docs/decisions.md), and frozen features of enlarged ones hardly more.
    """
    if facts.data.known_side >= FINE_BELOW or facts.data.images < LARGE_SET:
        return False
    passes = PASSES_ANEW * facts.data.images * start.macs / facts.machine.own_speed
    return passes > TRAINING_SHARE * seconds_of(facts)
