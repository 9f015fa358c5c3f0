"""Names beside the points of a drawing: each where it hides the least, and none where there is no room for it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitral.report.plots import any_glyph, plain

FONT = 7.5  # points
LETTER = 0.58  # font sizes, the width of a letter
LINE_HEIGHT = 1.15  # font sizes
GAP = 4.0  # points between a point's centre and its label
MARK = 3.0  # points from the centre of a mark to its edge
STEP = 5.0  # points between two obstacles along a line
MOST_HIDDEN = 0.12  # of a label's area that may lie under others; a label that would hide more is left out
SIDES = ((1, 0), (0, 1), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))  # right first


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
