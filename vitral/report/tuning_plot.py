"""The settings of a classifier as a drawing: accuracy against the time of an image, and the one that was chosen."""

from pathlib import Path
from typing import get_args

from vitral.deployment.tune import Tried, Tuned
from vitral.files import write_file
from vitral.inference.engines import Precision
from vitral.printable import printable
from vitral.report.chart import Axis, Chart, Point, Series
from vitral.report.chart_plot import chart_plot
from vitral.report.page import page_environment
from vitral.report.plots import light_colours, standalone

MARK = b"<!-- vitral tune -->"  # by which a drawing of ours is known


def tuning_chart(found: Tuned) -> Chart:
    """Return every setting's score by its time, a series for each precision, the best ones joined, and the limit."""
    frontier = found.frontier()
    own = [
        Series(
            precision,
            tuple(
                _point(one, _words(one) if one in frontier and not found.is_chosen(one) else "")
                for one in found.tried
                if one.candidate.way.precision == precision
            ),
            drawn="dots",
        )
        for precision in get_args(Precision)
        if any(one.candidate.way.precision == precision for one in found.tried)
    ]
    best = Series("no faster one is as good", tuple(_point(one) for one in frontier), drawn="curve")
    scores = [one.score for one in found.tried]
    limit = Series("limit", tuple(Point(found.limit, score) for score in (min(scores), max(scores))), drawn="curve")
    chosen = [
        Series("chosen", (_point(one, _words(one)),), drawn="dots") for one in found.tried if found.is_chosen(one)
    ]
    return Chart(
        title=f"{found.network}, {found.images:,} validation images of {found.data}",
        x=Axis("milliseconds an image", log=True),
        y=Axis(found.figure, percent=True),
        series=(*own, *chosen, best, limit),
        note=f"{found.machine}, {found.threads} {'thread' if found.threads == 1 else 'threads'}",
    )


def _point(one: Tried, label: str = "") -> Point:
    return Point(float(f"{one.candidate.milliseconds:.3g}"), one.score, label=label)


def _words(one: Tried) -> str:
    way = one.candidate.way
    merged = f", merging {way.merge}" if way.merge else ""
    height, width = one.candidate.image_size
    return f"{height if height == width else f'{height}x{width}'} px{merged}"


def write_tuning(found: Tuned, path: Path) -> None:
    """Write the drawing as an SVG file; one that is there is replaced.

    Raises:
        StorageError: it cannot be written.
    """
    drawing = standalone(chart_plot(tuning_chart(found), titled=True), light_colours(page_environment()[1]))
    write_file(path, f"{printable(drawing, lines=True)}\n{MARK.decode()}\n")
