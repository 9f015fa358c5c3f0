"""From an experiment to a study's design: every trial's recipe, facts, length and expected time."""

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import torch

from vitral.data.part import cut
from vitral.data.source import DataSet
from vitral.errors import StudyError
from vitral.events import Listener, Message, ignore
from vitral.models.cost import count_parameters
from vitral.models.families import build
from vitral.studies.design import Arm, Design
from vitral.studies.paper.experiment import Experiment, Facts, Trial
from vitral.studies.paper.scale import Scale
from vitral.studies.paper.work import TRANSFER, TrialWork
from vitral.studies.trainings import NOWHERE
from vitral.training.optimization.precision import training_device
from vitral.training.planning.durations import rounded
from vitral.training.planning.estimate import scoring_rate
from vitral.training.planning.network import network_config
from vitral.training.planning.operations import operations_of
from vitral.training.planning.prepare import prepare
from vitral.training.planning.request import Asked
from vitral.training.planning.speed import training_speed
from vitral.training.records.start import looked_at
from vitral.training.settings.recipe import Recipe, load_recipe

NETWORK = (
    "model",
    "depth",
    "width",
    "mlp_width",
    "heads",
)  # of a recipe's keys, what fine-tuning takes from pre-training
TIMED_STEPS = 100  # of a run whose speed is measured; the number changes nothing
WARMUP = 0.1  # of the steps, where the scale leaves their number to the machine
FEWEST_STEPS = 40  # below which a run would be warm-up and little else
BESIDE = 6.0  # seconds of a run that are neither reading, training nor scoring, on a slow machine
HEADROOM = 0.9  # of the time, since a machine is not always as fast as when it was measured


@dataclass(frozen=True)
class Setting:
    """What a study is asked.

    Attributes:
        experiment: the question.
        scale: how large.
        spec: the data, as they were named.
        data: the same, open.
        transfer: other data on which the features are scored; None for none.
        seeds: of every trial.
        lengths: factors of some trials' lengths, by name, so that they take equally long here.
    """

    experiment: Experiment
    scale: Scale
    spec: str
    data: DataSet
    transfer: str | None
    seeds: tuple[int, ...]
    lengths: Mapping[str, float] = field(default_factory=dict)

    def trials(self) -> Sequence[Trial]:
        """Return the arms."""
        trials = self.experiment.trials(self.scale)
        return tuple(replace(trial, length=trial.length * self.lengths.get(trial.name, 1.0)) for trial in trials)

    def named(self, name: str) -> Trial:
        """Return a trial by its name."""
        return next(trial for trial in self.trials() if trial.name == name)

    @functools.cached_property
    def train_images(self) -> dict[str, int]:
        """How many images each share that a trial learns from has.

        Raises:
            DataError: the data have no share: they are endless, or a share themselves.
        """
        shares = {trial.share for trial in self.trials()}
        return {
            share: len((self.data if share == "1" else cut(self.data, Fraction(share))).splits["train"])
            for share in shares
        }

    def recipe(self, trial: Trial) -> Recipe:
        """Return the recipe that a trial begins with."""
        recipe = load_recipe(self.scale.tuning if trial.tuned else self.scale.recipe)
        return recipe.changed([*self.network(trial), *trial.changes])

    def network(self, trial: Trial) -> tuple[str, ...]:
        """Return the changes to the recipe that name the network that a trial goes on with; none where it names one itself."""
        if not trial.after:
            return ()
        return tuple(change for change in self.named(trial.after).changes if change.split("=")[0] in NETWORK)

    def steps(self, trial: Trial, steps: int | None) -> int:
        """Return how many steps a trial makes, of so many that a whole one makes; None where its recipe says that."""
        whole = self.recipe(trial).steps if steps is None else steps
        assert whole is not None, "the recipes of studies say their steps"
        return max(1, round(whole * trial.length))

    def asked(self, trial: Trial, steps: int | None) -> Asked:
        """Return what is asked of a trial's runs."""
        number = self.steps(trial, steps)
        length = [f"steps={number}"] if steps is not None or trial.length != 1.0 else []
        if length:  # the warm-up keeps its share of the run
            warmup = number * WARMUP if steps is not None else self.recipe(trial).schedule.warmup_steps * trial.length
            length.append(f"schedule.warmup_steps={math.ceil(warmup)}")
        network = self.network(trial)
        model = next((change.removeprefix("model=") for change in network if change.startswith("model=")), None)
        return Asked(
            trial.kind,
            trial.data or (self.spec if trial.share == "1" else f"part:{trial.share}:{self.spec}"),
            source=model,
            recipe=self.scale.tuning if trial.tuned else self.scale.recipe,
            overrides=(*trial.changes, *length),
            baselines=False,
        )

    def facts(self, trial: Trial, steps: int | None) -> Facts:
        """Return what is known of a trial before it runs."""
        recipe = self.recipe(trial).changed([f"steps={self.steps(trial, steps)}"])
        config = network_config(recipe, len(self.data.class_names))
        train_images = self.train_images[trial.share]
        operations = operations_of(config, recipe, train_images)
        with torch.device("meta"):
            parameters = count_parameters(build(config, seed=None))
        grid = config.patch_grid
        tokens = 0 if grid is None else math.prod(grid.sides) + grid.prefix
        before = self.facts(self.named(trial.after), steps).flops if trial.after else 0.0
        return Facts(parameters, tokens, train_images, operations, before)

    def design(self, steps: int | None, seconds: Mapping[str, float]) -> Design:
        """Return the study.

        Args:
            steps: of a whole trial; None where the recipes say.
            seconds: that a run of each trial is expected to take, by its name.
        """
        headline = TRANSFER if self.transfer else self.data.task.headline
        arms = (
            Arm(
                trial.name,
                TrialWork(self.asked(trial, steps), seconds[trial.name], self.transfer, bool(trial.series)),
                self.seeds,
                trial.after,
                trial.label,
            )
            for trial in self.trials()
        )
        return Design(f"{self.experiment.title} ({self.data.name})", headline, tuple(arms))


