"""Drawings of speed: a network's images/s by batch size, and a classifier's settings by accuracy and time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from vitral.advice import counted
from vitral.deployment.bench import Bench, Speed
from vitral.deployment.tune import Tried, Tuned
from vitral.errors import VitralError
from vitral.files import write_file
from vitral.inference.engines import Precision
from vitral.outputs import check_file
from vitral.report.chart import Axis, Chart, Point, Series
from vitral.report.chart_plot import chart_plot
from vitral.report.page import drawing_file

BENCH_MARK = b"<!-- vitral bench -->"  # by which a drawing of ours is recognised
TUNE_MARK = b"<!-- vitral tune -->"


def check_drawing(path: Path, mark: bytes, *, inputs: Iterable[str | Path], overwrite: bool) -> None:
    """Check that a drawing may be written to a file.

    Raises:
        VitralError: The name does not end in .svg.
        StorageError: The file may not be written; what is there is untouched.
    """
    if path.suffix.lower() != ".svg":
        raise VitralError(f"'{path}' is no name for a drawing; let it end in .svg.")
    check_file(path, inputs=inputs, mark=mark, overwrite=overwrite)


def write_chart(chart: Chart, path: Path, mark: bytes) -> None:
    """Write a chart as an SVG file that ends in a mark; a file that is there is replaced.

    Raises:
        StorageError: The file cannot be written.
    """
    write_file(path, f"{drawing_file(chart_plot(chart, titled=True))}\n{mark.decode()}\n")


def speed_chart(found: Bench) -> Chart:
    """Return the images/s of every contender by batch size, and a line for what large products would allow.

    Of a single batch size the contenders stand below one another, a series for each precision.
    """
    sizes = sorted({speed.batch_size for speed in found.speeds})
    limits = {precision: flops / (2e9 * found.gmacs) for precision, flops in found.limits.items()}
    note = f"{found.machine}, {counted(found.threads, 'thread')}"
    alone = len(sizes) == 1
    return Chart(
        title=f"{found.network} at {'x'.join(map(str, found.image_size))} pixels",
        x=Axis("engine") if alone else Axis("batch size", log=True),
        # A limit is many times what is reached: on a linear axis it would press all lines to the ground.
        y=Axis("images/s", log=True),
        series=tuple(_of_one_size(found.speeds, limits) if alone else _by_size(found.speeds, limits, sizes)),
        note=f"batches of {sizes[0]}, {note}" if alone else note,
    )


def _by_size(speeds: Iterable[Speed], limits: Mapping[str, float], sizes: Sequence[int]) -> Iterator[Series]:
    rows: dict[tuple[str, str], list[Point]] = {}
    for speed in sorted(speeds, key=lambda speed: (speed.precision, speed.name, speed.batch_size)):
        own = rows.setdefault((speed.precision, speed.name), [])
        own.append(Point(speed.batch_size, speed.images_per_second))
    for (precision, name), points in rows.items():
        yield Series(f"{name}, {precision}", tuple(points))
    for precision, limit in limits.items():
        yield Series(f"limit of {precision} products", tuple(Point(size, limit) for size in sizes), drawn="curve")


def _of_one_size(speeds: Iterable[Speed], limits: Mapping[str, float]) -> Iterator[Series]:
    fastest = sorted(speeds, key=lambda speed: -speed.images_per_second)
    for precision in dict.fromkeys([*(speed.precision for speed in fastest), *limits]):
        points = [Point(speed.name, speed.images_per_second) for speed in fastest if speed.precision == precision]
        top = [Point("limit of products", limits[precision])] if precision in limits else []
        yield Series(precision, tuple(top + points), drawn="dots")


def tuning_chart(found: Tuned) -> Chart:
    """Return every setting's score by its time, a series for each precision, the best ones joined, and the limit."""
    frontier = found.frontier()
    points: dict[str, list[Point]] = {precision: [] for precision in get_args(Precision)}
    for tried in found.tried:
        label = _label(tried) if tried in frontier and not found.is_chosen(tried) else ""
        way = tried.candidate.way
        points[way.precision].append(_point(tried, label))
    settings = [Series(name, tuple(own), drawn="dots") for name, own in points.items() if own]
    chosen = [
        Series("chosen", (_point(tried, _label(tried)),), drawn="dots")
        for tried in found.tried
        if found.is_chosen(tried)
    ]
    best = Series("no faster one is as good", tuple(map(_point, frontier)), drawn="curve")
    scores = [tried.score for tried in found.tried]
    limit = Series("limit", tuple(Point(found.limit, score) for score in (min(scores), max(scores))), drawn="curve")
    return Chart(
        title=f"{found.network}, {found.images:,} validation images of {found.data}",
        x=Axis("milliseconds an image", log=True),
        y=Axis(found.figure, percent=True),
        series=(*settings, *chosen, best, limit),
        note=f"{found.machine}, {counted(found.threads, 'thread')}",
    )


def _point(tried: Tried, label: str = "") -> Point:
    return Point(float(f"{tried.candidate.milliseconds:.3g}"), tried.score, label=label)


def _label(tried: Tried) -> str:
    candidate = tried.candidate
    merge, (height, width) = candidate.way.merge, candidate.image_size
    return f"{height if height == width else f'{height}x{width}'} px" + (f", merging {merge}" if merge else "")
