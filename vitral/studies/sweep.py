"""A sweep over learning rates: a run for each, and one with the best on all images but the test's (paper Table 4, B.1.1)."""

import functools
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import ParamSpec

from vitral.data.source import DataSet
from vitral.data.splits import stratified
from vitral.data.subset import Joined, Subset
from vitral.events import Message
from vitral.tasks.task import Figure
from vitral.training.finetune import finetune as finetune_once
from vitral.training.planning.plan import Session
from vitral.training.planning.request import PAPERS, read_request
from vitral.training.records.resume import kept_recipe, kept_start
from vitral.training.records.run_folder import SWEEP
from vitral.training.result import RunResult
from vitral.training.run import run_once
from vitral.training.settings.recipe import Recipe

P = ParamSpec("P")

# Training images below which so large a share is held out to choose by: the paper's 10 % of Pets and Flowers, 2 % of CIFAR.
HELD_OUT = ((10_000, 0.10), (200_000, 0.02))
HELD_OUT_OF_MORE = 0.01  # of ImageNet
SPLIT_SEED = 0  # every rate is judged by the same images

FACTORS = (1 / 3, 1.0, 3.0, 10.0)  # of the recipe's own rate, where it names none to sweep: the paper's distances


def sweep(session: Session) -> RunResult:
    """Try each learning rate on held-out images, and train with the best on all that is not for the score."""
    choosing, judges = to_choose_by(session.data)
    rates = sweep_rates(session.request.recipe)
    parts = len(rates) + 1
    share = None if session.budget_seconds is None else session.left() / parts
    figures: dict[float, float] = {}
    for number, rate in enumerate(rates, 1):
        session.listener(Message(f"Sweep {number}/{parts}: learning rate {rate:g}."))
        trial = replace(session, folder=session.folder / SWEEP / f"lr-{rate:g}", data=choosing)
        baselines = session.command.baselines and number == 1
        figures[rate] = run_once(_with_rate(trial, rate, share, baselines=baselines)).evaluation.headline()
    headline = session.data.task.headline
    best = best_rate(figures, headline)
    tried = ", ".join(f"{rate:g} {headline.text(value)}" for rate, value in figures.items())
    session.listener(
        Message(f"Sweep {parts}/{parts}: of the learning rates tried ({tried}, by {judges}), {best:g} is best.")
    )
    last = replace(session, data=to_train_on(session.data), validate="test" in session.data.splits)
    return run_once(_with_rate(last, best, share, baselines=False))


def _with_rate(session: Session, rate: float, share: float | None, *, baselines: bool) -> Session:
    """Return the session of one of a sweep's runs: a learning rate, a share of the time, and what the folder holds of it."""
    resume = kept_recipe(session.folder) is not None
    asked = replace(
        session.command,
        sweep=False,
        recipe=session.command.recipe or PAPERS,
        overrides=(*session.command.overrides, f"optimizer.lr={rate}"),
        budget_seconds=share,
        baselines=baselines,
    )
    request = read_request(asked, kept_start=kept_start(session.folder) if resume else None)
    return replace(session, request=request, resume=resume, started=monotonic())


def _sweeping(train: Callable[P, RunResult]) -> Callable[P, RunResult]:
    """Return the function with the sweep of this file where its caller names none."""

    @functools.wraps(train)
    def finetune(*args: P.args, **kwargs: P.kwargs) -> RunResult:
        kwargs.setdefault("sweeping", sweep)
        return train(*args, **kwargs)

    return finetune


finetune = _sweeping(finetune_once)  # training stands below the studies and cannot know this one


def sweep_rates(recipe: Recipe) -> tuple[float, ...]:
    """Return the rates to try with a recipe, ascending."""
    named = recipe.optimizer.sweep
    return named or tuple(float(f"{recipe.optimizer.lr * factor:.2g}") for factor in FACTORS)


def to_choose_by(data: DataSet) -> tuple[DataSet, str]:
    """Return the data that rates are tried on, its validation split the images that decide; and that in one line.

    What the result is to be scored on is not in it: the test split; or, without one, the validation split, in whose place
    training images are held out.
    """
    if "test" in data.splits and "validation" in data.splits:
        splits = {name: data.splits[name] for name in ("train", "validation")}
        return replace(data, splits=splits), f"the {len(splits['validation'])} validation images"
    train = data.splits["train"]
    share = held_out_share(len(train))
    rest, held = stratified(train.labels(), [share], seed=SPLIT_SEED, purpose="sweep")
    splits = {"train": Subset(train, rest), "validation": Subset(train, held)}
    return replace(data, splits=splits), f"{len(held)} training images ({share:.0%}) held out"


def held_out_share(images: int) -> float:
    """Return the share of so many training images that is held out."""
    return next((share for below, share in HELD_OUT if images < below), HELD_OUT_OF_MORE)


def to_train_on(data: DataSet) -> DataSet:
    """Return the data for the rate that was chosen: all but what the result is scored on is there to learn from."""
    if "test" not in data.splits or "validation" not in data.splits:
        return data
    train = Joined([data.splits["train"], data.splits["validation"]])
    return replace(data, splits={"train": train, "test": data.splits["test"]})


def best_rate(figures: dict[float, float], headline: Figure) -> float:
    """Return the rate with the best validation figure, the smallest among equals."""
    return max(sorted(figures), key=lambda rate: figures[rate] if headline.more_is_better else -figures[rate])
