"""The speeds of a network as a drawing: images/s by batch size, and the machine's limits above them."""

from pathlib import Path

from vitral.deployment.bench import Bench, Speed
from vitral.files import write_file
from vitral.printable import printable
from vitral.report.chart import Axis, Chart, Point, Series
from vitral.report.chart_plot import chart_plot
from vitral.report.page import page_environment
from vitral.report.plots import light_colours, standalone

MARK = b"<!-- vitral bench -->"  # by which a drawing of ours is known


def speed_chart(found: Bench) -> Chart:
    """Return the images/s of every contender by batch size, and a line for what large products would allow."""
    rows: dict[tuple[str, str], list[Speed]] = {}
    for speed in sorted(found.speeds, key=lambda speed: speed.batch_size):
        rows.setdefault((speed.precision, speed.name), []).append(speed)
    sizes = sorted({speed.batch_size for speed in found.speeds})
    contenders = [
        Series(f"{name}, {precision}", tuple(Point(speed.batch_size, speed.images_per_second) for speed in own))
        for (precision, name), own in sorted(rows.items())
    ]
    limits = [
        Series(
            f"limit of {precision} products",
            tuple(Point(size, flops / (2e9 * found.gmacs)) for size in sizes),
            drawn="curve" if len(sizes) > 1 else "dots",  # a line of one point is none
        )
        for precision, flops in found.limits.items()
    ]
    size = "x".join(map(str, found.image_size))
    return Chart(
        title=f"{found.network} at {size} pixels",
        x=Axis("batch size", log=True),
        y=Axis("images/s"),
        series=(*contenders, *limits),
        note=f"{found.machine}, {found.threads} threads",
    )


def write_speeds(found: Bench, path: Path) -> None:
    """Write the drawing as an SVG file; one that is there is replaced.

    Raises:
        StorageError: it cannot be written.
    """
    drawing = standalone(chart_plot(speed_chart(found), titled=True), light_colours(page_environment()[1]))
    write_file(path, f"{printable(drawing, lines=True)}\n{MARK.decode()}\n")
