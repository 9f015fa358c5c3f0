"""The learning rate over time, against its sources."""

import math
from typing import Any

import pytest

from tests.cases import every_case
from tests.training.settings.rates import learning_rate


@every_case(
    ("step", "expected"),
    [(0, 0.0), (50, 0.5), (100, 1.0), (400, 0.5), (940, 0.5 / math.sqrt(3.8) * 2 * 0.6), (1000, 0.0)],
)
def test_rsqrt_with_cool_down(step: int, expected: float) -> None:
    rate = learning_rate(
        step, base=1.0, total_steps=1000, warmup_steps=100, decay="rsqrt", timescale=100, cooldown_steps=100
    )
    if step == 940:
        expected = 0.6 / math.sqrt(1 + 840 / 100)
    assert rate == pytest.approx(expected)


def test_steps_are_hyperrules() -> None:
    def rate(step: int) -> float:
        return learning_rate(
            step, base=0.003, total_steps=500, warmup_steps=100, decay="steps", milestones=(0.4, 0.6, 0.8)
        )

    assert [rate(step) for step in (0, 50, 100, 200)] == pytest.approx([0, 0.0015, 0.003, 0.003])
    assert [rate(step) for step in (201, 301, 401)] == pytest.approx([3e-4, 3e-5, 3e-6])


def test_warm_up_from_a_rate_and_a_cool_down_at_one() -> None:
    options: dict[str, Any] = {"base": 1.0, "total_steps": 100, "warmup_steps": 10, "decay": "cosine"}
    options |= {"final": 0.1, "warmup_lr": 0.2, "cooldown_steps": 20}
    rates = [learning_rate(step, **options) for step in (0, 5, 10, 45, 80, 99)]
    assert rates == pytest.approx([0.2, 0.6, 1.0, 0.55, 0.1, 0.1])


@every_case(
    ("epoch", "expected"),
    # timm 1.0's CosineLRScheduler(t_initial=300, lr_min=1e-5, warmup_t=5, warmup_lr_init=1e-6) at DeiT's rate of 1e-3
    [(0, 1e-6), (1, 2.008e-4), (4, 8.002e-4), (5, 9.99321619703514e-4), (150, 5.05e-4), (299, 1.002714116407149e-5)],
)
def test_timms_cosine_counts_from_the_start_and_changes_once_an_epoch(epoch: int, expected: float) -> None:
    options: dict[str, Any] = {"base": 1e-3, "total_steps": 3000, "warmup_steps": 50, "decay": "cosine", "final": 1e-5}
    options |= {"warmup_lr": 1e-6, "curve_from": "start", "hold_steps": 10}
    for step in (10 * epoch, 10 * epoch + 9):
        assert learning_rate(step, **options) == pytest.approx(expected, rel=1e-12)
