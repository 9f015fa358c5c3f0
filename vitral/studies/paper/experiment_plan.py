"""From an experiment to a study's design: every trial's recipe, facts, length and expected time."""

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch

from vitral.classifier.classifier import Classifier
from vitral.data.part import cut
from vitral.data.source import DataSet
from vitral.described import LATER
from vitral.errors import StudyError
from vitral.events import Listener, Message
from vitral.models.families import parameters_of
from vitral.studies.design import Arm, Design
from vitral.studies.paper.experiment import Experiment, Trial, TrialFacts
from vitral.studies.paper.operations import operations_of
from vitral.studies.paper.scale import Scale
from vitral.studies.paper.work import TRANSFER, TrialWork
from vitral.studies.trainings import looked
from vitral.training.facts import timed, training_speed
from vitral.training.optimization.optimizers import training_device
from vitral.training.request import Request
from vitral.training.settings.durations import rounded
from vitral.training.settings.recipe import Recipe, load_recipe, network_config
from vitral.training.starting.prepare import prepare

NETWORK = ("model", "depth", "width", "mlp_width", "heads")  # keys of a recipe that fine-tuning takes from pre-training
SCORED_IMAGES = 32  # of a timed pass that scores
SCORED_PASSES = 3  # of which the fastest counts
TIMED_STEPS = 100  # of the run that is timed; the number changes nothing
WARMUP = 0.1  # of the steps, if the scale leaves their number to the machine
FEWEST_STEPS = 40  # below which a run would be warm-up and little else
BESIDE = 6.0  # seconds of a run that are neither reading, training nor scoring, on a slow machine
HEADROOM = 0.9  # of the time, since a machine is not always as fast as when it was measured


@dataclass(frozen=True)
class StudyRecord:
    """What a study's folder keeps of how the study began.

    Attributes:
        asked: The study, its budget and its data.
        steps: The number of steps of a whole trial; None if the recipes state it.
        seconds: The expected seconds of a run of each trial, by its name.
        time: The seconds that the user gave for the whole study; None if not given.
        lengths: Factors of some trials' lengths, by name, which make them take equally long on this machine.
    """

    asked: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    time: float | None = field(default=None, metadata=LATER)
    lengths: dict[str, float] = field(default_factory=dict, metadata=LATER)


@dataclass(frozen=True)
class ExperimentPlan:
    """An experiment at a scale, on given data by their name, path or address and opened, with the seeds of every trial.

    The features are scored on other data, `transfer`, unless it is None. The record has the lengths of the trials.
    `skip_bad_images` is that of `open_data`.
    """

    experiment: Experiment
    scale: Scale
    spec: str
    data: DataSet
    transfer: str | None
    seeds: tuple[int, ...]
    record: StudyRecord = StudyRecord()
    skip_bad_images: bool | None = None

    def trials(self) -> Sequence[Trial]:
        """Return the arms."""
        factors = self.record.lengths
        trials = self.experiment.trials(self.scale)
        return tuple(replace(trial, length=trial.length * factors.get(trial.name, 1.0)) for trial in trials)

    def named(self, name: str) -> Trial:
        """Return a trial by its name."""
        return next(trial for trial in self.trials() if trial.name == name)

    @functools.cached_property
    def train_images(self) -> dict[str, int]:
        """The number of images of each share that a trial learns from.

        Raises:
            DataError: The data have no share: they are endless, or a share themselves.
        """
        shares = {trial.share for trial in self.trials()}
        return {
            share: len((self.data if share == "1" else cut(self.data, Fraction(share))).splits["train"])
            for share in shares
        }

    def recipe(self, trial: Trial) -> Recipe:
        """Return the recipe that a trial begins with."""
        return load_recipe(self._recipe_name(trial)).changed([*self.network(trial), *trial.changes])

    def _recipe_name(self, trial: Trial) -> str:
        return self.scale.tuning if trial.tuned else self.scale.recipe

    def network(self, trial: Trial) -> tuple[str, ...]:
        """Return the changes to the recipe that name the network a trial takes over; empty if it names its own."""
        if not trial.after:
            return ()
        return tuple(change for change in self.named(trial.after).changes if change.split("=")[0] in NETWORK)

    def steps(self, trial: Trial) -> int:
        """Return the number of steps of a trial."""
        whole = self.recipe(trial).steps if self.record.steps is None else self.record.steps
        assert whole is not None, "the recipes of studies state their steps"
        return max(1, round(whole * trial.length))

    def request(self, trial: Trial) -> Request:
        """Return the request of a trial's runs."""
        number, given = self.steps(trial), self.record.steps is not None
        length = []
        if given or trial.length != 1.0:  # the warm-up keeps its share of the run
            warmup = number * WARMUP if given else self.recipe(trial).schedule.warmup_steps * trial.length
            length = [f"steps={number}", f"schedule.warmup_steps={math.ceil(warmup)}"]
        models = (change for change in self.network(trial) if change.startswith("model="))
        return Request(
            trial.kind,
            trial.data or (self.spec if trial.share == "1" else f"part:{trial.share}:{self.spec}"),
            source=next((change.removeprefix("model=") for change in models), None),
            recipe=self._recipe_name(trial),
            overrides=(*trial.changes, *length),
            skip_bad_images=self.skip_bad_images,
            baselines=False,
        )

    def facts(self, trial: Trial) -> TrialFacts:
        """Return what is known of a trial before it runs."""
        recipe = self.recipe(trial).changed([f"steps={self.steps(trial)}"])
        config = network_config(recipe, len(self.data.class_names))
        train_images = self.train_images[trial.share]
        operations = operations_of(config, recipe, train_images)
        grid = config.patch_grid
        tokens = 0 if grid is None else math.prod(grid.sides) + grid.prefix
        before = self.facts(self.named(trial.after)).flops if trial.after else 0.0
        return TrialFacts(parameters_of(config), tokens, train_images, operations, before)

    def design(self) -> Design:
        """Return the study."""
        data = self.data
        headline = TRANSFER if self.transfer else data.task.headline
        seconds, verify = self.record.seconds, bool(data.bad_images)
        arms = (
            Arm(
                trial.name,
                TrialWork(self.request(trial), seconds[trial.name], self.transfer, bool(trial.series), verify),
                self.seeds,
                trial.after,
                trial.label,
            )
            for trial in self.trials()
        )
        return Design(f"{self.experiment.title} ({data.name})", headline, tuple(arms))


