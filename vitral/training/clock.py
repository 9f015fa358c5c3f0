"""The time of a command: one clock, one table of what may take how long, and the pace of a training within it.

Everything that decides about time stands in this file. It is a function of what was measured and of a clock that is handed in,
so that it can be tried on a simulated one.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from vitral import distributed
from vitral.training.settings.durations import rounded

# The table of shares, each beside what it is for. Of the command's time:
CHECKING_SHARE = 0.15  # decoding images beforehand
TRIAL_SHARE = 0.1  # a trial before training: how images may vary, downloads of starts, features that compare them
MEASURING_SHARE = 0.02  # the timed steps of a copy of the network
TIMED_IMAGES_SHARE = 0.01  # timing more than two images that are scored
FEATURES_SHARE = 1 / 3  # the features of all training images, of a published start
TRAINING_SHARE = 0.6  # training from trained weights; the rest is for reading, the probe, scores and report
FRESH_TIME = 0.55  # training from random weights beside a start, which takes its part before, with what comes besides
SCRATCH_SHARE = 0.8  # training from random weights, less what the command takes before and after
BASELINES_SHARE = 0.05  # simple classifiers to compare with; of training's expected time where there is no budget
TOLERANCE_SHARE = 0.05  # by which it may be missed and still have been kept
# Of the time that is left at that moment:
FIRST_SHARE = 0.3  # the first classifier, where training is to follow; less what comes between it and the end besides
VALIDATION_SHARE = 0.01  # one validation, and again what follows the features
SCORING_SHARE = 0.1  # the final scoring, and again a head for features that were learned without one
REMEMBERED_SHARE = 0.05  # the features that a classifier keeps, where they are not known already
SPARE_SHARE = 0.5  # scoring more than was planned, of what training left unused
SLOW_SHARE = 0.1  # the first updates, before they are planned by although they are few
# Of training's time:
FRESH_SHARE = 0.75  # a network from scratch beside a start that was chosen
VALIDATIONS_SHARE = 0.03  # all validations
# Of a part's own time:
DECODING_SHARE = 0.3  # decoding, of the trial of how images may vary
FITTING_SHARE = 0.5  # fitting a first classifier of regions; the photos that judge it take the rest
FRESH_CHECKED = 0.25  # the network from scratch, before it is given up if it is behind where other attempts follow
STEP_DOUBT = 0.5  # a step, as it is expected: a whole batch goes faster than the few images that were timed
LIMIT_SHARE = 1 / 3  # images that set the limit of what is none of the classes, of those whose features are kept
STARTING_SHARE = 0.5  # the start of the process that reads images and the like, of a validation, at most

# Seconds, on an idle core like ours:
BETWEEN_SECONDS = 20.0  # trials, measurements and the end, in the time that is shared out; of little time half
READING_SECONDS = 10.0  # reading, in what was measured of whole commands; only more is taken off the budget
PACE_SECONDS = 5.0  # of a download, before its pace is judged
SIMPLE_SECONDS = 5.0  # simple classifiers without a budget, and a first one where the time is over before there is any
PATIENCE_SECONDS = 3600.0  # training without a budget: no longer on a CPU, nor for several attempts
SCRATCH_PATIENCE_SECONDS = PATIENCE_SECONDS / 3  # from random weights, where that decides the size of the images
SCRATCH_COMMAND_SECONDS = 8.0  # the command before and after a training from random weights
SAVING_SECONDS = 1.0  # saving the classifier of one of several attempts
ENDING_SECONDS = 4.5  # log, classifier and scores on the disk, the report drawn, the process's own end
TOLERANCE_SECONDS = 3.0  # by which the budget may be missed in any case
SHOWN_SECONDS = 1.0  # between fetches of the figures beside the progress bar
STARTING_SECONDS = 0.3  # the start of the process that reads a validation's images, until that is measured
WORK_SECONDS = 0.044  # `WORK` rounds of a loop

# Speeds and times over:
FORWARD_SPEED = 2.5  # times the speed of training: DINOv2's S at 224 pixels beside `training_speed`, on two cores, once
LINE_SPEED = 5.0  # megabytes a second, of a plain connection; a download that turns out slower is given up
CPU_SPEED = 2.5e11  # multiply-accumulates a second in training: a guess, which the estimate before the run replaces
MORE_TIME = 1.2  # times the first classifier's time, for which it is fitted again where nothing has been trained
CUT = 4.0  # times a budget: what is expected to take longer would be cut too short to adapt all weights
# Times the steps that a budget seems to have room for: a run is cut to its time, but not made longer, and a machine that had
# something else to do while it was measured is up to twice as fast afterwards.
SCRATCH_ROOM = 2.5
EARLY_ROOM = 3  # validations' time that an early one needs: it, the last, and one that takes twice as long
MARGIN = 1.2  # times what the command is expected to take, in a budget that is proposed

# Counts:
LEAST_PASSES = 3  # over the images, for which each of several attempts needs time; over many images one
LEAST_UPDATES = 8  # for which even a single attempt needs time, by a measurement of few images, which is slow
WORTHWHILE_STEPS = 50  # for which a budget that is proposed has room
LEAST_SCORED = 100  # images, fewer than which say little, even where they take more than their share
REPORTED_IMAGES = 60  # images as the report explains them, each of which takes as long as several that are only scored
VALIDATIONS = 10  # in a run, at most
FIRST_VALIDATION_BY = 3  # the first validation comes after a third of the training at the latest
WINDOW = 200  # updates whose mean time predicts the next
WARM_STEPS = 3  # updates before the first plan: they allocate and compile, and say little of the pace
SLOWNESS_PROBES = 3  # measurements of the machine's slowness, whose mean counts
UNCHANGED = 20  # a plan may be off by the 20th part of the updates left without being changed
WORK = 1_000_000  # rounds of a loop that measures how slow the machine is

Seconds = Callable[[], float]


@dataclass(frozen=True)
class Clock:
    """The time of a command.

    Attributes:
        seconds: What the command may take, from `started`; None for as long as it needs.
        started: When it began, by `now`.
        now: Gives the time.
    """

    seconds: float | None
    started: float = field(default_factory=time.monotonic)
    now: Seconds = time.monotonic

    def spent(self) -> float:
        """Return the seconds since the command began."""
        return self.now() - self.started

    def left(self) -> float:
        """Return the seconds until the command must have ended; infinite without a budget."""
        return math.inf if self.seconds is None else self.seconds - self.spent()

    def is_over(self, needed: float) -> bool:
        """Tell whether so many seconds are not left; in every process of a job the same."""
        return bool(distributed.broadcast(self.left() < needed))

    def overrun(self) -> float | None:
        """Return the seconds that the command took, where that missed its budget by more than the tolerance; else None."""
        spent = self.spent()
        if self.seconds is None or spent <= self.seconds + max(TOLERANCE_SECONDS, TOLERANCE_SHARE * self.seconds):
            return None
        return spent


@dataclass(frozen=True)
class Allowance:
    """How many images a command scores, and what that takes.

    Attributes:
        validation: Images of every validation.
        scored: Images of the final scoring.
        followed: Images of which, and among which, the nearest are looked for where features are followed.
        completing: Training images on which a head is fitted at the end, where the method trains none.
        image_seconds: What one image takes to be read and put through the network, without a gradient.
        remembered: Images whose features the classifier keeps.
    """

    validation: int
    scored: int
    followed: int = 0
    completing: int = 0
    image_seconds: float = 0.0
    remembered: int = 0

    def within(self, left: float) -> "Allowance":
        """Return how many of the images there is time for, by the seconds that are left; infinite without a budget."""
        if math.isinf(left):
            return self

        def most(share: float, there: int, least: int = LEAST_SCORED) -> int:
            return min(there, max(least, math.floor(share * max(left, 0.0) / max(self.image_seconds, 1e-9))))

        return Allowance(
            most(VALIDATION_SHARE, self.validation),
            most(SCORING_SHARE, self.scored),
            most(VALIDATION_SHARE, self.followed),
            most(SCORING_SHARE, self.completing),
            self.image_seconds,
            most(REMEMBERED_SHARE, self.remembered, least=0),
        )

    @property
    def report_seconds(self) -> float:
        """Seconds of the images of the report, of those on which a head is fitted, and of those that are remembered."""
        return (REPORTED_IMAGES + self.completing + self.remembered) * self.image_seconds

    @property
    def ending(self) -> float:
        """Seconds that must be left after training, or not even one update is worth while."""
        return (self.validation + self.scored) * self.image_seconds + self.report_seconds + ENDING_SECONDS


@dataclass(frozen=True)
class Schedule:
    """How the time of a command is expected to be spent, in seconds.

    Attributes:
        reading: Until the plan is made.
        first: The first classifier; at most, where it is yet to be fitted.
        training: All attempts.
        scoring: Validation is part of training; this is the scoring at the end.
        report: Saving and the report.
    """

    reading: float
    first: float
    training: float
    scoring: float
    report: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.reading + self.first + self.training + self.scoring + self.report

    def sentence(self) -> str:
        """Return it as one line for people."""
        titles = {"first": "first classifier at most"}
        parts = (f"{titles.get(name, name)} {rounded(seconds)}" for name, seconds in vars(self).items() if seconds)
        return f"Of the time: {', '.join(parts)}."


def schedule(
    clock_seconds: float | None, allowed: Allowance, *, spent: float, training: float, first: float | None
) -> Schedule:
    """Return how a command's time is shared out.

    Args:
        clock_seconds: The budget; None for none.
        allowed: What is scored and reported.
        spent: Seconds that the command took until its plan was made.
        training: Seconds that training would take in full.
        first: Seconds of these that the first classifier took; 0 where there is none, None where it is yet to be fitted.
    """
    scoring, report = allowed.scored * allowed.image_seconds, allowed.report_seconds + ENDING_SECONDS
    reading = spent - (first or 0.0)
    if clock_seconds is None:
        return Schedule(reading, first or 0.0, training, scoring, report)
    left = max(clock_seconds - spent, 0.0)
    fitting = first_seconds(left) if first is None else 0.0
    training = min(training, max(left - fitting - scoring - report, 0.0))
    return Schedule(reading, fitting + (first or 0.0), training, scoring, report)


def scratch_seconds(training: float) -> float:
    """Return the seconds of a command of which training from random weights has so many."""
    return (training + SCRATCH_COMMAND_SECONDS) / SCRATCH_SHARE


def first_seconds(left: float) -> float:
    """Return the seconds of the first classifier, where training is to follow, of so many that are left."""
    return FIRST_SHARE * max(left - BETWEEN_SECONDS, left / 2)


@dataclass(frozen=True)
class Reserve:
    """Seconds that things are expected to take before they were measured in the run itself.

    Attributes:
        validation: one validation with the checkpoint that may follow it.
        scoring: the final scoring, in validations; it is measured by them.
        ending: all else that comes after the last update, the fixed part left out: images of the report.
        fixed: saving, drawing the report, the end of the process, on the machine that the figure was measured on; it is
            multiplied by how much slower the present one is at the time.
    """

    validation: float = 0.0
    scoring: float = 0.0
    ending: float = 0.0
    fixed: float = 0.0

    def beside(self, cost: float) -> "Reserve":
        """Return it for the training of a network of so many times the cost of that which may be scored at the end."""
        scoring = self.scoring * self.validation
        return Reserve(cost * self.validation, ending=self.ending + scoring, fixed=self.fixed)


@dataclass(frozen=True)
class Costs:
    """Seconds that things take, as measured.

    Attributes:
        step: one update, with reading its images.
        validation: one validation and the checkpoint that may follow it.
        ending: all that comes after the last update and the validation that follows it.
    """

    step: float
    validation: float
    ending: float


@dataclass(frozen=True)
class Pacing:
    """What the rest of a run is to be.

    Attributes:
        total_steps: updates that the run makes in all.
        next_validation: the update after which the network is validated next; the last, where there is time for no other.
    """

    total_steps: int
    next_validation: int


def pace(costs: Costs, *, step: int, total: int, validated: int, most: int, left: float, elapsed: float) -> Pacing:
    """Plan the rest of a run: as many updates as fit, at least one in all, and validations of a small share of their time.

    Args:
        costs: what things take.
        step: updates made; of the last of them a validation that falls due is still to be made.
        total: updates in all, as planned so far; it stays where the new plan differs by less than a twentieth of what is left.
        validated: the update after which the network was last validated; 0 for none yet.
        most: updates that the recipe asks for: a budget makes a run shorter, never longer.
        left: seconds until the command must have ended.
        elapsed: seconds since training began.
    """
    step_seconds = max(costs.step, 1e-9)
    free = left - costs.ending - costs.validation  # the last update is always validated
    reachable = min(most, step + _whole(free / step_seconds))
    training = elapsed + (reachable - step) * step_seconds
    between = max(costs.validation * (1 / VALIDATIONS_SHARE - 1), training / VALIDATIONS)
    if not validated and left - costs.ending > EARLY_ROOM * costs.validation:
        # The first comes early enough to say what the last and the final scoring will take.
        between = min(between, training / FIRST_VALIDATION_BY)
    due = max(step, validated + max(1, round(between / step_seconds)))
    others = 0 if due >= reachable else 1 + _whole((reachable - due) * step_seconds / (between + costs.validation))
    fitting = max(1, step, min(most, step + _whole((free - others * costs.validation) / step_seconds)))
    if abs(fitting - total) > (fitting - step) // UNCHANGED:
        total = fitting
    return Pacing(total, due if total - due > (due - validated) // 2 else total)


def share_gone(step: int, total_steps: int, *, bend_step: int, bend_share: float) -> float:
    """Return how much of its schedule a run has gone through by an update, 0 to 1, the rest being spread over what is left.

    However often the length changes, the share never falls, and it ends at 1 with the run: the schedule follows.

    Args:
        step: updates made, at least `bend_step`.
        total_steps: updates in all, as planned now.
        bend_step: the update after which the length last changed.
        bend_share: the share gone by then.
    """
    return bend_share + (1 - bend_share) * (step - bend_step) / max(total_steps - bend_step, 1)


def _whole(value: float) -> int:
    return max(0, math.floor(value))


class Pacer:
    """Keeps a command within its time, by what it measures of the run.

    Args:
        clock: The command's time.
        reserve: What is expected before anything was measured.
        slowness: Measures how many times longer than on an idle machine like ours things take just now.
    """

    def __init__(self, clock: Clock, *, reserve: Reserve = Reserve(), slowness: Seconds = lambda: 1.0) -> None:
        self.clock, self.reserve, self.slowness = clock, reserve, slowness
        self._slow: deque[float] = deque(maxlen=SLOWNESS_PROBES)
        self.validation: float | None = None
        self._starting: float | None = None  # seconds of a validation beside its images; None where they do not tell
        self._validated: list[tuple[float, int]] = []
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._made = 0
        self.begin()

    @property
    def seconds(self) -> float | None:
        """What the command may take; None for as long as it needs."""
        return self.clock.seconds

    def extend(self, whole: "Pacer") -> None:
        """Pace by the time, and by what comes after it, of another pacer from now on."""
        self.clock, self.reserve = whole.clock, whole.reserve

    def begin(self) -> None:
        """Note that training begins."""
        if self.seconds is not None:
            self._slow.append(self.slowness())
        self._began = self._mark = self.clock.now()
        self._validated.clear()

    def images_validated(self, count: int) -> None:
        """Note that a validation has been through so many images by now."""
        self._validated.append((self.clock.now(), count))

    def step_made(self) -> None:
        """Note that an update was made; the time since the last note is what it took."""
        if self._made == 1:
            self._steps.clear()  # the first was no measure, now that there is another
        self._made += 1
        self._steps.append(self._lap())

    def duties_done(self, *, validated: bool) -> None:
        """Note what followed an update: a validation, or a checkpoint and the like, for which the updates pay."""
        if validated and self.seconds is not None:
            self._slow.append(self.slowness())
        took = self._lap()
        if not validated:
            self._steps[-1] += took
        else:
            self._starting = self._beside_images(took)
            self.validation = took if self.validation is None else (took + self.validation) / 2
        self._validated.clear()

    def _beside_images(self, took: float) -> float | None:
        """Return the seconds of a validation beside its images, by those after the first ones; None if they do not tell."""
        counts = [count for _, count in self._validated]
        if len(counts) < 2 or counts != sorted({*counts}):  # there are no others, or it went through images twice
            return None
        (first, some), *_, (last, count) = self._validated
        return max(0.0, took - (last - first) * count / (count - some))

    def _lap(self) -> float:
        now = self.clock.now()
        passed, self._mark = now - self._mark, now
        return passed

    def plan(self, *, step: int, total: int, validated: int, most: int) -> Pacing | None:
        """Plan the rest of the run after update `step`; None without a budget, and while too little is known."""
        if self.seconds is None:
            return None
        spent, left = self.clock.now() - self._began, self.clock.left()
        if self._made < WARM_STEPS and spent < SLOW_SHARE * left:
            return None
        return pace(self._costs(), step=step, total=total, validated=validated, most=most, left=left, elapsed=spent)

    def _costs(self) -> Costs:
        slow = statistics.fmean(self._slow or [1.0])
        validation = of_images = self.reserve.validation
        if self.validation is not None:
            validation = self.validation
            # Else ten times as many images would be expected to start ten processes.
            starting = STARTING_SECONDS * slow if self._starting is None else self._starting
            of_images = validation - min(starting, STARTING_SHARE * validation)
        scoring = self.reserve.scoring * of_images + (validation - of_images if self.reserve.scoring else 0.0)
        return Costs(
            step=statistics.fmean(self._steps),
            validation=validation,
            ending=self.reserve.ending + scoring + self.reserve.fixed * slow,
        )


def machine_slowness() -> float:
    """Return how many times longer than on an idle machine like ours a fixed piece of work takes just now; at least 0.3."""
    start = time.perf_counter()
    total = 0
    for number in range(WORK):
        total += number * number
    return max(0.3, (time.perf_counter() - start) / WORK_SECONDS)
