"""The saturating power law of Scaling ViT (arXiv 2106.04560, section 2), fitted to runs: error by compute.

    E(C) = a (C + d)^-b + c

c is the error that no compute removes; d keeps the error finite where there is hardly any. The fit is by least squares on the
logarithm of the error, so that a run of 2 % error counts as much as one of 40 %. The intervals are a parametric bootstrap's:
the law is fitted anew to errors drawn around the first fit with normal noise, whose size is drawn too, as few runs tell little
of it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from vitral.errors import StudyError
from vitral.report.chart import plain_number
from vitral.seeds import generator

FEWEST = 5  # amounts of compute, one more than there are coefficients
LEAST_SPREAD = 2.0  # times as much compute in the largest run as in the smallest
DRAWS = 400  # fits of the bootstrap
COVERED = 0.95  # share of them that an interval covers
CURVE_POINTS = 60
UNSETTLED = 0.2  # of an interval's upper end, below which its lower end leaves the coefficient open
NOTHING = 1e-9  # of the smallest compute or error, below which d or c is none
# Where searches begin: exponents, and shares of the smallest compute and of the smallest error.
STEEPNESS = (0.2, 0.5, 1.0, 2.0)
OFFSETS = (1e-3, 0.5)
FLOORS = (0.0, 0.5, 0.9)
EXACT = 1e-10  # tolerance of the law's search
ROUGH = 1e-6  # tolerance of a draw's search
STEEPEST = 4.0  # ten times what is observed: beyond, b and d only grow together

Values = Float64[np.ndarray, " points"]


@dataclass(frozen=True)
class Coefficient:
    """A fitted number with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def text(self) -> str:
        """Return the number with its interval."""
        return f"{_short(self.value)} ({_short(self.low)} to {_short(self.high)})"