@dataclass(frozen=True)
class TrialSpeed:
    """The seconds of a trial's step on this machine, and those of a run besides its steps."""

    step: float
    beside: float


def paced(plan: ExperimentPlan, budget_seconds: float, listener: Listener) -> ExperimentPlan:
    """Return a plan with the lengths that a budget pays for; every network is timed on this machine.

    Raises:
        StudyError: The budget is too short for runs of any use.
    """
    speeds = _speeds(plan, listener)
    timed = [trial.name for trial in plan.trials() if trial.timed]
    lengths = {name: speeds[timed[0]].step / speeds[name].step for name in timed}
    plan = replace(plan, record=replace(plan.record, lengths=lengths))
    trials, runs = plan.trials(), len(plan.seeds)
    beside = runs * sum(speeds[trial.name].beside for trial in trials)
    a_step = runs * sum(speeds[trial.name].step * trial.length for trial in trials)
    steps = _two_digits((budget_seconds * HEADROOM - beside) / a_step)
    if steps < FEWEST_STEPS:
        least = rounded((beside + FEWEST_STEPS * a_step) / HEADROOM)
        raise StudyError(
            f"{rounded(budget_seconds)} is too short for {len(trials)} arms of {runs} runs each on this machine; "
            f"{least} would do for runs of {FEWEST_STEPS} steps."
        )
    plan = replace(plan, record=replace(plan.record, steps=steps))
    seconds = {trial.name: plan.steps(trial) * speeds[trial.name].step + speeds[trial.name].beside for trial in trials}
    return replace(plan, record=replace(plan.record, seconds=seconds))


def _speeds(plan: ExperimentPlan, listener: Listener) -> dict[str, TrialSpeed]:
    """Return how fast each trial runs; those that differ in rate, length or share alone are timed once."""
    listener(Message("Timing the networks on this machine..."))
    timed: dict[tuple[object, ...], TrialSpeed] = {}
    speeds = {}
    for trial in plan.trials():
        changes = tuple(change for change in trial.changes if not change.startswith("optimizer.lr="))
        alike = (changes, trial.kind, trial.tuned, trial.after, trial.data)
        if alike not in timed:
            timed[alike] = _timed(plan, trial)
        speeds[trial.name] = timed[alike]
    return speeds


def _timed(plan: ExperimentPlan, trial: Trial) -> TrialSpeed:
    began = time.monotonic()
    alone = replace(trial, length=1.0, after="", changes=(*plan.network(trial), *trial.changes))
    timed = replace(plan, record=replace(plan.record, steps=TIMED_STEPS))
    session = looked(timed.request(alone), verify=bool(plan.data.bad_images))
    reading = time.monotonic() - began
    run = prepare(session)
    splits = session.data.splits
    scored = sum(len(splits.get(split) or ()) for split in ("validation", "test"))
    return TrialSpeed(run.cost.seconds / TIMED_STEPS, reading + scored / scoring_rate(run.classifier) + BESIDE)


def by_operations(plan: ExperimentPlan) -> dict[str, float]:
    """Return the seconds of a run of each trial on this machine, by its operations and a measured convolution."""
    speed = training_speed(training_device())
    done = {trial.name: plan.facts(trial).operations for trial in plan.trials()}
    return {name: operations.macs * operations.images / speed for name, operations in done.items()}


def _two_digits(value: float) -> int:
    """Return the largest number below a value that has two digits that are not zero."""
    if value < 1:
        return 0
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return int(value // unit * unit)


def scoring_rate(classifier: Classifier) -> float:
    """Return how many images a second the network's forward passes take in float32, images already in memory."""
    model = classifier.model
    device = next(model.parameters()).device
    images = torch.zeros(SCORED_IMAGES, 3, *model.image_size, device=device)

    def score() -> None:
        with torch.inference_mode():
            model(images)

    training = model.training
    model.eval()
    seconds = min(timed(score, device) for _ in range(SCORED_PASSES))
    model.train(training)
    return SCORED_IMAGES / seconds
