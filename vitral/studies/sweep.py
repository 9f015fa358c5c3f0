"""A sweep over learning rates: a run for each, and one with the best on all images but the test's (paper Table 4, B.1.1)."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, ParamSpec

from vitral import torchrun
from vitral.advice import argument
from vitral.data.source import DataSet
from vitral.data.splits import stratified
from vitral.data.subset import Joined, Subset
from vitral.errors import TrainingInterrupted
from vitral.events import Listener, Message, ignore
from vitral.studies.design import OWN_SEED, Arm, Cell, Design
from vitral.studies.run_study import reopen, run_study
from vitral.tasks.task import Figure
from vitral.training.finetune import finetune as finetune_once
from vitral.training.planning.plan import Session
from vitral.training.planning.prepare import prepare
from vitral.training.planning.rehearsal import within_time
from vitral.training.planning.request import PAPERS, read_request
from vitral.training.records.attempts import kept_recipe
from vitral.training.records.resume import kept_start
from vitral.training.records.run_folder import SWEEP
from vitral.training.result import RunResult
from vitral.training.run import run_once
from vitral.training.settings.recipe import Recipe

P = ParamSpec("P")

ESTIMATE = "estimate"  # a folder that is named and never made

# Numbers of training images, and the share held out below them: the paper's 10 % of Pets and Flowers, 2 % of CIFAR.
HELD_OUT = ((10_000, 0.10), (200_000, 0.02))
HELD_OUT_OF_MORE = 0.01  # of ImageNet
SPLIT_SEED = 0  # every rate is judged by the same images

FACTORS = (1 / 3, 1.0, 3.0, 10.0)  # of the recipe's own rate, if it names none to sweep: the paper's distances


def sweep(session: Session) -> RunResult:
    """Try each learning rate on held-out images, and train with the best on all images that do not score it.

    The trials are a study below the run's folder: finished ones are not repeated when the sweep continues.
    """
    rates = tuple({f"{rate:g}": rate for rate in sweep_rates(session.request.recipe)}.values())
    choosing, judges = to_choose_by(session.data)
    share = None if session.budget_seconds is None else session.left() / (len(rates) + 1)
    trials = _Trials(replace(session, data=choosing), rates, share)
    if share is not None and not session.resume:
        trials.check_time()
    folder = session.folder / SWEEP
    if torchrun.is_main() and (session.further or session.data_changed):
        reopen(folder)  # every trial goes on: with more time, or noting that its data changed
    headline = session.data.task.headline
    try:
        study = run_study(trials.design(), folder, listener=session.listener)
    except TrainingInterrupted as stop:
        advice = f"go on with {argument('resume', True)} {argument('out', str(session.folder))}"
        raise TrainingInterrupted(stop.done, advice=advice, exit_code=stop.exit_code) from stop
    figures = {rate: arm.mean(headline.name) for rate, arm in zip(rates, study.arms, strict=True) if arm.runs}
    best = best_rate(figures, headline)
    tried = ", ".join(f"{rate:g} {headline.text(value)}" for rate, value in figures.items())
    parts = len(rates) + 1
    session.listener(
        Message(f"Sweep {parts}/{parts}: of the learning rates tried ({tried}, by {judges}), {best:g} is best.")
    )
    last = replace(session, data=to_train_on(session.data), validate="test" in session.data.splits)
    return run_once(_with_rate(last, best, share, baselines=False))


@dataclass(frozen=True)
class _Trials:
    """The runs of a sweep that try a rate.

    Attributes:
        session: The command, with the data to choose by.
        rates: The learning rates to try.
        share: The seconds of each; None for no limit.
    """

    session: Session
    rates: tuple[float, ...]
    share: float | None

    def design(self) -> Design:
        """Return the study of the trials."""
        arms = (Arm(f"lr-{rate:g}", _Trial(self, rate), OWN_SEED) for rate in self.rates)
        data = self.session.data
        return Design(f"Learning rates on {data.name}", data.task.headline, tuple(arms))

    def of(self, rate: float, folder: Path) -> Session:
        """Return the session of one trial."""
        baselines = self.session.command.baselines and rate == self.rates[0]
        return _with_rate(replace(self.session, folder=folder), rate, self.share, baselines=baselines)

    def check_time(self) -> None:
        """Refuse a budget that has no room for an update of every trial, before the first begins.

        Raises:
            TrainingError: The budget is too short; the message proposes one for the whole command.
        """
        trial = self.of(self.rates[0], self.session.folder / SWEEP / ESTIMATE)
        rehearsed = within_time(prepare(trial), ignore)
        if rehearsed.too_short():
            looking = monotonic() - trial.started  # which each of them does anew
            session = replace(trial, started=self.session.started)
            run = replace(rehearsed.run, session=session)
            whole = replace(rehearsed, run=run, ending=rehearsed.ending + looking)
            whole.refuse(runs=len(self.rates) + 1)

    @functools.cached_property
    def seconds(self) -> float:
        """The expected seconds of a trial, whatever its rate."""
        if self.share is not None:
            return self.share
        return prepare(self.of(self.rates[0], self.session.folder / SWEEP / ESTIMATE)).cost.seconds


@dataclass(frozen=True)
class _Trial:
    """One learning rate."""

    trials: _Trials
    rate: float

    def question(self) -> dict[str, Any]:
        """Return the rate and the data."""
        return {"rate": self.rate, "data": self.trials.session.data.fingerprint}

    def seconds(self) -> float:
        """Return the expected seconds of the trial."""
        return self.trials.seconds

    def run(self, cell: Cell, listener: Listener) -> dict[str, float]:
        """Train with the rate, and return the scores on the images to choose by."""
        rates = self.trials.rates
        listener(Message(f"Sweep {rates.index(self.rate) + 1}/{len(rates) + 1}: learning rate {self.rate:g}."))
        evaluation = run_once(self.trials.of(self.rate, cell.folder)).evaluation
        return {**evaluation.scores(), self.trials.session.data.task.headline.name: evaluation.headline()}


def _with_rate(session: Session, rate: float, share: float | None, *, baselines: bool) -> Session:
    """Return the session of one of a sweep's runs, with its learning rate and its share of the time."""
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
    """Return the function with the sweep of this file as a default."""

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
    """Return the data on which rates are tried, and in words the images of its validation split, which decide.

    The images that score the result are not among them: the test split, or without one the validation split, which held-out
    training images replace.
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
    """Return the data for the chosen rate: everything that does not score the result is for training."""
    if "test" not in data.splits or "validation" not in data.splits:
        return data
    train = Joined([data.splits["train"], data.splits["validation"]])
    return replace(data, splits={"train": train, "test": data.splits["test"]})


def best_rate(figures: dict[float, float], headline: Figure) -> float:
    """Return the rate with the best validation figure, the smallest among equals."""
    return max(sorted(figures), key=lambda rate: figures[rate] if headline.more_is_better else -figures[rate])
