"""What a run validates and scores within its time, and what that leaves for training.

Beside it, before it trains, simple classifiers on pixels and on the frozen features of trained weights.
"""

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

import torch

from vitral import distributed, torchrun
from vitral.advice import argument, function
from vitral.classifier.classifier import Classifier
from vitral.data.scorable import chosen_marked
from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset
from vitral.described import read_kept
from vitral.errors import Stopped, TrainingError
from vitral.evaluation.baselines import Baselines, Fitted, score_baselines
from vitral.evaluation.evaluate import predict_probabilities
from vitral.evaluation.region_scores import FITTED_ON, tally_source
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.models.model import Model
from vitral.seeds import generator
from vitral.tasks.class_sizes import ClassSizes
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.shown import images_of
from vitral.training.clock import (
    BASELINES_SHARE,
    ENDING_SECONDS,
    MARGIN,
    SIMPLE_SECONDS,
    SPARE_SHARE,
    STEP_DOUBT,
    TIMED_IMAGES_SHARE,
    WORTHWHILE_STEPS,
    Allowance,
    Pacer,
    Reserve,
    machine_slowness,
)
from vitral.training.loop import Validate
from vitral.training.measuring import time_images
from vitral.training.methods.method import method_of
from vitral.training.methods.self_supervised import fitted_images
from vitral.training.optimization.optimizers import autocast, training_device
from vitral.training.records.run_folder import BASELINES_FILE
from vitral.training.scoring.live import NEIGHBOURS_AMONG, Live, follow
from vitral.training.session import Run
from vitral.training.settings.durations import written

VALIDATION_IMAGES = 2000  # of an endless source
FEW_IMAGES = 5000  # below this number starting workers takes longer than they save


@dataclass(frozen=True)
class Scoring:
    """What a run scores within its time.

    Attributes:
        validating: The images of every validation; None without a validation split.
        live: What follows the network's features at every validation; None for nothing.
        completing: The training images with which the method completes a trained network.
        pacer: Keeps the training within the command's time.
        scored: How many images are scored at the end; None for all.
        ending: Seconds of scoring and report, which must be left after training; 0 without a budget.
        remembered: How many images there is time for whose features the classifier keeps; None for all.
        whole: The data with all images that could be scored at the end; None where all are.
    """

    validating: Source | None
    live: Live | None
    completing: Source
    pacer: Pacer
    scored: int | None = None
    ending: float = 0.0
    remembered: int | None = None
    whole: DataSet | None = None


def within_time(run: Run, judging: int | None = None) -> tuple[Run, Scoring]:
    """Return a run with as many images to score as its time allows, and what it scores and validates on.

    Args:
        run: What was decided and read.
        judging: Images of every validation, where an earlier command settled them; None to settle them here.
    """
    if run.clock.seconds is None:
        return _without_budget(run, judging)
    run = _timed(run)
    validation, train = run.splits.get("validation"), run.splits["train"]
    has_head = method_of(run.recipe).trains_head(run.recipe)
    there = Allowance(
        0 if validation is None else len(validation),
        len(run.scored_images),
        NEIGHBOURS_AMONG,
        completing=0 if has_head or not run.task.scored else fitted_images(train),
        image_seconds=run.plan.image_seconds or 0.0,
        remembered=len(train) if run.task.exclusive and run.task.scored else 0,
    )
    allowed = distributed.broadcast(there.within(run.clock.left()))
    if judging is not None:
        allowed = replace(allowed, validation=judging)
    if allowed.validation < there.validation or allowed.scored < there.scored:
        line = _cut(run, allowed, there)
        run = replace(run, plan=run.plan.with_reasons(line))
        run.listener(Message(line, detail=True))
    scoring = replace(_scoring(run, allowed, has_head=has_head, completes=there.completing > 0), whole=run.data)
    return (run if run.data.scored_split() == "train" else to_score(run, scoring)), scoring


def _without_budget(run: Run, judging: int | None) -> tuple[Run, Scoring]:
    validation, settled = run.splits.get("validation"), None
    if validation is not None:
        most = len(validation) if judging is None else judging
        settled = limited(run.data, "validation", most, seed=run.recipe.seed)
    live = follow(run.recipe, run.data, settled, judging=run.judging)
    return run, Scoring(settled, live, run.splits["train"], Pacer(run.clock))


