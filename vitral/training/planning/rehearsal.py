"""What a command with a time budget may spend on what besides training, from one small measurement before it."""

import math
import time
from dataclasses import dataclass, replace
from typing import NoReturn

from vitral import distributed
from vitral.advice import argument, function
from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset
from vitral.errors import TrainingError
from vitral.evaluation.evaluate import predict_probabilities
from vitral.events import Listener, Message
from vitral.seeds import generator
from vitral.training.methods.method import method_of
from vitral.training.methods.self_supervised import fitted_images
from vitral.training.planning.budget import Budget, Reserve, machine_slowness
from vitral.training.planning.durations import written
from vitral.training.planning.plan import Run
from vitral.training.scoring.live import NEIGHBOURS_AMONG, Live, follow

FIRST, MORE = 2, 16  # images that are timed: so many to warm up, and if there is time so many more
REHEARSAL_SHARE = 0.01  # of the budget, for those more
# Of the time left: one validation, and again what follows the features; the final scoring, and again a head for features that
# were learned without one.
VALIDATION_SHARE, SCORING_SHARE = 0.01, 0.1
DOUBT = (
    0.5  # of the time that a step is expected to take: a whole batch goes faster than the few images that were timed
)
WORTHWHILE_STEPS = 50  # that a budget should have room for, when another is proposed
MARGIN = 1.2  # times what a command is expected to take, when a budget is proposed
LEAST_SCORED = 100  # images, fewer than which say little, even where they take more than their share
# After the last update: the log, classifier and scores on the disk, the report drawn, the process's own end: seconds of an idle
# core like ours; and images as the report explains them, each of which takes as long as several that are only scored.
FIXED_SECONDS, REPORTED_IMAGES = 4.5, 60


@dataclass(frozen=True)
class Allowance:
    """How many images a command with a time budget validates and scores on, and what that leaves to be kept back.

    Attributes:
        validation: images of every validation.
        scored: images of the final scoring.
        followed: images of which, and among which, the nearest are looked for at every validation where features are followed.
        completing: training images that a head is fitted on at the end, where the method trains none.
        image_seconds: of one image read and put through the network, without a gradient.
    """

    validation: int
    scored: int
    followed: int
    completing: int
    image_seconds: float

    @property
    def ending(self) -> float:
        """Seconds of the images of the report, and of those that a head is fitted on."""
        return (REPORTED_IMAGES + self.completing) * self.image_seconds

    @property
    def least(self) -> float:
        """Seconds without which not even one update is worth while."""
        return (self.validation + self.scored) * self.image_seconds + self.ending + FIXED_SECONDS


def allow(image_seconds: float, left: float, *, validation: int, scored: int, completing: int = 0) -> Allowance:
    """Share out what is left of a budget.

    Args:
        image_seconds: of one image read and put through the network, without a gradient.
        left: seconds until the command must have ended.
        validation: images of the validation split.
        scored: images of the split that the run is scored on.
        completing: training images that a head may be fitted on at the end.
    """

    def most(share: float, there: int) -> int:
        return min(there, max(LEAST_SCORED, math.floor(share * max(left, 0.0) / max(image_seconds, 1e-9))))

    return Allowance(
        most(VALIDATION_SHARE, validation),
        most(SCORING_SHARE, scored),
        most(VALIDATION_SHARE, NEIGHBOURS_AMONG),
        most(SCORING_SHARE, completing),
        image_seconds,
    )


def time_images(classifier: Classifier, source: Source, seconds: float) -> float:
    """Return the seconds of one image read and put through the network: two are timed, and more where `seconds` allow."""
    first = Subset(source, range(min(FIRST, len(source))))
    _timed(classifier, first)
    cost = _timed(classifier, first) / len(first)
    if distributed.broadcast(cost * MORE > seconds) or len(source) <= FIRST:  # the processes share the images out
        return cost
    some = Subset(source, range(min(FIRST + MORE, len(source))))
    return _timed(classifier, some) / len(some)


def _timed(classifier: Classifier, source: Source) -> float:
    start = time.perf_counter()
    predict_probabilities(classifier, source)
    return time.perf_counter() - start


def limited(data: DataSet, split: str, most: int, *, seed: int) -> Source:
    """Return a split, or so many of its images as are allowed, drawn by the seed; of an endless source the first."""
    source = data.splits[split]
    if len(source) <= most:
        return source
    if source.endless:
        return Subset(source, range(most))
    indices = generator(seed, f"{split} images within the time").choice(len(source), size=most, replace=False)
    return Subset(source, sorted(indices.tolist()))


@dataclass(frozen=True)
class Rehearsed:
    """A run with what its budget allows.

    Attributes:
        run: with as many images to score on as there is time for.
        validating: the images of every validation; None without a validation split.
        live: what follows the network's features at every validation; None for nothing.
        completing: the training images that the method completes a trained network with.
        budget: the command's time.
        ending: seconds of scoring and report, which must be left after training; 0 without a budget.
    """

    run: Run
    validating: Source | None
    live: Live | None
    completing: Source
    budget: Budget
    ending: float = 0.0

    @property
    def _step(self) -> float:
        return self.run.recipe.batch_size / self.run.cost.images_per_second

    def too_short(self) -> bool:
        """Tell whether there is no time left for even one update; in every process of a job the same."""
        return bool(distributed.broadcast(self.run.session.left() < self.ending + DOUBT * self._step))

    def refuse(self, *, runs: int = 1) -> NoReturn:
        """Refuse the command's budget, as too short.

        Args:
            runs: like this one that the command is to make; of several, this one has only been looked at.

        Raises:
            TrainingError: always; it says which budget would do.
        """
        session = self.run.session
        given = session.budget_seconds if runs == 1 else session.command.budget_seconds
        assert given is not None, "there is no budget that could be too short"
        spent = time.monotonic() - session.started
        step = 0.0 if session.request.asked.quick else self._step
        raise TrainingError(too_short(given, spent, self.ending, step, runs=runs))

    def worthwhile(self) -> float:
        """Return the budget in seconds that would have room for some training, if all that was done were done again."""
        more = self.ending + (1 + WORTHWHILE_STEPS) * self._step
        return math.ceil(MARGIN * (time.monotonic() - self.run.session.started + more))


