"""The confusion matrix as a readable figure: all classes if they are few, otherwise the most confused ones."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from vitral.report.plots import INK, LINE, SERIES, new_axes, plain, to_svg
from vitral.tasks.shown import ConfusionMatrix

MOST_CLASSES = 26  # up to which there is room for names and counts
WORST_CLASSES = 20  # shown where there are more
LONGEST_NAME = 16  # characters


@dataclass(frozen=True, eq=False)
class DrawnConfusion:
    """The part of a confusion matrix that is drawn.

    Attributes:
        classes: The indices of the rows' classes; the columns are the same.
        counts: One row per true class; one column per predicted class, and one more for all others if `others`.
        others: Whether classes are left out.
    """

    classes: tuple[int, ...]
    counts: Int64[np.ndarray, "rows columns"]
    others: bool


def shown_confusion(matrix: ConfusionMatrix) -> DrawnConfusion:
    """Choose what to draw: every class in order, or the most confused ones, the worst recall first."""
    num_classes = len(matrix.class_names)
    others = num_classes > MOST_CLASSES
    classes = _most_confused(matrix) if others else list(range(num_classes))
    row_of = {index: row for row, index in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes) + others), dtype=np.int64)
    for truth, predicted, count in matrix.cells:
        if truth in row_of:
            counts[row_of[truth], row_of.get(predicted, len(classes))] += count
    return DrawnConfusion(tuple(classes), counts, others)


def _most_confused(matrix: ConfusionMatrix) -> list[int]:
    confused: dict[int, None] = {}
    wrong = [cell for cell in matrix.cells if cell[0] != cell[1]]
    for truth, predicted, _ in sorted(wrong, key=lambda cell: -cell[2]):
        for index in (truth, predicted):
            if len(confused) < WORST_CLASSES and matrix.support[index]:
                confused[index] = None
    return sorted(confused, key=lambda index: (matrix.recall[index] or 0.0, index))


def confusion_plot(matrix: ConfusionMatrix) -> Markup | None:
    """Draw the confusion matrix with names and counts, each cell as strong as its fraction of the true class.

    None if there are too many classes to show all, and none of them is confused.
    """
    drawn = shown_confusion(matrix)
    if not drawn.classes:
        return None
    support = np.array([matrix.support[index] for index in drawn.classes])
    shares = drawn.counts / np.maximum(support, 1)[:, None]
    rows, columns = shares.shape
    figure, axes = new_axes(width=max(3.6, 0.3 * columns + 1.4), height=max(3.6, 0.3 * rows + 1.4))
    axes.grid(visible=False)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_aspect("equal")
    names = [plain(matrix.class_names[index], longest=LONGEST_NAME) or "·" for index in drawn.classes]
    titles = [*names, "others"] if drawn.others else names
    axes.set_xticks(range(columns), titles, rotation=90 if max(map(len, titles)) > 2 else 0)
    axes.set_yticks(range(rows), names)
    if drawn.others:
        axes.axvline(rows - 0.5, color=LINE, linewidth=1)
    _draw_cells(axes, drawn.counts, shares)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    return to_svg(figure, f"Confusion matrix of {rows} classes, rows true, columns predicted")


def _draw_cells(
    axes: Axes, counts: Int64[np.ndarray, "rows columns"], shares: Float64[np.ndarray, "rows columns"]
) -> None:
    for row, column in zip(*np.nonzero(counts), strict=True):
        colour = SERIES[0] if row == column else SERIES[1]
        strength = 0.12 + 0.88 * shares[row, column]
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour, alpha=strength, linewidth=0))
        # On a strong cell the page's background colour reads best, on a faint one its text colour.
        size = 7.5 if counts[row, column] < 1000 else 6
        text = axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=size, color=INK)
        text.set_gid("on-full" if shares[row, column] > 0.55 else "on-faint")
