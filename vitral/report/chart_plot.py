"""A chart as inline SVG: lines with markers and error bars over numbers, dots with error bars beside categories."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis as DrawnAxis
from matplotlib.axis import XAxis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from vitral.report.chart import Axis, Chart, Point, PointLabel, Series, plain_number, write_labels
from vitral.report.plots import HEIGHT, LINE, MUTED, SERIES, WIDTH, draw_legend, new_axes, plain, share_text, to_svg

MARKERS = "os^DvP"  # of the first six series, the next six, ...
LEGEND_ROW = 0.17  # inches
CROWDED = 8  # labels, above which the drawing is higher
MORE_HEIGHT = 1.1  # inches by which it is higher
ROW = 0.24  # inches of a category
SERIES_ROW = 0.13  # inches of each series in it
SPREAD_OUT = 0.72  # of a category's row, that its dots take
MARGIN = 0.08  # of an axis, on either side of the points
MOST_TICKS = 7
ROUND = (1, 2, 2.5, 5, 10)  # distances of ticks
LETTER = 0.019  # of an axis's length, that a letter of a tick's label takes
# Letters of a category, of a series and of the heading.
LONGEST_CATEGORY = 26
LONGEST_NAME = 34
LONGEST_HEADING = 70


def chart_plot(chart: Chart, *, titled: bool = False) -> Markup:
    """Draw a chart, in the page's colours; with its title and its note in it where no page is around it.

    Numbers run along the horizontal axis; categories, whose names are long, stand below one another, each with a dot per
    series. Error bars are one standard deviation to either side. Points without a finite value are left out; of a chart
    without any point the empty axes say so.
    """
    columns = _columns(chart.series)
    rows = math.ceil(len(chart.series) / columns) if len(chart.series) > 1 else 0
    if chart.is_categorical:
        height = 0.7 + len(_categories(chart)) * (ROW + SERIES_ROW * len(chart.series))
    else:
        labels = sum(bool(point.label) for series in chart.series for point in series.points)
        height = HEIGHT + (MORE_HEIGHT if labels > CROWDED else 0)
    figure, axes = new_axes(width=WIDTH, height=height + LEGEND_ROW * rows)
    if not any(_known(chart, series) for series in chart.series):
        axes.text(
            0.5, 0.5, "no values yet", transform=axes.transAxes, ha="center", va="center", color=MUTED, fontsize=10
        )
        axes.set(xticks=[], yticks=[])
    else:
        _draw_points(figure, axes, chart, columns)
    if titled:
        heading = [plain(text, longest=LONGEST_HEADING) for text in (chart.title, chart.note) if text]
        axes.set_title("\n".join(heading), loc="left", fontsize=9, color=MUTED)
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * len(heading))
    return to_svg(figure, f"{chart.title}: {chart.y.label} by {chart.x.label}")


def _draw_points(figure: Figure, axes: Axes, chart: Chart, columns: int) -> None:
    rows = _rows(chart) if chart.is_categorical else {}
    every: list[Point] = []
    centres: list[tuple[float, float]] = []
    lines: list[list[tuple[float, float]]] = []
    labels: list[PointLabel] = []
    for index, series in enumerate(chart.series):
        points, (colour, marker) = _known(chart, series), _look(chart, index)
        if rows:
            drawn, xy = "dots", [(point.y, rows[str(point.x)][index]) for point in points]
        else:
            points.sort(key=lambda point: _number(point.x))
            drawn, xy = series.drawn, [(_number(point.x), point.y) for point in points]
        _draw_series(axes, series.name, drawn, xy, colour, marker)
        _draw_spread(axes, points, xy, colour, upright=not rows)
        every += points
        if drawn != "curve":
            centres += xy
            named = zip(points, xy, strict=True)
            labels += [PointLabel(*centre, point.label, colour) for point, centre in named if point.label]
        if drawn != "dots":
            lines.append(xy)
    if rows:
        _draw_categories(axes, list(rows))
    else:
        _scale(axes.xaxis, chart.x, [_number(point.x) for point in every], sorted({x for x, _ in centres}))
    # The values' axis shows the ends of the error bars, too.
    ends = [point.y + sign * (point.spread or 0.0) for point in every for sign in (-1, 1)]
    _scale(axes.xaxis if rows else axes.yaxis, chart.y, [end for end in ends if not chart.y.log or end > 0])
    across, up = (chart.y, chart.x) if rows else (chart.x, chart.y)
    axes.set(xlabel=plain(across.label, longest=60), ylabel=plain(up.label, longest=50))
    draw_legend(figure, columns=columns)
    write_labels(figure, labels, centres, lines)


def _draw_categories(axes: Axes, names: Sequence[str]) -> None:
    for row in range(1, len(names)):
        axes.axhline(row - 0.5, color=LINE, linewidth=0.8)
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(names)), [plain(name, longest=LONGEST_CATEGORY) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def _rows(chart: Chart) -> dict[str, dict[int, float]]:
    """Return for each category the heights at which the dots of its series are, by the series' index."""
    series_of = {
        name: [index for index, series in enumerate(chart.series) if any(point.x == name for point in series.points)]
        for name in _categories(chart)
    }
    step = SPREAD_OUT / max(map(len, series_of.values()))
    return {
        name: {index: row + (slot - (len(own) - 1) / 2) * step for slot, index in enumerate(own)}
        for row, (name, own) in enumerate(series_of.items())
    }


