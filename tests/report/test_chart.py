"""A study's chart: every kind of it can be drawn, says what it shows, and hides nothing."""

import json
import math
import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from markupsafe import Markup
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tests.cases import every_case
from vitral.report.chart import Axis, Chart, Point, PointLabel, Series, write_labels
from vitral.report.chart_plot import chart_plot
from vitral.report.plots import light_colours, new_axes, standalone

SHARE = Axis("accuracy", percent=True)
SIZES = Axis("images", log=True)
SVG = "{http://www.w3.org/2000/svg}"


def line(name: str, *points: tuple[float | str, float], deviation: float | None = 0.01) -> Series:
    return Series(name, tuple(Point(x, y, deviation) for x, y in points))


def drawn(chart: Chart) -> ElementTree.Element:
    """Return a chart's drawing, parsed as a browser would."""
    return ElementTree.fromstring(standalone(chart_plot(chart), {}).partition("?>")[2])


def texts(chart: Chart) -> list[str]:
    return ["".join(element.itertext()).strip() for element in drawn(chart).iter(f"{SVG}text")]


def markers(chart: Chart) -> int:
    return sum("style" in use.attrib for use in drawn(chart).iter(f"{SVG}use"))


def test_numbers_on_a_logarithmic_axis_have_plain_ticks_at_the_measured_places() -> None:
    chart = Chart("Size", SIZES, SHARE, (line("ViT", (1.3e6, 0.7), (14e6, 0.8), (303e6, 0.9)),))
    assert {"1.3 M", "14 M", "303 M"} <= set(texts(chart))
    assert {"images", "accuracy", "80%"} <= set(texts(chart))
    assert "ViT" not in texts(chart), "one series needs no legend"


def test_many_measured_places_get_round_ticks() -> None:
    points = [(55.0 * 1.2**step, 0.5 + 0.01 * step) for step in range(24)]
    assert {"100", "1,000"} <= set(texts(Chart("Compute", Axis("exaFLOPs", log=True), SHARE, (line("ViT", *points),))))


@every_case("kind", [SIZES, Axis("width")])
@every_case("x", [0.0004, 1.0, 384.0, 3e15])
def test_a_single_point_stands_in_the_middle(kind: Axis, x: float) -> None:
    chart = Chart("One", kind, SHARE, (line("ViT", (x, 0.5), deviation=None),))
    assert markers(chart) == 1
    shown = {0.0004: "4×10⁻⁴", 1.0: "1", 384.0: "384", 3e15: "3×10¹⁵"}[x]
    assert shown in texts(chart)


def test_categories_stand_by_their_names_each_with_a_dot_of_every_series() -> None:
    series = tuple(line(name, ("a rather long category", 0.5), ("b", 0.6), ("c", 0.7)) for name in ("Adam", "SGD"))
    chart = Chart("Optimizers", Axis(""), SHARE, series)
    assert {"a rather long category", "b", "c", "Adam", "SGD", "accuracy"} <= set(texts(chart))
    assert markers(chart) >= 6 + 2  # and those of the legend


def test_error_bars_are_within_the_axes() -> None:
    wide = Chart("Wide", SIZES, SHARE, (Series("ViT", (Point(10, 0.5, 0.45), Point(100, 0.5, 0.01))),))
    ticks = [float(text.removesuffix("%")) for text in texts(wide) if text.endswith("%")]
    assert min(ticks) <= 20
    assert max(ticks) >= 80


def test_what_has_no_finite_value_is_left_out_and_a_chart_without_values_says_so() -> None:
    some = Series("ViT", (Point(1, math.nan), Point(2, 0.5, math.nan), Point(0, 0.5)))
    assert markers(Chart("Diverged", SIZES, SHARE, (some,))) == 1
    for series in ((), (Series("ViT", ()),), (Series("ViT", (Point(1, math.nan),)),)):
        assert texts(Chart("Nothing", SIZES, SHARE, series)) == ["no values yet"]
    assert texts(Chart("Nothing", SIZES, SHARE, (Series("ViT", (Point("a", math.nan),)),))) == ["no values yet"]


def test_of_many_series_no_two_look_the_same() -> None:
    names = [f"arm {number}" for number in range(14)]
    chart = Chart("Many", SIZES, SHARE, tuple(line(name, (1, 0.5), (10, 0.6)) for name in names))
    assert set(names) <= set(texts(chart))
    looks = re.findall(r'<use xlink:href="#([^"]+)" [^>]*style="fill: (var\(--series-\d\))', str(chart_plot(chart)))
    assert len(set(looks)) == 14


def test_a_curve_is_dashed_and_has_no_points() -> None:
    law = Series("law", tuple(Point(x, 1 / x) for x in (1, 2, 4, 8)), drawn="curve")
    chart = Chart("Law", SIZES, SHARE, (Series("runs", (Point(1, 0.9), Point(8, 0.2)), drawn="dots"), law))
    assert markers(chart) == 2 + 1  # and the runs' in the legend
    assert str(chart_plot(chart)).count("stroke-dasharray: ") == 2  # the curve, and in the legend
    assert [row[0] for row in chart.rows()] == ["series", "runs", "runs"]