def _timed(run: Run) -> Run:
    """Return a run whose plan knows what an image takes to be scored; a quick run, or one without a budget, was not timed."""
    if run.plan.image_seconds is not None:
        return run
    assert run.clock.seconds is not None, "only a budget needs it"
    seconds = distributed.broadcast(
        time_images(run.classifier, run.scored_images, TIMED_IMAGES_SHARE * run.clock.seconds)
    )
    return replace(run, plan=replace(run.plan, image_seconds=seconds))


def _scoring(run: Run, allowed: Allowance, *, has_head: bool, completes: bool) -> Scoring:
    data, seed = run.data, run.recipe.seed
    validating = limited(data, "validation", allowed.validation, seed=seed) if "validation" in data.splits else None
    live = follow(run.recipe, data, validating, judging=run.judging, most=allowed.followed)
    images = (allowed.validation if has_head else 0) + (0 if live is None else live.images)
    scored = allowed.scored + _tried_on(run, allowed.validation)
    reserve = Reserve(
        validation=images * allowed.image_seconds,
        scoring=scored / images if images else 0.0,
        ending=allowed.report_seconds + (0.0 if images else scored * allowed.image_seconds),
        fixed=ENDING_SECONDS,
    )
    pacer = Pacer(run.clock, reserve=reserve, slowness=machine_slowness)
    completing = limited(data, "train", allowed.completing, seed=seed) if completes else data.splits["train"]
    return Scoring(validating, live, completing, pacer, allowed.scored, allowed.ending, allowed.remembered)


def _tried_on(run: Run, validation: int) -> int:
    """Return how many validation images are looked at once more when a run has trained; see `adjust` and `fitted_task`."""
    if isinstance(run.task, Panoptic):
        return min(validation, FITTED_ON)
    return validation if adjusts(run) else 0


def adjusts(run: Run) -> bool:
    """Tell whether a run tries on its validation images, once it has trained, if adjusted logits pay (see `adjust`)."""
    return run.objective.posthoc_adjustment == "auto" and ClassSizes(run.data.class_images()).unequal


def limited(data: DataSet, split: str, most: int, *, seed: int) -> Source:
    """Return a split, or so many of its images as are allowed, drawn by the seed; of an endless source the first.

    Of photos of regions at least one has something marked, if any of the split has.
    """
    source = data.splits[split]
    if len(source) <= most:
        return source
    if source.endless:
        return Subset(source, range(most))
    drawn = generator(seed, f"{split} images within the time").choice(len(source), size=most, replace=False)
    indices = sorted(drawn.tolist())
    return chosen_marked(source, indices) if data.task.dense else Subset(source, indices)


def to_score(run: Run, scoring: Scoring) -> Run:
    """Return a run with as many images to score as there is time for; if those are training images, once it has learned."""
    if scoring.scored is None:
        return run
    split = run.data.scored_split()
    fewer = limited(scoring.whole or run.data, split, scoring.scored, seed=run.recipe.seed)
    data = replace(run.data, splits={**run.splits, split: fewer})
    return replace(run, data=data)


def with_time_left(run: Run, scoring: Scoring) -> Scoring:
    """Return what a run scores once it has trained: more images than planned, where training left time for them."""
    if scoring.scored is None or not run.plan.image_seconds:
        return scoring
    more = math.floor(SPARE_SHARE * max(run.clock.left() - scoring.ending, 0.0) / run.plan.image_seconds)
    return replace(scoring, scored=scoring.scored + distributed.broadcast(more))


def _cut(run: Run, allowed: Allowance, there: Allowance) -> str:
    scored = f"at least {allowed.scored:,} of {there.scored:,} {images_of(run.data.scored_split())}"
    validated = f"{allowed.validation:,} of {there.validation:,} photos validate, and " if there.validation else ""
    return f"To keep {argument('time')}, {validated}{scored} are scored; {function('evaluate')} scores all."


def is_too_short(run: Run, scoring: Scoring) -> bool:
    """Tell whether there is no time left for even one update; in every process of a job the same."""
    return run.clock.is_over(scoring.ending + STEP_DOUBT * run.plan.step_seconds)


