"""A time budget on a simulated clock: whatever steps, noise, validations and endings cost, the command ends when it should."""

import math
import re
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cases import every_case
from vitral.training.clock import (
    EARLY_ROOM,
    ENDING_SECONDS,
    SLOW_SHARE,
    VALIDATIONS_SHARE,
    WARM_STEPS,
    Allowance,
    Clock,
    Costs,
    Pacer,
    Reserve,
    Schedule,
    first_seconds,
    machine_slowness,
    pace,
    schedule,
    share_gone,
)
from vitral.training.scoring.validation import too_short


@dataclass
class World:
    """A machine on which everything takes a time of its own.

    Attributes:
        seconds: the pacer.
        before: seconds until training begins.
        step: mean seconds of an update.
        noise: how much the times of single updates differ, as the deviation of their logarithms.
        drift: the factor by which updates become slower, or faster, by the middle of the pacer.
        first: the factor by which the first update takes longer.
        validation: seconds of a validation.
        scoring: of the final scoring, in validations.
        ending: seconds of all else at the end.
        most: updates that the recipe asks for.
        guess: the factor by which validations were expected wrongly.
        seed: of the noise.
        start: seconds of every validation and of the scoring, however many their images.
    """

    seconds: float
    before: float
    step: float
    noise: float
    drift: float
    first: float
    validation: float
    scoring: float
    ending: float
    most: int
    guess: float
    seed: int
    start: float = 0.0
    now: float = 0.0
    steps: int = 0
    validations: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    longest: float = 0.0
    bends: int = 0

    @property
    def clock(self) -> Clock:
        return Clock(self.seconds, 0.0, lambda: self.now)

    def run(self) -> "World":
        """Do what the training loop does."""
        rng = np.random.default_rng(self.seed)
        pacer = Pacer(self.clock, reserve=Reserve(self.validation * self.guess, self.scoring, self.ending))
        self.now += self.before
        pacer.begin()
        step, validated, total, due, bend_step, bend_share = 0, 0, self.most, self.most, 0, 0.0
        while step < total:
            self.shares.append(share_gone(step, total, bend_step=bend_step, bend_share=bend_share))
            took = self.step * float(np.exp(rng.normal(0, self.noise))) * (self.first if step == 0 else 1.0)
            took *= self.drift if self.now > self.seconds / 2 else 1.0
            self.longest = max(self.longest, took)
            self.now += took
            step += 1
            pacer.step_made()
            planned = pacer.plan(step=step, total=total, validated=validated, most=self.most)
            if planned is not None:
                if planned.total_steps != total:
                    bend_share = share_gone(step, total, bend_step=bend_step, bend_share=bend_share)
                    bend_step, total = step, planned.total_steps
                    self.bends += 1
                due = planned.next_validation
            valid = step == total or step >= due
            if valid:
                for done, seconds in ((1, self.start + self.validation / 10), (10, self.validation * 9 / 10)):
                    self.now += seconds
                    pacer.images_validated(done)
                validated = step
                self.validations.append(step)
                due = total
            pacer.duties_done(validated=valid)
        self.now += self.start + self.scoring * self.validation + self.ending
        self.steps = step
        return self

    @property
    def unavoidable(self) -> float:
        """Seconds of a run of one update."""
        return self.before + self.first * self.step + (1 + self.scoring) * self.validation + self.ending


def is_late(spent: float, seconds: float) -> bool:
    """Tell whether a command that took so many seconds missed its budget."""
    return Clock(seconds, time.monotonic() - spent).overrun() is not None


@every_case("start", [0.0, 0.4, 1.2])
def test_what_a_validation_takes_to_start_is_not_expected_of_every_image_that_is_scored(start: float) -> None:
    world = World(
        90, 20, 0.5, 0.0, 1.0, 1.0, validation=1.2, scoring=10, ending=0.5, most=10_000, guess=1, seed=0, start=start
    )
    assert 87 < world.run().now <= 90