def test_a_curve_has_the_colour_of_what_it_is_fitted_to() -> None:
    points = (Point(1, 0.9), Point(8, 0.2))
    runs = tuple(Series(name, points, drawn="dots") for name in ("ViT", "ResNet", "hybrid"))
    law = Series("hybrid, fitted", points, drawn="curve")
    drawing = str(chart_plot(Chart("Law", SIZES, SHARE, (*runs, law))))
    assert "var(--series-3); stroke-width: 1.2" in re.sub(
        r"stroke-dasharray: [^;]*; stroke-dashoffset: [^;]*; ", "", drawing
    )
    assert "var(--series-4)" not in drawing


def test_a_drawing_follows_dark_mode_and_tells_what_it_is() -> None:
    drawing = chart_plot(
        Chart("Size & <more>", SIZES, SHARE, (line("$x_1$ <b>", (1, 0.5), (2, 0.6)), line("猫", (1, 0.4))))
    )
    assert isinstance(drawing, Markup)
    assert "var(--series-1)" in drawing
    assert "#0a0" not in drawing
    assert 'aria-label="Size &amp; &lt;more&gt;: accuracy by images"' in drawing
    assert "<b>" not in drawing


def test_a_drawing_as_a_file_is_on_white_with_plain_colours_and_its_size() -> None:
    chart = Chart("Size", SIZES, SHARE, (line("var(--none)", (1, 0.5)), line("b", (1, 0.4))))
    colours = dict.fromkeys(("ink", "muted", "line", *(f"series-{number}" for number in range(1, 7))), "#123456")
    root = ElementTree.fromstring(standalone(chart_plot(chart), colours).partition("?>")[2])
    assert "background: #fff" in root.attrib["style"]
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    assert abs(float(root.attrib["width"]) - width * 4 / 3) <= 1
    assert abs(float(root.attrib["height"]) - height * 4 / 3) <= 1
    assert light_colours(Markup(":root { --ink: #22252b; } @media { --ink: #fff; }")) == {"ink": "#22252b"}


def test_labels_of_crowded_points_do_not_lie_over_one_another() -> None:
    figure, axes = new_axes()
    points = [(0.1 * (index % 6) + 0.007 * index, 0.02 * index) for index in range(48)]
    axes.scatter(*zip(*points, strict=True))
    labels = [PointLabel(x, y, f"ViT-L/{index}, 14 epochs", "black") for index, (x, y) in enumerate(points)]
    write_labels(figure, labels, points, [points[:4]])
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert 8 <= len(boxes) < len(points), "for some there is no room"
    frame = axes.get_window_extent()
    for box in boxes:
        assert frame.x0 - 12 <= box.x0
        assert box.x1 <= frame.x1 + 12
    for first, second in combinations(boxes, 2):
        width = max(0, min(first.x1, second.x1) - max(first.x0, second.x0))
        height = max(0, min(first.y1, second.y1) - max(first.y0, second.y0))
        assert width * height < 0.25 * min(first.width * first.height, second.width * second.height)


def test_a_label_with_room_is_written_and_its_letters_may_be_any() -> None:
    points = (Point(1, 0.5, label="猫 $a_b$"), Point(10, 0.6, 0.02, "B/16"))
    series = (Series("犬", points), line("鳥 $x$", (3, 0.52)))
    assert {"猫 $a_b$", "B/16", "犬", "鳥 $x$"} <= set(texts(Chart("Labels", SIZES, SHARE, series)))


def test_values_are_texts_for_a_table() -> None:
    points = (Point(1.3e6, 0.7791), Point(303e6, 0.8415, 0.0004, "7 epochs"), Point(5, math.nan))
    rows = Chart("Size", SIZES, SHARE, (Series("ViT", points),)).rows()
    assert rows[0] == ["series", "images", "accuracy", "point"]
    assert rows[1:] == [
        ["ViT", "1.3 M", "77.91%", ""],
        ["ViT", "303 M", "84.15% ± 0.04%", "7 epochs"],
        ["ViT", "5", "–", ""],
    ]


def test_a_chart_is_json_whatever_its_values() -> None:
    chart = Chart("Size", SIZES, SHARE, (line("ViT", (1, math.nan), deviation=math.inf),), note="n")
    said = json.loads(json.dumps(chart.to_json(), allow_nan=False))
    assert said["series"][0]["points"] == [{"x": 1, "y": None, "deviation": None, "label": ""}]
    assert said["x"] == {"label": "images", "log": True, "percent": False}


def test_numbers_and_categories_are_not_mixed() -> None:
    with pytest.raises(AssertionError, match="mixes"):
        Chart("Mixed", SIZES, SHARE, (line("ViT", (1, 0.5), ("b", 0.6)),))
