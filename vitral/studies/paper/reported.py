"""What the ViT paper reports of the experiments that the studies repeat, with where it stands; see published.toml."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from vitral.report.chart import Axis, Chart, Point, Published, Series

FILE = "published.toml"


def published(name: str) -> Published:
    """Return what the paper reports on a study's question.

    Args:
        name: The name of the study, such as "data-size".

    Raises:
        KeyError: The paper's experiments have no such name.
    """
    report = _content()[name]
    return Published(report["source"], report["note"], _chart(report["chart"]) if "chart" in report else None)


def _chart(chart: Mapping[str, Any]) -> Chart:
    y = Axis(**chart["y"])
    return Chart(chart["title"], Axis(**chart["x"]), y, tuple(_series(series, y) for series in chart["series"]))


def _series(series: Mapping[str, Any], y: Axis) -> Series:
    scale = 100 if y.percent else 1
    points = tuple(_point(*point, scale=scale) for point in series["points"])
    return Series(series["name"], points, series.get("drawn", "joined"))


def _point(x: float | str, y: float, deviation: float | str = "", label: str = "", *, scale: int) -> Point:
    return Point(x, y / scale, None if isinstance(deviation, str) else deviation / scale, label)


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / FILE).read_text(encoding="utf-8"))