def _draw_series(
    axes: Axes, name: str, drawn: str, xy: Sequence[tuple[float, float]], colour: str, marker: str
) -> None:
    width, dashes = {"joined": (1.6, "-"), "dots": (0, "none"), "curve": (1.2, (0, (4, 2.5)))}[drawn]
    axes.plot(
        [x for x, _ in xy],
        [y for _, y in xy],
        color=colour,
        linewidth=width,
        linestyle=dashes,
        marker=None if drawn == "curve" else marker,
        markersize=5,
        label=plain(name, longest=LONGEST_NAME),
    )


def _draw_spread(
    axes: Axes, points: Sequence[Point], xy: Sequence[tuple[float, float]], colour: str, *, upright: bool
) -> None:
    """Draw the error bars of those points that have a deviation."""
    for point, (x, y) in zip(points, xy, strict=True):
        if point.spread:
            up, across = (point.spread, None) if upright else (None, point.spread)
            axes.errorbar(x, y, yerr=up, xerr=across, fmt="none", ecolor=colour, elinewidth=1.2, capsize=2.5)


def _known(chart: Chart, series: Series) -> list[Point]:
    """Return the points that can be drawn: a run that diverged may have no finite value."""
    return [point for point in series.points if chart.x.shows(point.x) and chart.y.shows(point.y)]


def _categories(chart: Chart) -> list[str]:
    return list(dict.fromkeys(str(point.x) for series in chart.series for point in series.points))


def _columns(series: Sequence[Series]) -> int:
    """Return in how many columns the legend fits the drawing's width."""
    longest = max((len(each.name) for each in series), default=0)
    return 3 if longest <= 14 else 2 if longest <= 26 else 1


def _look(chart: Chart, index: int) -> tuple[str, str]:
    """Return the colour and the marker of a series: a fitted curve has those of what it is fitted to."""
    own = chart.series[index]
    if own.drawn == "curve":
        others = enumerate(chart.series)
        index = next((at for at, other in others if other.drawn != "curve" and own.name.startswith(other.name)), index)
    return SERIES[index % len(SERIES)], MARKERS[index // len(SERIES) % len(MARKERS)]


def _number(x: float | str) -> float:
    assert not isinstance(x, str)
    return float(x)


def _scale(axis: DrawnAxis, kind: Axis, values: Sequence[float], own: Sequence[float] = ()) -> None:
    """Set an axis's scale, its limits by the values to show, and its ticks, which stand at `own` if these have room."""
    forward: Callable[[float], float] = math.log if kind.log else float
    backward: Callable[[float], float] = math.exp if kind.log else float
    low, high = forward(min(values)), forward(max(values))
    margin = MARGIN * (high - low) or (math.log(2) if kind.log else 0.05 * abs(high) or 1.0)
    low, high = low - margin, high + margin
    across = isinstance(axis, XAxis)
    if kind.log:
        (axis.axes.set_xscale if across else axis.axes.set_yscale)("log")
    (axis.axes.set_xlim if across else axis.axes.set_ylim)(backward(low), backward(high))
    text = share_text if kind.percent else plain_number
    ticks = _with_room(own, forward, text, high - low)
    if kind.log and not ticks:
        ticks = _log_ticks(backward(low), backward(high))
    axis.set_major_locator(FixedLocator(ticks) if ticks else MaxNLocator(nbins=5, steps=ROUND))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def _with_room(
    own: Sequence[float], forward: Callable[[float], float], text: Callable[[float], str], length: float
) -> list[float]:
    """Return those of a few ascending values that an axis of that length has room for; none if that is less than half."""
    room = LETTER * length * (1 + max((len(text(value)) for value in own), default=0))
    ticks: list[float] = []
    for value in own:
        if not ticks or forward(value) - forward(ticks[-1]) >= room:
            ticks.append(value)
    return ticks if len(own) <= min(MOST_TICKS, 2 * len(ticks)) else []


def _log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two others: as few per factor of ten as give three, else evenly spaced ones."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5)):
        ticks = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
        if len(ticks) >= 3:
            return ticks[:: math.ceil(len(ticks) / MOST_TICKS)]
    return [float(tick) for tick in MaxNLocator(nbins=5, steps=ROUND).tick_values(low, high) if low <= tick <= high]
