"""A figure of a study as plain values: series of points with their deviations, what its axes are, and names beside points.

A name stands where it hides the least, and none where there is no room for it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitral.report.plots import any_glyph, plain
from vitral.tasks.shown import NO_VALUE, percent

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FONT = 7.5  # points
LETTER = 0.58  # font sizes, the width of a letter
LINE_HEIGHT = 1.15  # font sizes
GAP = 4.0  # points between a point's centre and its label
MARK = 3.0  # points from the centre of a mark to its edge
STEP = 5.0  # points between two obstacles along a line
MOST_HIDDEN = 0.12  # of a label's area that may lie under others; a label that would hide more is left out
SIDES = ((1, 0), (0, 1), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))  # right first


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
        x: The horizontal axis: numbers, or categories where the points' x are texts.
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


@dataclass(frozen=True)
class PointLabel:
    """A name for a point of the axes' data, and the colour of its letters."""

    x: float
    y: float
    text: str
    colour: str


@dataclass(frozen=True)
class Box:
    """A rectangle on the drawing, in points of 1/72 inch."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def area(self) -> float:
        """Its area; 0 where it is empty."""
        return max(0.0, self.right - self.left) * max(0.0, self.top - self.bottom)

    def shared(self, other: "Box") -> float:
        """Return the area that lies in both."""
        left, right = max(self.left, other.left), min(self.right, other.right)
        return Box(left, max(self.bottom, other.bottom), right, min(self.top, other.top)).area


def write_labels(
    figure: Figure,
    labels: Sequence[PointLabel],
    points: Iterable[tuple[float, float]],
    lines: Iterable[Sequence[tuple[float, float]]] = (),
) -> None:
    """Write labels beside their points; those for which there is no room are left out.

    Args:
        figure: A drawing that is otherwise finished, with one axes.
        labels: The names, the most important first.
        points: All points of the drawing, in the axes' data: nothing is written over them.
        lines: The lines between points, by their corners: labels cover them only where there is no other room.
    """
    if not labels:
        return
    with any_glyph():
        figure.draw_without_rendering()  # only now the layout is known
    axes = figure.axes[0]
    frame = _frame(figure, axes)
    marks = [_around(centre) for centre in _drawn(figure, axes, points)]
    strokes = [box for line in lines for box in _along(_drawn(figure, axes, line))]
    written: list[Box] = []
    for label in labels:
        text = plain(label.text)
        (centre,) = _drawn(figure, axes, [(label.x, label.y)])
        own = _around(centre)
        taken = [*written, *(mark for mark in marks if mark != own)]
        boxes = [_beside(centre, text, side) for side in SIDES]
        hidden = [sum(box.shared(other) for other in taken) + box.area - box.shared(frame) for box in boxes]
        crossed = [sum(box.shared(stroke) for stroke in strokes) for box in boxes]
        best = min(range(len(SIDES)), key=lambda index: (hidden[index] + 0.5 * crossed[index], index))
        if hidden[best] <= MOST_HIDDEN * boxes[best].area:
            written.append(boxes[best])
            _write(axes, label, text, SIDES[best])


def _write(axes: Axes, label: PointLabel, text: str, side: tuple[int, int]) -> None:
    horizontal, vertical = {1: "left", 0: "center", -1: "right"}, {1: "bottom", 0: "center", -1: "top"}
    note = axes.annotate(
        text,
        (label.x, label.y),
        xytext=(side[0] * GAP, side[1] * GAP),
        textcoords="offset points",
        ha=horizontal[side[0]],
        va=vertical[side[1]],
        fontsize=FONT,
        color=label.colour,
    )
    note.set_in_layout(False)  # else the axes would shrink to make room for it, and the labels' points would move


def _beside(centre: tuple[float, float], text: str, side: tuple[int, int]) -> Box:
    width, height = LETTER * FONT * len(text), LINE_HEIGHT * FONT
    left = centre[0] + side[0] * GAP - (0.5 - 0.5 * side[0]) * width
    bottom = centre[1] + side[1] * GAP - (0.5 - 0.5 * side[1]) * height
    return Box(left, bottom, left + width, bottom + height)


def _around(centre: tuple[float, float], reach: float = MARK) -> Box:
    return Box(centre[0] - reach, centre[1] - reach, centre[0] + reach, centre[1] + reach)


def _along(corners: Sequence[tuple[float, float]]) -> Iterable[Box]:
    for (x, y), (next_x, next_y) in zip(corners, corners[1:], strict=False):
        steps = max(1, round(max(abs(next_x - x), abs(next_y - y)) / STEP))
        for step in range(steps):
            share = (step + 0.5) / steps
            yield _around((x + share * (next_x - x), y + share * (next_y - y)), 0.5 * STEP)


def _drawn(figure: Figure, axes: Axes, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return where points of the data are on the drawing."""
    centres = [axes.transData.transform(point) * 72 / figure.dpi for point in points]
    return [(float(x), float(y)) for x, y in centres]


def _frame(figure: Figure, axes: Axes) -> Box:
    box = axes.get_window_extent()
    scale = 72 / figure.dpi
    return Box(scale * box.x0, scale * box.y0, scale * box.x1, scale * box.y1)
