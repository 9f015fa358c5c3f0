"""The scaling law: what is known comes out, what cannot be known is refused."""

import math

import numpy as np
import pytest

from tests.cases import every_case
from vitral.errors import StudyError
from vitral.studies.paper.experiment import published
from vitral.studies.paper.scaling_law import fit_scaling_law

KNOWN = (0.26, 0.35, 0.09, 0.01)  # Scaling ViT's, of fine-tuning
FEW_SHOT = (0.63, 0.32, 0.12, 0.52)
COMPUTES = tuple(0.01 * 4.0**step for step in range(9))


def error(compute: float, a: float, b: float, c: float, d: float) -> float:
    return a * (compute + d) ** -b + c


@every_case("known", [KNOWN, FEW_SHOT])
@every_case("scale", [1.0, 1e15])
def test_exact_points_give_their_law_in_any_unit(known: tuple[float, ...], scale: float) -> None:
    law = fit_scaling_law([(scale * compute, error(compute, *known)) for compute in COMPUTES], unit="core-days")
    a, b, c, d = known
    fitted = (law.a.value, law.b.value, law.c.value, law.d.value)
    assert fitted == pytest.approx((a * scale**b, b, c, d * scale), rel=1e-6)
    assert law.residual < 1e-9
    assert law.error_at(scale * 7) == pytest.approx(error(7, *known), rel=1e-6)
    assert all(each.low <= each.value <= each.high for each in (law.a, law.b, law.c, law.d))


def test_intervals_of_noisy_points_hold_what_made_them() -> None:
    held = np.zeros(4, dtype=int)
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(0, 0.03, (9, 3))
        points = [(x, error(x, *KNOWN) * math.exp(e)) for x, row in zip(COMPUTES, noise, strict=True) for e in row]
        law = fit_scaling_law(points, unit="core-days")
        fitted = (law.a, law.b, law.c, law.d)
        held += [each.low <= value <= each.high for each, value in zip(fitted, KNOWN, strict=True)]
        assert law.b.high - law.b.low > 0.02, "noise must leave room"
        assert law.residual == pytest.approx(0.03, rel=0.4)
    assert held.min() >= 5, held


def test_five_points_leave_wide_intervals_and_more_narrow_them() -> None:
    def widths(computes: tuple[float, ...], runs: int) -> float:
        noise = np.random.default_rng(0).normal(0, 0.02, (len(computes), runs))
        points = [(x, error(x, *KNOWN) * math.exp(e)) for x, row in zip(computes, noise, strict=True) for e in row]
        law = fit_scaling_law(points, unit="core-days")
        return law.b.high - law.b.low

    assert widths(COMPUTES[::2], 1) > 2 * widths(COMPUTES, 5)


def test_the_same_points_in_any_order_give_the_same_law() -> None:
    noise = np.random.default_rng(1).normal(0, 0.03, len(COMPUTES))
    points = [(x, error(x, *KNOWN) * math.exp(e)) for x, e in zip(COMPUTES, noise, strict=True)]
    assert fit_scaling_law(points, unit="s") == fit_scaling_law(points[::-1], unit="s")


def test_the_papers_own_points_give_a_law() -> None:
    chart = published("scaling").chart
    assert chart is not None
    for series in (chart.series[0], None):
        of = chart.series if series is None else (series,)
        points = [(float(point.x), 1 - point.y) for one in of for point in one.points]
        law = fit_scaling_law(points, unit="exaFLOPs")
        numbers = [end for each in (law.a, law.b, law.c, law.d) for end in (each.low, each.value, each.high)]
        assert all(map(math.isfinite, numbers))
        assert law.residual < 0.1
        curve = law.curve()
        assert (curve[0][0], curve[-1][0]) == pytest.approx((min(points)[0], max(points)[0]))
        assert all(later[1] < earlier[1] for earlier, later in zip(curve, curve[1:], strict=False))
        assert str(len(points)) in law.sentence()
        assert "exaFLOPs" in law.sentence()


@every_case(
    ("points", "message"),
    [
        ([], "at least 5 amounts of compute; there are 0"),
        ([(x, 1 / x) for x in (1, 2, 3, 4)], "there are 4"),
        ([(x, 0.5 + 0.01 * x) for x in (1.0, 1.0, 2.0, 2.0, 3.0, 4.0)], "there are 4"),
        ([(100 + x, 0.5 - 0.01 * x) for x in range(6)], "less than twice"),
        ([(4.0**x, 0.5) for x in range(6)], "errors are all the same"),
        ([(4.0**x, x / 10) for x in range(6)], "without a mistake"),
        ([(x, 0.5) for x in range(6)], "above 0"),
        ([(4.0**x, math.nan) for x in range(6)], "above 0"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_one_line(points: list[tuple[float, float]], message: str) -> None:
    with pytest.raises(StudyError, match=message) as refusal:
        fit_scaling_law(points, unit="exaFLOPs")
    assert "\n" not in str(refusal.value)