def refuse(run: Run, scoring: Scoring, *, runs: int = 1, beside: float = 0.0) -> NoReturn:
    """Refuse the command's budget, as too short.

    Args:
        run: The run.
        scoring: What it scores.
        runs: Runs like this one that the command makes; of several, this one has only been looked at.
        beside: Seconds that each of them takes beside training and scoring.

    Raises:
        TrainingError: Always; it says which budget would do.
    """
    given = run.clock.seconds if runs == 1 else run.command.budget_seconds
    assert given is not None, "there is no budget that could be too short"
    step = 0.0 if run.request.quick else run.plan.step_seconds
    raise TrainingError(too_short(given, run.clock.spent(), scoring.ending + beside, step, runs=runs))


def worthwhile_seconds(run: Run, scoring: Scoring) -> float:
    """Return the budget in seconds that would have room for some training, if all that was done were done again."""
    more = scoring.ending + (1 + WORTHWHILE_STEPS) * run.plan.step_seconds
    return math.ceil(MARGIN * (run.clock.spent() + more))


def too_short(budget: float, spent: float, ending: float, step: float, *, runs: int = 1) -> str:
    """Return why a budget is refused, and which would do: what a reader gets who adds up the figures that it names.

    Args:
        budget: The budget that was given, in seconds.
        spent: Seconds before training could begin.
        ending: Seconds of scoring and report, in each run.
        step: Seconds of one update; 0 where nothing is to be trained.
        runs: Runs that the command makes, one after another.
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


def run_validation(run: Run, scoring: Scoring) -> Validate | None:
    """Return the function that scores the network on a run's validation images; None if there is nothing to score."""
    if not run.validate:
        return None
    # An untrained head is not scored.
    scored, live = scoring.validating if method_of(run.recipe).trains_head(run.recipe) else None, scoring.live
    if scored is None and live is None:
        return None

    def validate(model: Model, listener: Listener, stop: Callable[[], bool]) -> dict[str, float] | None:
        classifier, workers = run.classifier_of(model), scoring_workers(run)
        figures: dict[str, float] = {}
        try:
            if scored is not None:
                known = _validated(classifier, scored, workers, listener, stop)
                figures = {f"validation/{name}": value for name, value in known.items()}
            if live is not None and all(map(math.isfinite, figures.values())):
                figures |= live.figures(classifier, workers, listener, stop)
        except Stopped:
            return None
        return figures

    return validate


def _validated(
    classifier: Classifier, source: Source, workers: int, listener: Listener, stop: Callable[[], bool]
) -> dict[str, float]:
    """Return the figures of a classifier on validation images; NaN where the network gives no numbers."""
    task, most = classifier.task, VALIDATION_IMAGES
    if task.dense:
        return tally_source(classifier, source, limit=most, listener=listener, stop=stop).figures()
    probabilities, targets = predict_probabilities(
        classifier, source, limit=most, workers=workers, listener=listener, stop=stop
    )
    finite = bool(torch.isfinite(probabilities).all())
    return task.validate(probabilities, targets) if finite else {task.headline.name: math.nan}


def scoring_workers(run: Run) -> int:
    """Return the number of processes that read the images to score."""
    return 0 if len(run.splits["train"]) < FEW_IMAGES else run.recipe.workers


def run_baselines(run: Run, fitted: Fitted | None) -> Baselines | None:
    """Return the scores of simple classifiers; None if they are off, do not fit the data or take too long.

    Args:
        run: The run.
        fitted: The training images' features, if they are known already.
    """
    task, listener = run.data.task, run.listener
    # Neighbours' votes and the closed form need a single label.
    if not run.request.baselines or not task.exclusive or run.data.scored_split() == "train":
        return None
    path = run.folder / BASELINES_FILE
    if run.request.resume and (stored := distributed.broadcast(read_kept(Baselines, path))) is not None:
        return stored
    budget = run.clock.seconds
    seconds = max(BASELINES_SHARE * run.cost.seconds, SIMPLE_SECONDS) if budget is None else BASELINES_SHARE * budget
    baselines = score_baselines(
        run.classifier,
        run.data,
        network=run.plan.origin == "weights",
        context=partial(autocast, training_device(), run.recipe.precision),
        seconds=seconds,
        fitted=fitted,
        listener=listener,
    )
    if baselines is None:
        listener(
            Message(
                f"No baselines: simple classifiers would take longer than {seconds:.1f} s, "
                f"{BASELINES_SHARE:.0%} of the run's time.",
                detail=True,
            )
        )
        return None
    if torchrun.is_main():
        write_file(path, json.dumps(dataclasses.asdict(baselines)))
    listener(Message(baselines.sentence(), detail=True))
    return baselines
