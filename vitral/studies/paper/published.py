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
        name: the study's, such as "data-size".

    Raises:
        KeyError: the paper's experiments have no such name.
    """
    said = _content()[name]
    return Published(said["source"], said["note"], _chart(said["chart"]) if "chart" in said else None)


def published_names() -> tuple[str, ...]:
    """Return the names of the studies of which the paper says something."""
    return tuple(_content())


def _chart(said: Mapping[str, Any]) -> Chart:
    y = Axis(**said["y"])
    return Chart(said["title"], Axis(**said["x"]), y, tuple(_series(one, y) for one in said["series"]))


def _series(said: Mapping[str, Any], y: Axis) -> Series:
    scale = 100 if y.percent else 1
    points = tuple(_point(*point, scale=scale) for point in said["points"])
    return Series(said["name"], points, said.get("drawn", "joined"))


def _point(x: float | str, y: float, deviation: float | str = "", label: str = "", *, scale: int) -> Point:
    return Point(x, y / scale, None if isinstance(deviation, str) else deviation / scale, label)


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / FILE).read_text(encoding="utf-8"))