@dataclass(frozen=True)
class ScalingLaw:
    """A law fitted to runs.

    Attributes:
        a: The factor; its unit depends on b.
        b: The exponent, above 0.
        c: The error rate that remains.
        d: The compute that is added, in the runs' unit.
        points: Compute and error rate of each run, in ascending order.
        unit: The unit of compute, such as "exaFLOPs".
        residual: The root mean square of the logarithms of the runs' errors over the law's.
    """

    a: Coefficient
    b: Coefficient
    c: Coefficient
    d: Coefficient
    points: tuple[tuple[float, float], ...]
    unit: str
    residual: float

    def error_at(self, compute: float) -> float:
        """Return the error rate that the law gives for an amount of compute."""
        return self.a.value * (compute + self.d.value) ** -self.b.value + self.c.value

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Return compute and error rate along the law, from the smallest to the largest run in equal factors."""
        computes = np.geomspace(self.points[0][0], self.points[-1][0], CURVE_POINTS)
        return tuple((float(compute), self.error_at(float(compute))) for compute in computes)

    def sentence(self) -> str:
        """Return the law in words."""
        least, most = self.points[0][0], self.points[-1][0]
        numbers = ", ".join(f"{name} = {getattr(self, name).text()}" for name in "abcd")
        unsettled = [name for name in "abcd" if getattr(self, name).low < UNSETTLED * getattr(self, name).high]
        listed = " and ".join(filter(None, (", ".join(unsettled[:-1]), *unsettled[-1:])))
        doubt = f"They hardly determine {listed}. " if unsettled else ""
        return (
            f"The error follows a (C + d)^-b + c with C in {self.unit} and {numbers} (95% intervals): the {len(self.points)} "
            f"runs are off by {100 * math.expm1(self.residual):.2g}% of their error (root mean square). {doubt}"
            f"The runs are from {_short(least)} to {_short(most)} {self.unit}; beyond, the law is a guess."
        )


def _short(value: float) -> str:
    return plain_number(float(f"{value:.3g}"))


def fit_scaling_law(points: Sequence[tuple[float, float]], *, unit: str) -> ScalingLaw:
    """Fit the law to the compute and the error rate (0 to 1) of runs, both above 0.

    Raises:
        StudyError: There are fewer than five amounts of compute, amounts or errors hardly differ, or a value is not above 0.
    """
    _check(points)
    ordered = tuple(sorted((float(compute), float(error)) for compute, error in points))
    computes, errors = np.array(ordered).T
    scale = float(np.exp(np.log(computes).mean()))  # makes the search the same in every unit
    scaled, logs = computes / scale, np.log(errors)
    best = min((_search(scaled, logs, start, EXACT) for start in _starts(scaled, errors)), key=lambda fit: fit.cost)
    drawn = np.array([_search(scaled, noisy, best.x, ROUGH).x for noisy in _redrawn(logs + best.fun, best.cost)])
    none = NOTHING * np.array([0.0, 0.0, errors.min(), computes[0]])
    fitted, others = (np.where(found > none, found, 0.0) for found in (_in_unit(best.x, scale), _in_unit(drawn, scale)))
    low, high = np.quantile(others, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    a, b, c, d = (
        Coefficient(value, min(value, float(least)), max(value, float(most)))
        for value, least, most in zip(fitted.tolist(), low, high, strict=True)
    )
    return ScalingLaw(a, b, c, d, ordered, unit, math.sqrt(2 * best.cost / len(ordered)))


def _check(points: Sequence[tuple[float, float]]) -> None:
    if not all(math.isfinite(value) and value > 0 for point in points for value in point):
        raise StudyError(
            "A scaling law needs compute and errors above 0; a run without a mistake cannot be on its curve."
        )
    computes, errors = {compute for compute, _ in points}, {error for _, error in points}
    if len(computes) < FEWEST:
        raise StudyError(
            f"A scaling law has 4 coefficients and needs runs of at least {FEWEST} amounts of compute; "
            f"there are {len(computes)}."
        )
    if max(computes) < LEAST_SPREAD * min(computes) or len(errors) == 1:
        alike = "largest run computes less than twice what the smallest does"
        what = "errors are all the same" if len(errors) == 1 else alike
        raise StudyError(f"A scaling law needs runs that differ: the {what}.")


def _starts(computes: Values, errors: Values) -> list[Float64[np.ndarray, " 4"]]:
    """Return where searches begin: several exponents, offsets and floors, each with the factor that suits it."""
    starts = []
    offsets, floors = (share * computes[0] for share in OFFSETS), (share * errors.min() for share in FLOORS)
    for steepness, offset, floor in itertools.product(STEEPNESS, offsets, floors):
        factors = (errors - floor) * (computes + offset) ** steepness
        starts.append(np.array([np.log(factors).mean(), steepness, floor, offset]))
    return starts


def _search(computes: Values, logs: Values, start: Float64[np.ndarray, " 4"], tolerance: float) -> Any:  # noqa: ANN401  # scipy's result
    """Return the best coefficients near a start: log a, b, c, d; c is at most the largest error, d the most compute."""
    from scipy.optimize import least_squares  # half a second of start-up for all other commands

    lower = np.array([-50.0, 1e-4, 0.0, 0.0])
    upper = np.array([50.0, STEEPEST, math.exp(float(logs.max())), float(computes[-1])])

    def law(coefficients: Values) -> tuple[Values, Values]:
        falling = np.exp(coefficients[0] - coefficients[1] * np.log(computes + coefficients[3]))
        return falling, falling + coefficients[2]

    def residuals(coefficients: Values) -> Values:
        return np.log(law(coefficients)[1]) - logs

    def slopes(coefficients: Values) -> Float64[np.ndarray, "points 4"]:
        falling, errors = law(coefficients)
        shifted = computes + coefficients[3]
        columns = (falling, -falling * np.log(shifted), np.ones_like(falling), -coefficients[1] * falling / shifted)
        return np.stack(columns, axis=1) / errors[:, None]

    return least_squares(
        residuals,
        np.clip(start, lower, upper),
        jac=slopes,
        bounds=(lower, upper),
        x_scale="jac",
        ftol=tolerance,
        xtol=tolerance,
        gtol=tolerance,
        max_nfev=200,
    )


def _redrawn(fitted: Values, cost: float) -> list[Values]:
    """Return logarithms of errors as other runs might have had them, from the law's and half the sum of squared residuals."""
    random = generator(0, "scaling law")
    freedom = len(fitted) - 4
    sizes = np.sqrt(2 * cost / random.chisquare(freedom, size=DRAWS))
    return list(fitted + sizes[:, None] * random.standard_normal((DRAWS, len(fitted))))


def _in_unit(coefficients: Float64[np.ndarray, "*fits 4"], scale: float) -> Float64[np.ndarray, "*fits 4"]:
    """Return a, b, c and d for compute in its own unit, from those of the search."""
    log_a, b, c, d = np.moveaxis(coefficients, -1, 0)
    return np.stack([np.exp(log_a + b * math.log(scale)), b, c, d * scale], axis=-1)