def within_time(run: Run, listener: Listener, *, judging: int | None = None) -> Rehearsed:
    """Return the run with as many images to score on as the budget allows, those of each validation, and the budget.

    Args:
        run: what was asked, decided and read.
        listener: hears of scores that are cut short.
        judging: images of every validation, where those were settled when the run began.
    """
    splits, split = run.data.splits, run.data.scored_split()
    validation = splits.get("validation")
    if run.session.budget_seconds is None:
        most = len(validation) if validation is not None and judging is None else judging or 0
        settled = None if validation is None else limited(run.data, "validation", most, seed=run.recipe.seed)
        live = follow(run.recipe, run.data, settled, judging=run.judging)
        return Rehearsed(run, settled, live, splits["train"], Budget(None))
    seconds = REHEARSAL_SHARE * run.session.budget_seconds
    image_seconds = time_images(run.classifier, splits[split], seconds)
    counts = {"validation": 0 if validation is None else len(validation), "scored": len(splits[split])}
    head = method_of(run.recipe).trains_head(run.recipe)
    fitted = 0 if head or not run.data.task.scored else fitted_images(splits["train"])
    allowed = distributed.broadcast(allow(image_seconds, run.session.left(), **counts, completing=fitted))
    if judging is not None:
        allowed = replace(allowed, validation=judging)
    seed = run.recipe.seed
    validating = None if validation is None else limited(run.data, "validation", allowed.validation, seed=seed)
    reasons = run.plan.reasons
    if allowed.validation < counts["validation"] or allowed.scored < counts["scored"]:
        reasons = (*reasons, _cut(run, allowed, counts))
        listener(Message(reasons[-1]))
    run = replace(run, plan=replace(run.plan, reasons=reasons), scored=allowed.scored)
    run = run if split == "train" else to_score(run)
    live = follow(run.recipe, run.data, validating, judging=run.judging, most=allowed.followed)
    images = (allowed.validation if head else 0) + (0 if live is None else live.images)
    reserve = Reserve(
        validation=images * allowed.image_seconds,
        scoring=allowed.scored / images if images else 0.0,
        ending=allowed.ending + (0.0 if images else allowed.scored * allowed.image_seconds),
        fixed=FIXED_SECONDS,
    )
    budget = Budget(run.session.budget_seconds, started=run.session.started, reserve=reserve, slowness=machine_slowness)
    completing = limited(run.data, "train", allowed.completing, seed=seed) if fitted else splits["train"]
    return Rehearsed(run, validating, live, completing, budget, allowed.least)


def to_score(run: Run) -> Run:
    """Return a run with as many images to score on as there is time for; if those are training images, once it has learned."""
    if run.scored is None:
        return run
    split = run.data.scored_split()
    fewer = limited(run.data, split, run.scored, seed=run.recipe.seed)
    data = replace(run.data, splits={**run.data.splits, split: fewer})
    return replace(run, session=replace(run.session, data=data))


def _cut(run: Run, allowed: Allowance, counts: dict[str, int]) -> str:
    split = run.data.scored_split()
    validation, scored = counts["validation"], counts["scored"]
    validated = f"each validation is of {allowed.validation:,} of {validation:,} images, and " if validation else ""
    return (
        f"To keep {argument('time')}, {validated}the score is of {allowed.scored:,} of {scored:,} {split} images; "
        f"{function('evaluate')} scores all."
    )


def too_short(budget: float, spent: float, ending: float, step: float, *, runs: int = 1) -> str:
    """Return why a budget is refused, and which would do: what a reader gets who adds up the figures that it names.

    Args:
        budget: that was given, in seconds.
        spent: seconds before training could begin.
        ending: of scoring and report, in each run.
        step: of one update; 0 where nothing is to be trained.
        runs: that the command is to make, one after another.
    """
    before, more = math.ceil(spent), math.ceil(runs * (ending + step))
    pace = float(f"{step:.2g}")
    least = math.ceil(MARGIN * (before + more))
    useful = math.ceil(MARGIN * (before + more + runs * WORTHWHILE_STEPS * pace))
    given, enough, better = (argument("time", written(seconds)) for seconds in (budget, least, useful))
    doing = "one step with scoring and report takes" if step else "scoring and report take"
    each = f" in each of {runs} runs" if runs > 1 else ""
    training = f"; for {WORTHWHILE_STEPS} more steps of {pace:g} s{each} give it {better}" if step else ""
    return (
        f"{given} is too short: {before} s went by before training could begin, and {doing} about {more} s more"
        f"{f', all {runs} runs together' if runs > 1 else ''}. With a fifth to spare that makes {enough}{training}."
    )