@dataclass(frozen=True)
class _Speed:
    """How fast a trial runs on this machine.

    Attributes:
        step: seconds of one.
        beside: seconds of a run besides its steps.
    """

    step: float
    beside: float

    def seconds(self, steps: int) -> float:
        return steps * self.step + self.beside


@dataclass(frozen=True)
class Pace:
    """How long a study's trials are.

    Attributes:
        steps: of a whole trial.
        lengths: factors of some trials' lengths, by name.
        seconds: that a run of each trial then takes.
    """

    steps: int
    lengths: dict[str, float]
    seconds: dict[str, float]


def paced(setting: Setting, budget_seconds: float, listener: Listener) -> Pace:
    """Return the length that a budget pays for.

    Every network is timed on this machine.

    Raises:
        StudyError: the budget does not pay for runs of any use.
    """
    speeds = _speeds(setting, listener)
    timed = [trial.name for trial in setting.trials() if trial.timed]
    lengths = {name: speeds[timed[0]].step / speeds[name].step for name in timed}
    setting = replace(setting, lengths=lengths)
    trials, runs = setting.trials(), len(setting.seeds)
    beside = runs * sum(speeds[trial.name].beside for trial in trials)
    a_step = runs * sum(speeds[trial.name].step * trial.length for trial in trials)
    steps = _two_digits((budget_seconds * HEADROOM - beside) / a_step)
    if steps < FEWEST_STEPS:
        least = rounded((beside + FEWEST_STEPS * a_step) / HEADROOM)
        raise StudyError(
            f"{rounded(budget_seconds)} is too short for {len(trials)} arms of {runs} runs each on this machine; "
            f"{least} would do for runs of {FEWEST_STEPS} steps."
        )
    seconds = {trial.name: speeds[trial.name].seconds(setting.steps(trial, steps)) for trial in trials}
    return Pace(steps, lengths, seconds)


def _speeds(setting: Setting, listener: Listener) -> dict[str, _Speed]:
    """Return how fast each trial runs; those that differ in rate, length or share alone are timed once."""
    listener(Message("Timing the networks on this machine..."))
    timed: dict[tuple[object, ...], _Speed] = {}
    speeds = {}
    for trial in setting.trials():
        changes = tuple(change for change in trial.changes if not change.startswith("optimizer.lr="))
        alike = (changes, trial.kind, trial.tuned, trial.after, trial.data)
        if alike not in timed:
            timed[alike] = _timed(setting, trial)
        speeds[trial.name] = timed[alike]
    return speeds


def _timed(setting: Setting, trial: Trial) -> _Speed:
    began = time.monotonic()
    alone = replace(trial, length=1.0, after="", changes=(*setting.network(trial), *trial.changes))
    asked = setting.asked(alone, TIMED_STEPS)
    session = looked_at(asked, NOWHERE, resume=False, started=None, verify=False, listener=ignore)
    reading = time.monotonic() - began
    run = prepare(replace(session, exactly=True))
    scored = sum(len(session.data.splits.get(split) or ()) for split in ("validation", "test"))
    scoring = scored / scoring_rate(run.classifier)
    return _Speed(run.cost.seconds / TIMED_STEPS, reading + scoring + BESIDE)


def by_operations(setting: Setting) -> dict[str, float]:
    """Return the seconds that a run of each trial would take on this machine, by its operations and a measured convolution."""
    speed = training_speed(training_device())
    done = {trial.name: setting.facts(trial, None).operations for trial in setting.trials()}
    return {name: operations.macs * operations.images / speed for name, operations in done.items()}


def _two_digits(value: float) -> int:
    """Return the largest number below a value that has two digits that are not zero."""
    if value < 1:
        return 0
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return int(value // unit * unit)
