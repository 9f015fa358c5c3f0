"""A figure of a study as plain values: series of points with their deviations, and what its axes are."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vitral.tasks.shown import NO_VALUE, percent

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain_number(value: float) -> str:
    """Return a number without an exponent as far as it is readable so: 0.001, 10,000, 1.3 M, 4×10¹⁵."""
    size = abs(value)
    if 999_999.5 <= size < 1e9:  # six digits of less would be rounded to a million, with an exponent
        return f"{value / 1e6:,.4g} M"
    if size == 0 or 1e-3 <= size < 1e6:
        return f"{value:,.6g}"
    digits, _, power = f"{value:.3e}".partition("e")
    digits = digits.rstrip("0").rstrip(".")
    return f"{'' if digits == '1' else digits + '×'}10{str(int(power)).translate(SUPERSCRIPTS)}"


@dataclass(frozen=True)
class Axis:
    """What one direction of a chart measures.

    Attributes:
        label: The quantity, with its unit where it has one.
        log: Whether equal factors are equal distances; then every value is above 0.
        percent: Whether its values are shares, 0 to 1, and are written in per cent.
    """

    label: str
    log: bool = False
    percent: bool = False

    def shows(self, value: float | str) -> bool:
        """Tell whether a value can be drawn: a category, or a finite number, above 0 if the axis is logarithmic."""
        return isinstance(value, str) or (math.isfinite(value) and not (self.log and value <= 0))

    def text(self, value: float | str) -> str:
        """Return a value on this axis as it is written in a table."""
        if isinstance(value, str):
            return value
        if not math.isfinite(value):
            return NO_VALUE
        return percent(value, 2) if self.percent else plain_number(value)


@dataclass(frozen=True)
class Point:
    """One measurement, or the mean of several with their standard deviation, which is None or NaN for a single one.

    x is the place on the horizontal axis, text for a category; the label stands beside the point where there is room.
    """

    x: float | str
    y: float
    deviation: float | None = None
    label: str = ""

    @property
    def spread(self) -> float | None:
        """The deviation, where there is a finite one."""
        return self.deviation if self.deviation is not None and math.isfinite(self.deviation) else None


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Attributes:
        name: The name in the legend.
        points: The points, in any order.
        drawn: "joined" for points with a line through them, "dots" for points alone, "curve" for a thin line without
            points, as of a fitted law, in the colour of the series with whose name its own begins, if there is one.
            Categories are never joined.
    """

    name: str
    points: tuple[Point, ...]
    drawn: Literal["joined", "dots", "curve"] = "joined"


@dataclass(frozen=True)
class Chart:
    """A figure.

    Attributes:
        title: The title above the chart.
        x: The horizontal axis: numbers, or categories where the points' x are texts.
        y: The axis of the values.
        series: The series, in the legend's order.
        note: The note below the chart; may be empty.
    """

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    note: str = ""

    def __post_init__(self) -> None:
        kinds = {isinstance(point.x, str) for series in self.series for point in series.points}
        assert len(kinds) < 2, f"'{self.title}' mixes numbers and categories"

    @property
    def is_categorical(self) -> bool:
        """Whether the points stand at categories; a chart without points has numbers."""
        return any(isinstance(point.x, str) for series in self.series for point in series.points)

    def rows(self) -> list[list[str]]:
        """Return the points as texts, a heading first: series, x, y with its deviation, and labels where there are any.

        A fitted curve has no row.
        """
        points = [(series, point) for series in self.series if series.drawn != "curve" for point in series.points]
        labelled = any(point.label for _, point in points)
        rows = [
            [series.name, self.x.text(point.x), self._value(point), *([point.label] if labelled else [])]
            for series, point in points
        ]
        return [["series", self.x.label, self.y.label, *(["point"] if labelled else [])], *rows]

    def _value(self, point: Point) -> str:
        mean = self.y.text(point.y)
        return mean if point.spread is None else f"{mean} ± {self.y.text(point.spread)}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; what is not finite becomes null."""
        return _finite(asdict(self))


def _finite(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Published:
    """What a paper says on a study's question: where, in words, and its numbers, unless it prints none."""

    source: str
    note: str
    chart: Chart | None = None
