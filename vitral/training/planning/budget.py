"""A time budget that a command keeps from its first second to its last: how many updates fit is planned anew after each one.

All of it is a function of what was measured and of a clock that is handed in, so that it can be tried on a simulated one.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]

WINDOW = 200  # updates whose mean time says what the next will take
WARM_STEPS = 3  # updates before the first plan: they allocate and compile, and say little of the pace
SLOW_SHARE = 0.1  # of the time left, that the first updates may take before they are planned by in spite of that
VALIDATION_SHARE = 0.03  # of the training's time, at most
VALIDATIONS = 10  # in a run, at most
PROBES = 3  # measurements of the machine's slowness, whose mean counts
UNCHANGED = 20  # a plan may be off by the 20th part of the updates left without being changed
FIRST_BY = 3  # the first validation is made after a third of the training at the latest,
EARLY_ROOM = 3  # where there is time for it, for the last, and for one of them taking twice as long as expected
WORK, WORK_SECONDS = (
    1_000_000,
    0.044,
)  # rounds of a loop, and what they take on a core of ours that has nothing else to do
# Of a validation, whatever its images: the start of the process that reads them; seconds of an idle core like ours. At most
# half of what one takes is put down to it.
STARTING_SECONDS, STARTING_SHARE = 0.3, 0.5
TOLERANCE_SHARE, TOLERANCE_SECONDS = 0.05, 3.0  # by which a command may miss its budget and still have kept it


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
    between = max(costs.validation * (1 / VALIDATION_SHARE - 1), training / VALIDATIONS)
    if not validated and left - costs.ending > EARLY_ROOM * costs.validation:
        # The first comes early enough to say what the last and the final scoring will take.
        between = min(between, training / FIRST_BY)
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


class Budget:
    """Keeps a command within its time, by what it measures of the run.

    Args:
        seconds: that the command may take; None for as long as it needs.
        started: when the command began, by `clock`; None for now.
        reserve: what is expected before anything was measured.
        clock: gives seconds.
        slowness: measures how many times longer than on an idle machine like ours things take just now.
    """

    def __init__(
        self,
        seconds: float | None,
        *,
        started: float | None = None,
        reserve: Reserve = Reserve(),
        clock: Clock = time.monotonic,
        slowness: Clock = lambda: 1.0,
    ) -> None:
        self.seconds, self.reserve, self.clock, self.slowness = seconds, reserve, clock, slowness
        self._slow: deque[float] = deque(maxlen=PROBES)
        self.started = clock() if started is None else started
        self.validation: float | None = None
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._made = 0
        self.begin()

    def begin(self) -> None:
        """Note that training begins."""
        if self.seconds is not None:
            self._slow.append(self.slowness())
        self._began = self._mark = self.clock()

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
            self.validation = took if self.validation is None else (took + self.validation) / 2

    def _lap(self) -> float:
        now = self.clock()
        passed, self._mark = now - self._mark, now
        return passed

    def left(self) -> float:
        """Return the seconds until the command must have ended; infinite without a budget."""
        return math.inf if self.seconds is None else self.seconds - (self.clock() - self.started)

    def plan(self, *, step: int, total: int, validated: int, most: int) -> Pacing | None:
        """Plan the rest of the run after update `step`; None without a budget, and while too little is known."""
        if self.seconds is None:
            return None
        spent = self.clock() - self._began
        if self._made < WARM_STEPS and spent < SLOW_SHARE * self.left():
            return None
        costs, left = self._costs(), self.left()
        return pace(costs, step=step, total=total, validated=validated, most=most, left=left, elapsed=spent)

    def _costs(self) -> Costs:
        slow = statistics.fmean(self._slow or [1.0])
        validation = of_images = self.reserve.validation
        if self.validation is not None:
            validation = self.validation
            # Else ten times as many images would be expected to start ten processes.
            of_images = validation - min(STARTING_SECONDS * slow, STARTING_SHARE * validation)
        return Costs(
            step=statistics.fmean(self._steps),
            validation=validation,
            ending=self.reserve.ending + self.reserve.scoring * of_images + self.reserve.fixed * slow,
        )


def machine_slowness() -> float:
    """Return how many times longer than on an idle machine like ours a fixed piece of work takes just now; at least 0.3."""
    start = time.perf_counter()
    total = 0
    for number in range(WORK):
        total += number * number
    return max(0.3, (time.perf_counter() - start) / WORK_SECONDS)


def overrun(seconds: float, budget: float) -> bool:
    """Tell whether a command that took `seconds` missed its budget by more than the tolerance of 5 % or 3 seconds."""
    return seconds > budget + max(TOLERANCE_SECONDS, TOLERANCE_SHARE * budget)