WORLDS = st.builds(
    World,
    seconds=st.floats(20, 10_800),
    before=st.floats(1, 10),
    step=st.floats(0.004, 20),
    noise=st.floats(0, 0.3),
    drift=st.floats(0.4, 2.5),
    first=st.floats(1, 6),
    validation=st.floats(0.01, 30),
    scoring=st.floats(0, 5),
    ending=st.floats(0.5, 6),
    most=st.integers(1, 30_000),
    guess=st.floats(0.5, 2),
    seed=st.integers(0, 1000),
)


def fits(world: World) -> bool:
    """Tell whether the run could keep its time at all: what is measured only once, or only expected, must not break it."""
    expected = max(1.0, world.guess) * (1 + world.scoring) * world.validation
    return world.unavoidable < 0.5 * world.seconds and expected < 0.5 * world.seconds


NO_ROOM = World(97.0, 1.0, 2.0, 0.0, 1.0, 1.0, 11.0, 2.5, 1.0, 5, 1.75, 0)  # for a validation on the way
TIGHT = World(20.0, 1.0, 1.0, 0.0, 1.0, 1.0, 13.0, 0.0, 1.0, 4, 0.5, 0)  # and validations twice as long as expected


@settings(max_examples=150, deadline=None, derandomize=True)
@given(WORLDS)
@example(NO_ROOM)
@example(TIGHT)
def test_a_command_ends_within_five_percent_or_three_seconds_of_its_budget(world: World) -> None:
    world.run()
    # The last update may turn out slower than all before it; no plan can know that.
    slack = world.longest + world.validation * (1 + world.scoring) * 0.5
    assert not is_late(world.now - slack, max(world.seconds, world.unavoidable))
    if WARM_STEPS < world.steps < world.most and fits(world):  # of a few updates none says what the next takes
        assert world.now > world.seconds - max(3.0, 0.05 * world.seconds) - slack - world.validation


@every_case("seconds", [30.0, 60.0, 180.0, 600.0, 10_800.0])
def test_usual_commands_take_what_was_asked(seconds: float) -> None:
    rng = np.random.default_rng(int(seconds))
    missed = []
    for seed in range(20):
        step = float(np.exp(rng.uniform(np.log(seconds / 4000), np.log(seconds / 40))))
        slower, first, guess = rng.uniform(0.7, 1.4), rng.uniform(1, 6), rng.uniform(0.7, 1.5)
        validation, scoring = seconds * rng.uniform(0.001, 0.02), rng.uniform(1, 5)
        world = World(
            seconds, 6.0, step, 0.2, slower, first, validation, scoring, rng.uniform(2, 4), 10**6, guess, seed
        ).run()
        missed.append(abs(world.now - seconds) / max(3.0, 0.05 * seconds))
    assert max(missed) < 1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(WORLDS)
def test_a_run_is_never_longer_than_its_recipe_and_never_empty(world: World) -> None:
    world.run()
    assert 1 <= world.steps <= world.most


@settings(max_examples=100, deadline=None, derandomize=True)
@given(WORLDS)
def test_the_schedule_goes_to_its_end_and_never_back(world: World) -> None:
    world.run()
    assert np.diff(world.shares).min(initial=1.0) >= -1e-12  # of the rounding of a share that is carried over
    assert world.shares[0] == 0.0
    if world.steps >= 50 and world.noise < 0.1 and 0.8 < world.drift < 1.2:
        assert world.shares[-1] > 0.85
        # No long tail at almost no rate: what is left of the schedule goes evenly over what is left of the run.
        assert np.mean(np.array(world.shares) > 0.98) < 0.1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(WORLDS)
@example(World(20.0, 1.0, 1.0, 0.0, 1.0, 1.0, 2.0, 0.0, 1.0, 4, 1.0, 0))
def test_validations_take_a_small_share_and_the_last_update_is_validated(world: World) -> None:
    world.run()
    assert world.validations[-1] == world.steps
    assert len(world.validations) <= 1 + max(12, 1)
    if fits(world) and 0.8 < world.drift < 1.2 and world.noise < 0.1:
        between = len(world.validations) - 1
        if between == 1:  # the first, which says what the last will take, is made wherever there is room for three
            assert EARLY_ROOM * world.validation < world.seconds
        else:
            assert between * world.validation <= 2.5 * VALIDATIONS_SHARE * world.seconds


