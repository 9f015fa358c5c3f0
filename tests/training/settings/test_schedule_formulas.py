"""Every learning-rate curve at every step, against the formulas of its source written out plainly."""

import math
from typing import Any

import pytest

from tests.cases import every_case
from tests.training.settings.rates import learning_rate

BASE, TOTAL = 0.3, 60


def rates(**options: Any) -> list[float]:  # noqa: ANN401  # passed on as they are
    return [learning_rate(step, base=BASE, total_steps=TOTAL, **options) for step in range(TOTAL + 3)]


@every_case("warmup", [0, 1, 7])
@every_case("final", [0.0, 0.04])
@every_case("decay", ["cosine", "linear"])
def test_cosine_and_linear_are_vision_transformers(decay: Any, final: float, warmup: int) -> None:  # noqa: ANN401
    """utils.py, create_learning_rate_schedule: progress over what the warm-up leaves, clipped, times the warm-up's share."""
    expected = []
    for step in range(TOTAL + 3):
        progress = min(max((step - warmup) / (TOTAL - warmup), 0), 1)
        if decay == "linear":
            rate = final + (BASE - final) * (1 - progress)
        else:
            rate = final + (BASE - final) * (1 + math.cos(math.pi * progress)) / 2
        expected.append(rate * min(1, step / warmup) if warmup else rate)
    assert rates(decay=decay, final=final, warmup_steps=warmup) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@every_case("warmup", [0, 7])
def test_a_constant_rate_follows_its_warm_up(warmup: int) -> None:
    expected = [BASE * min(1.0, step / warmup if warmup else 1.0) for step in range(TOTAL + 3)]
    assert rates(decay="constant", warmup_steps=warmup) == pytest.approx(expected, rel=1e-12)
    assert rates(decay="constant", warmup_steps=warmup, cooldown_steps=20) == pytest.approx(expected, rel=1e-12)


@every_case(("warmup", "cooldown", "timescale"), [(0, 0, 10), (7, 0, 25), (7, 20, 25), (0, 1, 1), (30, 30, 9)])
def test_rsqrt_is_scaling_vision_transformers(warmup: int, cooldown: int, timescale: int) -> None:
    """big_vision's utils.py: warm-up, sqrt(t / (t + steps since warm-up)), and a cool-down linear to zero."""
    expected = []
    for step in range(TOTAL + 1):
        rate = BASE * math.sqrt(timescale / (timescale + max(0, step - warmup)))
        rate *= min(1, (TOTAL - step) / cooldown) if cooldown else 1
        expected.append(rate * min(1, step / warmup) if warmup else rate)
    found = rates(decay="rsqrt", warmup_steps=warmup, cooldown_steps=cooldown, timescale=timescale)[: TOTAL + 1]
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_rsqrt_halves_after_three_times_ten_thousand_updates_unless_told() -> None:
    options: dict[str, Any] = {"base": 1.0, "total_steps": 10**6, "warmup_steps": 100, "decay": "rsqrt"}
    assert learning_rate(30_100, **options) == pytest.approx(0.5)
    assert learning_rate(10**6 - 1, **options) == pytest.approx((1 + 999_899 / 10_000) ** -0.5)


@every_case("warmup", [0, 7])
@every_case("cooldown", [0, 9])
def test_a_cool_down_ends_the_cosine_early(warmup: int, cooldown: int) -> None:
    found = rates(decay="cosine", final=0.02, warmup_steps=warmup, cooldown_steps=cooldown)
    end = TOTAL - cooldown
    for step in range(warmup, end):
        curve = (1 + math.cos(math.pi * (step - warmup) / (end - warmup))) / 2
        assert found[step] == pytest.approx(0.02 + 0.28 * curve, rel=1e-12)
    assert found[end:] == pytest.approx([0.02] * (cooldown + 3))


@every_case("milestones", [(), (0.5,), (0.3, 0.5, 0.9)])
def test_steps_are_a_tenth_after_each_milestone(milestones: tuple[float, ...]) -> None:
    """BiT-HyperRule (bit_hyperrule.py): a tenth once the step is beyond the milestone."""
    expected = [
        BASE * 0.1 ** len([1 for share in milestones if step > share * TOTAL]) * min(1, step / 6)
        for step in range(TOTAL + 3)
    ]
    assert rates(decay="steps", warmup_steps=6, milestones=milestones) == pytest.approx(expected, rel=1e-12)


@every_case("first_rate", [0.0, 0.06])
@every_case("hold", [1, 4])
@every_case("decay", ["cosine", "linear"])
def test_a_curve_from_the_start_is_timms(decay: Any, hold: int, first_rate: float) -> None:  # noqa: ANN401
    """timm's CosineLRScheduler without warmup_prefix: linear to the peak, then the curve as if it had begun at 0."""
    expected = []
    for step in range(TOTAL):
        held = step - step % hold
        if held < 12:
            expected.append(first_rate + held * (BASE - first_rate) / 12)
        else:
            curve = (1 + math.cos(math.pi * held / TOTAL)) / 2 if decay == "cosine" else 1 - held / TOTAL
            expected.append(0.02 + (BASE - 0.02) * curve)
    options: dict[str, Any] = {"decay": decay, "final": 0.02, "warmup_steps": 12, "curve_from": "start"}
    found = rates(**options, warmup_lr=first_rate, hold_steps=hold)
    assert found[:TOTAL] == pytest.approx(expected, rel=1e-12)


def test_warm_up_and_cool_down_take_at_most_half_of_the_run_each() -> None:
    found = [learning_rate(step, base=1.0, total_steps=8, warmup_steps=8, decay="cosine") for step in range(9)]
    assert found[:5] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])
    assert found[8] == pytest.approx(0.0)
    cooled = rates(decay="rsqrt", cooldown_steps=TOTAL, timescale=10**9)
    assert cooled[: TOTAL // 2] == pytest.approx([BASE] * (TOTAL // 2), rel=1e-6)
    assert cooled[TOTAL * 3 // 4] == pytest.approx(BASE / 2, rel=1e-6)
    options: dict[str, Any] = {"base": 1.0, "warmup_steps": 4, "decay": "cosine", "final": 0.1}
    assert learning_rate(2, total_steps=2, **options) == pytest.approx(0.1)  # a curve of a single update has its end


def test_between_two_updates_the_curve_goes_on() -> None:
    """A run that a time budget made shorter takes the rates of a longer one, also between two of its updates."""
    options: dict[str, Any] = {"base": 1.0, "total_steps": 10, "warmup_steps": 4, "decay": "linear"}
    assert learning_rate(0.5, **options) == pytest.approx(0.125)
    assert learning_rate(5.5, **options) == pytest.approx(0.75)
    assert learning_rate(5.5, **options, hold_steps=2) == pytest.approx(1.0)
