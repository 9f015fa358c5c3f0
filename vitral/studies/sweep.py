"""A sweep over learning rates: a run for each, and one with the best on all images but the test's (paper Table 4, B.1.1)."""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral import torchrun
from vitral.data.groups import split_groups
from vitral.data.source import DataSet
from vitral.data.subset import Joined, Subset, stratified
from vitral.errors import TrainingError, TrainingInterrupted
from vitral.events import Listener, Message, ignore
from vitral.studies.design import OWN_SEED, Arm, Cell, Design
from vitral.studies.run_study import reopen, run_study
from vitral.tasks.shown import photos_of
from vitral.tasks.task import Figure
from vitral.training.candidates.result import RunResult
from vitral.training.choose.draft import SWEPT
from vitral.training.loop import advice_to_resume
from vitral.training.records.run_folder import SWEEP
from vitral.training.run import carry_out
from vitral.training.scoring.validation import is_too_short, refuse, within_time
from vitral.training.session import Session
from vitral.training.settings.recipe import Recipe
from vitral.training.starting.opening import part_of
from vitral.training.starting.prepare import prepare

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
    assert session.draft is not None, "a sweep plans each of its runs"
    rates = tuple({f"{rate:g}": rate for rate in sweep_rates(session.draft.recipe)}.values())
    parts = len(rates) + 1
    choosing, judges = to_choose_by(session.data)
    share = None if session.clock.seconds is None else session.clock.left() / parts
    trials = _Trials(session, choosing, rates, share)
    if share is not None and not session.request.resume:
        trials.check_time()
    folder = session.folder / SWEEP
    if torchrun.is_main() and (session.more_time or session.request.data_changed):
        reopen(folder)  # every trial continues: with more time, or noting that its data changed
    headline = choosing.task.headline
    arms = tuple(Arm(f"lr-{rate:g}", _Trial(trials, rate), OWN_SEED) for rate in rates)
    try:
        study = run_study(
            Design(f"Learning rates on {choosing.name}", headline, arms), folder, listener=session.listener
        )
    except TrainingInterrupted as stop:
        raise TrainingInterrupted(
            stop.done, advice=advice_to_resume(session.folder), exit_code=stop.exit_code
        ) from stop
    figures = {rate: arm.mean(headline.name) for rate, arm in zip(rates, study.arms, strict=True) if arm.runs}
    best = best_rate(figures, headline)
    tried = ", ".join(f"{rate:g} {headline.text(value)}" for rate, value in figures.items())
    session.listener(
        Message(f"Sweep {parts}/{parts}: of the learning rates tried ({tried}, by {judges}), {best:g} is best.")
    )
    last = trials.part(best, session.folder, to_train_on(session.data), baselines=False)
    begun = None if last.plan is None else last.plan.recipe.optimizer
    if begun is not None and f"{begun.lr:g}" != f"{best:g}":
        raise TrainingError(
            f"The run in '{session.folder}' began with the learning rate {begun.lr:g}, and now {best:g} "
            "is best; begin a new sweep in another folder."
        )
    return carry_out(replace(last, validate="test" in session.data.splits))


@dataclass(frozen=True)
class _Trials:
    """What a sweep's runs have in common: `data` to choose by, and the seconds of each as `share`, None for no limit."""

    session: Session
    data: DataSet
    rates: tuple[float, ...]
    share: float | None

    def part(self, rate: float, folder: Path, data: DataSet, *, baselines: bool) -> Session:
        """Return the session of a run: a rate, a share of the time, and what the folder holds of it."""
        command = self.session.command
        request = replace(
            command,
            sweep=False,
            recipe=command.recipe or SWEPT,
            overrides=(*command.overrides, f"optimizer.lr={rate}"),
            time=self.share,
            baselines=baselines,
        )
        return part_of(self.session, request, folder, data)

    def trial(self, rate: float, folder: Path) -> Session:
        """Return the session of a run that tries a rate."""
        command = self.session.command
        return self.part(rate, folder, self.data, baselines=command.baselines and rate == self.rates[0])

    def estimated(self) -> Session:
        """Return the session of a trial in a folder that is never made."""
        return self.trial(self.rates[0], self.session.folder / SWEEP / ESTIMATE)

    def check_time(self) -> None:
        """Refuse a budget that has no room for an update of every trial, before the first begins.

        Raises:
            TrainingError: The budget is too short; the message proposes one for the whole command.
        """
        run, scoring = within_time(prepare(replace(self.estimated(), listener=ignore)))
        if is_too_short(run, scoring):
            looking = run.clock.spent()  # which each of them does anew
            whole = replace(run, clock=self.session.clock)
            refuse(whole, scoring, runs=len(self.rates) + 1, beside=looking)

    @functools.cached_property
    def seconds(self) -> float:
        """The expected seconds of a trial, whatever its rate."""
        return prepare(self.estimated()).cost.seconds if self.share is None else self.share


@dataclass(frozen=True)
class _Trial:
    """One learning rate."""

    trials: _Trials
    rate: float

    def question(self) -> dict[str, Any]:
        """Return the rate and the data."""
        data = self.trials.data
        return {"rate": self.rate, "data": data.fingerprint}

    def seconds(self) -> float:
        """Return the expected seconds of the trial."""
        return self.trials.seconds

    def run(self, cell: Cell, listener: Listener) -> dict[str, float]:
        """Train with the rate, and return the scores on the images to choose by."""
        rates, data = self.trials.rates, self.trials.data
        headline = data.task.headline
        listener(Message(f"Sweep {rates.index(self.rate) + 1}/{len(rates) + 1}: learning rate {self.rate:g}."))
        evaluation = carry_out(self.trials.trial(self.rate, cell.folder)).evaluation
        return {**evaluation.scores(), headline.name: evaluation.headline()}


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
        return replace(data, splits=splits), f"the {photos_of('validation', len(splits['validation']))}"
    train = data.splits["train"]
    share = held_out_share(len(train))
    labels, together = train.labels(), data.together.get("train")
    if together is None:
        rest, held = stratified(labels, [share], seed=SPLIT_SEED, purpose="sweep")
    else:
        classes, groups = [[label] for label in labels.tolist()], together.tolist()
        rest, held = split_groups(classes, groups, [share], seed=SPLIT_SEED, purpose="sweep")
    splits = {"train": Subset(train, rest), "validation": Subset(train, held)}
    return replace(data, splits=splits), f"{photos_of('train', len(held))} ({share:.0%}) held out"


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