def test_a_late_run_stops_at_once_and_adds_no_step() -> None:
    costs = Costs(step=3.0, validation=1.0, ending=5.0)
    late = pace(costs, step=12, total=400, validated=10, most=400, left=2.0, elapsed=60.0)
    assert late.total_steps == late.next_validation == 12
    assert pace(costs, step=0, total=400, validated=0, most=400, left=-5.0, elapsed=0.0).total_steps == 1


def test_updates_validations_and_the_ending_fill_the_time_that_is_left() -> None:
    costs = Costs(step=1.0, validation=3.0, ending=10.0)
    paced = pace(costs, step=1, total=10_000, validated=1, most=10_000, left=1013.0, elapsed=0.0)
    assert (paced.next_validation, paced.total_steps) == (101, 974)  # a validation every 100 s: nine, and the last
    assert 973 * costs.step + (9 + 1) * costs.validation + costs.ending == 1013.0


def test_slow_updates_are_validated_each() -> None:
    paced = pace(
        Costs(step=10.0, validation=0.01, ending=0.0), step=1, total=4, validated=1, most=4, left=31.0, elapsed=10.0
    )
    assert (paced.next_validation, paced.total_steps) == (2, 4)


def test_ten_seconds_at_three_seconds_a_step_are_not_forty_steps() -> None:
    world = World(10.0, 0.5, 3.0, 0.0, 1.0, 1.0, 0.2, 1.0, 0.5, 2475, 1.0, 0).run()
    assert world.steps == 2
    assert world.now <= 10.0


def test_a_shortened_run_can_become_longer_again() -> None:
    costs = Costs(step=1.0, validation=0.0, ending=0.0)
    assert pace(costs, step=50, total=1000, validated=0, most=1000, left=50.0, elapsed=50.0).total_steps == 100
    faster = Costs(step=0.5, validation=0.0, ending=0.0)
    assert pace(faster, step=50, total=100, validated=0, most=1000, left=50.0, elapsed=50.0).total_steps == 150
    assert pace(faster, step=50, total=100, validated=0, most=120, left=50.0, elapsed=50.0).total_steps == 120


def test_nothing_is_planned_by_the_first_updates_unless_they_are_slow() -> None:
    quick = World(600.0, 0.0, 0.01, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 10, 1.0, 0)
    pacer = Pacer(quick.clock)
    for made in range(1, WARM_STEPS + 1):
        quick.now += 0.01
        pacer.step_made()
        planned = pacer.plan(step=made, total=10, validated=0, most=10)
        assert (planned is None) == (made < WARM_STEPS)
        pacer.duties_done(validated=False)
    slow = World(60.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 10, 1.0, 0)
    pacer = Pacer(slow.clock)
    slow.now += 1.1 * SLOW_SHARE * slow.seconds
    pacer.step_made()
    assert pacer.plan(step=1, total=10, validated=0, most=10) is not None


@settings(max_examples=50, deadline=None, derandomize=True)
@given(WORLDS)
def test_the_length_is_not_changed_at_every_update(world: World) -> None:
    world.run()
    assert world.bends <= 120 + world.steps // 50


def test_without_a_budget_there_is_no_plan() -> None:
    pacer = Pacer(Clock(None))
    pacer.step_made()
    assert pacer.plan(step=1, total=10, validated=0, most=10) is None


@every_case(("seconds", "budget", "late"), [(32.9, 30, False), (33.1, 30, True), (188, 180, False), (190, 180, True)])
def test_what_counts_as_late(seconds: float, budget: float, late: bool) -> None:
    assert is_late(seconds, budget) == late


@every_case("slow", [0.5, 1.0, 4.0])
def test_a_busy_machine_is_given_more_time_to_end(slow: float) -> None:
    world = World(100.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1000, 1.0, 0)
    pacer = Pacer(world.clock, reserve=Reserve(fixed=10.0), slowness=lambda: slow)
    for step in range(1, WARM_STEPS + 1):
        world.now += 1.0
        pacer.step_made()
        planned = pacer.plan(step=step, total=1000, validated=0, most=1000)
        pacer.duties_done(validated=False)
    assert planned is not None
    assert planned.total_steps == 100 - 10 * slow


def test_how_slow_the_machine_is_is_measured() -> None:
    assert 0.3 <= machine_slowness() < 1000


def test_the_budget_that_is_advised_follows_from_the_figures_that_are_named() -> None:
    said = too_short(30.0, 17.6, 52.0, 15.7)
    budget, spent, more, least, steps, step, useful = map(float, re.findall(r"\d+(?:\.\d+)?", said))
    assert (budget, spent, more, step) == (30, 18, 68, 16)
    assert least == math.ceil(1.2 * (spent + more)) == 104
    assert useful == math.ceil(1.2 * (spent + more + steps * step))


def test_the_budget_of_several_runs_has_room_for_each_of_them() -> None:
    one, several = too_short(30.0, 17.6, 52.0, 15.7), too_short(30.0, 17.6, 52.0, 15.7, runs=5)
    _, spent, more, runs, least, *_, useful = map(float, re.findall(r"\d+(?:\.\d+)?", several))
    assert (spent, more, runs) == (18, math.ceil(5 * 67.7), 5)
    assert least == math.ceil(1.2 * (spent + more))
    assert useful == math.ceil(1.2 * (spent + more + 5 * 50 * 16))
    assert "runs" not in one


def test_where_nothing_is_to_be_trained_no_step_is_spoken_of() -> None:
    said = too_short(5.0, 8.2, 10.5, 0.0)
    assert said.endswith("scoring and report take about 11 s more. With a fifth to spare that makes `time='24s'`.")


def scheduled(seconds: float | None, *, training: float = 500.0, first: float | None = None) -> Schedule:
    allowed = Allowance(0, scored=240, followed=0, completing=10, image_seconds=0.05)
    return schedule(seconds, allowed, spent=10.0, training=training, first=first)


@every_case("seconds", [30.0, 60.0, 180.0, 600.0])
@every_case("first", [None, 0.0, 4.0])
def test_the_parts_of_a_schedule_fill_the_budget(seconds: float, first: float | None) -> None:
    parts = scheduled(seconds, training=1e6, first=first)
    assert parts.first == pytest.approx(first_seconds(seconds - 10.0) if first is None else first)
    assert parts.reading == 10.0 - (first or 0.0)
    assert parts.report == 3.5 + ENDING_SECONDS
    room = seconds - parts.reading - parts.first - parts.scoring - parts.report
    assert parts.training == pytest.approx(max(room, 0.0))


def test_training_that_ends_before_the_budget_is_scheduled_as_long_as_it_takes() -> None:
    assert scheduled(6000.0).training == 500.0
    assert scheduled(None) == Schedule(10.0, 0.0, 500.0, 12.0, 3.5 + ENDING_SECONDS)
    assert scheduled(8.0).training == 0.0


def test_a_schedule_names_each_part_once_with_its_seconds() -> None:
    assert scheduled(180.0).sentence() == (
        "Of the time: reading 10 s, first classifier at most 45 s, training 2 min, scoring 12 s, report 8 s."
    )
    assert "first classifier" not in scheduled(180.0, first=False).sentence()


def test_all_images_are_scored_without_a_budget_and_as_many_as_there_is_time_for_with_one() -> None:
    def allowed(left: float) -> tuple[int, int]:
        share = Allowance(5_000, 5_000, image_seconds=0.02).within(left)
        return share.validation, share.scored

    assert allowed(math.inf) == (5_000, 5_000)
    assert allowed(400.0) == (200, 2_000)  # a hundredth and a tenth
    assert allowed(-1.0) == (100, 100)  # fewer would say little


def test_a_network_of_another_cost_leaves_the_end_what_the_run_s_own_may_need() -> None:
    reserve = Reserve(validation=4.0, scoring=2.0, ending=3.0, fixed=5.0)
    assert reserve.beside(0.25) == Reserve(validation=1.0, scoring=0.0, ending=11.0, fixed=5.0)


def test_the_first_classifier_of_little_time_leaves_most_of_it() -> None:
    assert first_seconds(170.0) > 40.0  # of three minutes, for the features of all photos
    assert first_seconds(50.0) < 10.0  # of one
    assert first_seconds(4.0) > 0.0
