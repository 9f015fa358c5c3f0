"""The report's figures as inline SVG, in the page's own colours, so that dark mode and print change them too."""

import contextlib
import io
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from jaxtyping import Float32, Float64, Int64
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from vitral.advice import capital
from vitral.explanation.network import AttentionDistance
from vitral.report.results import Curve
from vitral.report.study import Study
from vitral.tasks.shown import ConfusionMatrix, ReliabilityBin

# Colours that no figure would contain by chance; in the SVG they are replaced by the page's variables.
INK = "#0a0a01"
MUTED = "#0a0a02"
LINE = "#0a0a03"
SERIES = ("#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05", "#0a0b06")
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)},
}
MOST_POINTS = 200  # of a curve; of more, each point is the mean of several, which also smooths the noise
MOST_PANELS = 14  # of position embeddings, in each direction
SMOOTHED = 840  # pixels from which an image need not be enlarged
FEWEST_IMAGES = 30  # of which it is drawn whether the probabilities are right: of fewer it is chance
FEW_ARMS = 8
ROOMY = 0.62  # inches for each of few arms
CLOSE = 0.34  # inches for each of many
WIDTH = 4.7  # inches, at 96 pixels per inch
HEIGHT = 3.3
MOST_CLASSES = 26  # up to which there is room for names and counts
WORST_CLASSES = 20  # shown where there are more
LONGEST_NAME = 16  # characters


def curve_plot(curves: Sequence[Curve], quantity: str, *, label: str, percent: bool = False) -> Markup | None:
    """Draw a quantity ("loss", "accuracy", "learning_rate") by step; None if no curve has two points of it.

    For a single run, training and validation have one colour each; for several runs each name has one, validation solid
    and training thin.
    """
    figure, axes = new_axes()
    drawn: set[str] = set()
    longest = 0
    names = list(dict.fromkeys(curve.name for curve in curves))
    for curve in curves:
        for kind in ("training", "validation"):
            steps, values = _points(curve.rows, quantity, kind)
            if not steps:
                continue
            single = len(names) == 1
            colour = SERIES[(kind == "validation") if single else names.index(curve.name) % len(SERIES)]
            width = 1.8 if single or kind == "validation" else 0.7
            name = kind if single else f"{curve.name}, {kind}"
            mark = "o" if len(steps) == 1 else None
            label_once = None if name in drawn else plain(name)
            axes.plot(steps, values, color=colour, linewidth=width, marker=mark, label=label_once)
            drawn.add(name)
            longest = max(longest, len(steps))
    if longest < 2:
        return None
    axes.set(xlabel="step", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if percent:
        _percent_axis(axes.yaxis)
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    draw_legend(figure)
    return to_svg(figure, f"{label} by step: {', '.join(sorted(drawn))}")


def _points(
    rows: Sequence[Mapping[str, int | float]], quantity: str, kind: str
) -> tuple[list[int | float], list[int | float]]:
    keys = {quantity, f"train/{quantity}", f"training/{quantity}"} if kind == "training" else {f"validation/{quantity}"}
    pairs = [(row["step"], row[key]) for row in rows for key in keys if key in row]
    if len(pairs) <= MOST_POINTS:
        return [step for step, _ in pairs], [value for _, value in pairs]
    groups = np.array_split(np.array(pairs), MOST_POINTS)
    means = np.array([group.mean(axis=0) for group in groups])
    return means[:, 0].tolist(), means[:, 1].tolist()


def comparison_plot(study: Study) -> Markup | None:
    """Draw the headline figure of each arm: one dot per run, the mean as a bar, one standard deviation to either side.

    None where fewer than two runs have that figure.
    """
    headline = study.headline
    arms = [arm for arm in study.arms if arm.values(headline.name)]
    if sum(len(arm.values(headline.name)) for arm in arms) < 2:
        return None
    figure, axes = new_axes(height=0.7 + (ROOMY if len(arms) <= FEW_ARMS else CLOSE) * len(arms))
    for row, arm in enumerate(arms):
        colour, values, mean = SERIES[row % len(SERIES)], arm.values(headline.name), arm.mean(headline.name)
        if len(values) > 1:
            deviation = arm.deviation(headline.name)
            axes.plot([mean - deviation, mean + deviation], [row, row], color=colour, linewidth=7, alpha=0.25)
        axes.plot([mean] * 2, [row - 0.24, row + 0.24], color=colour, linewidth=2)
        axes.scatter(values, [row] * len(values), s=26, color=colour, zorder=3)
    axes.set_yticks(range(len(arms)), [plain(arm.name) for arm in arms])
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.grid(visible=False, axis="y")
    if headline.is_share:
        _percent_axis(axes.xaxis)
    axes.set_xlabel(plain(headline.title))
    means = "; ".join(f"{arm.name}: {headline.text(arm.mean(headline.name))}" for arm in arms)
    return to_svg(figure, f"{capital(headline.title)} of {means}")


def reliability_plot(bins: Sequence[ReliabilityBin]) -> Markup | None:
    """Draw accuracy against confidence: on the diagonal a probability means what it says.

    None of fewer than two points, or of images too few to tell.
    """
    total = sum(bin.count for bin in bins)
    full = [(bin.confidence, bin.accuracy, bin.count) for bin in bins if bin.confidence is not None]
    if len(full) < 2 or total < FEWEST_IMAGES:
        return None
    figure, axes = new_axes(width=3.9, height=3.6)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="as it should be")
    confidences, accuracies, counts = np.array(full, dtype=np.float64).T
    sizes = 6 + 90 * counts / total
    axes.plot(confidences, accuracies, color=SERIES[0], linewidth=1, label="this model")
    axes.scatter(confidences, accuracies, s=sizes, color=SERIES[0], zorder=3, clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    for axis in (axes.xaxis, axes.yaxis):
        _percent_axis(axis)
    draw_legend(figure)
    return to_svg(figure, "Accuracy by confidence; on the diagonal the probabilities are right")


def distance_plot(distance: AttentionDistance) -> Markup:
    """Draw the mean attention distance of every head by layer (figure 7, right)."""
    figure, axes = new_axes()
    for layer, heads in enumerate(distance.pixels, start=1):
        axes.scatter([layer] * len(heads), heads, s=22, color=SERIES[0], alpha=0.75, linewidths=0)
    axes.set(xlabel="layer", ylabel="mean attention distance (pixels)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return to_svg(figure, "Mean attention distance of each head by layer")


def position_plot(similarity: Float32[np.ndarray, "rows columns rows columns"]) -> Markup:
    """Draw the similarity of position embeddings, one panel per patch (figure 7, centre)."""
    rows, columns = similarity.shape[:2]
    shown_rows, shown_columns = _evenly(rows), _evenly(columns)
    gap = max(1, rows // 7)
    height, width = rows + gap, columns + gap
    panels = similarity[np.ix_(shown_rows, shown_columns)].astype(np.float64)
    panels = np.pad(panels, ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    sheet = panels.swapaxes(1, 2).reshape(len(shown_rows) * height, -1)[:-gap, :-gap]
    figure, axes = new_axes(width=4.6, height=0.5 + 3.6 * sheet.shape[0] / sheet.shape[1])
    axes.grid(visible=False)
    extent = (0.0, sheet.shape[1], sheet.shape[0], 0.0)
    factor = max(1, SMOOTHED // max(sheet.shape))  # so that a browser does not smooth the pixels of a small image
    enlarged = sheet.repeat(factor, axis=0).repeat(factor, axis=1)
    image = axes.imshow(enlarged, cmap="viridis", vmin=-1, vmax=1, interpolation="none", extent=extent)
    axes.set_xticks([(index + 0.5) * width - gap / 2 for index in range(len(shown_columns))], shown_columns + 1)
    axes.set_yticks([(index + 0.5) * height - gap / 2 for index in range(len(shown_rows))], shown_rows + 1)
    axes.set(xlabel="input patch column", ylabel="input patch row")
    bar = figure.colorbar(image, ax=axes, fraction=0.045, pad=0.03, ticks=[-1, 0, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=MUTED, labelsize=8, length=0)
    bar.set_label("cosine similarity", color=MUTED, fontsize=9)
    return to_svg(figure, f"Cosine similarity of the position embeddings of {rows} by {columns} patches")


def _evenly(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, MOST_PANELS)).round().astype(int))


def new_axes(*, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Return a figure of that size in inches with one axes, in the page's style."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.set_facecolor("none")
    axes.grid(color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(LINE)
    axes.tick_params(colors=MUTED, labelsize=8.5, length=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(MUTED)
        axis.label.set_fontsize(9)
    return figure, axes


def share_text(share: float) -> str:
    """Return a share, 0 to 1, as an axis has it: in per cent, with no more digits than it needs."""
    return f"{100 * share:.4g}%"


def _percent_axis(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda share, _: share_text(share)))
    axis.set_major_locator(MaxNLocator(nbins=5))


def draw_legend(figure: Figure, *, columns: int = 2) -> None:
    """Name what a figure shows, where that is more than one thing, above the axes, where it hides nothing."""
    handles, _ = figure.axes[0].get_legend_handles_labels()
    if len(handles) > 1:
        figure.legend(
            loc="outside upper left", ncols=columns, frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.4
        )


def plain(text: str, *, longest: int = 40) -> str:
    """Prepare a name for a drawing: short, in characters that XML allows, with dollar signs escaped."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return (line if len(line) <= longest else line[: longest - 1] + "…").replace("$", r"\$")


@contextlib.contextmanager
def any_glyph() -> Iterator[None]:
    """Allow text that matplotlib's font lacks glyphs of, while a figure is laid out or written: the browser has them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def to_svg(figure: Figure, description: str) -> Markup:
    """Return a figure as inline SVG; the description is its alternative text."""
    buffer = io.StringIO()
    with any_glyph(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vitral"}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None}, bbox_inches="tight", pad_inches=0.06
        )
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' xmlns(:\w+)?="[^"]*"', "", drawing)
    drawing = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', "", drawing, count=1)
    for colour, variable in VARIABLES.items():
        drawing = drawing.replace(colour, variable)
    head = f'<svg role="img" aria-label="{escape(description)}" style="max-width: {96 * figure.get_figwidth():.0f}px"'
    return Markup(_own_ids(drawing.replace("<svg", head, 1)))  # matplotlib escapes what it writes


def standalone(drawing: Markup, colours: Mapping[str, str]) -> str:
    """Return inline SVG that `to_svg` gave as a file of its own, on white, in these colours of the page's variables."""
    text = re.sub(r"var\(--([\w-]+)\)", lambda match: colours.get(match[1], match[0]), str(drawing))
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head, _, rest = text.partition(">")
    width, height = (4 / 3 * float(size) for size in re.findall(r"[\d.]+", head.partition('viewBox="')[2])[2:4])
    size = f'width="{width:.0f}" height="{height:.0f}"'  # pixels; a browser has no other measure for an image
    head = head.replace("<svg", f"<svg {names} {size}", 1).replace('style="', 'style="background: #fff; ')
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}>{rest}'


def light_colours(style: Markup) -> dict[str, str]:
    """Return the style sheet's colours for light pages by the names of their variables."""
    root = str(style).partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#\w+)", root))


def _own_ids(drawing: str) -> str:
    """Make the ids of a drawing unique: a page has several drawings, and a reference finds the first."""
    prefix = f"p{zlib.crc32(drawing.encode(errors='replace'))}-"
    drawing = re.sub(r'\bid="(?!on-)', f'id="{prefix}', drawing)
    drawing = re.sub(r'\bid="(on-\w+)"', r'class="\1"', drawing)
    return drawing.replace("url(#", f"url(#{prefix}").replace('href="#', f'href="#{prefix}')


@dataclass(frozen=True, eq=False)
class DrawnConfusion:
    """The part of a confusion matrix that is drawn.

    Attributes:
        classes: The indices of the rows' classes; the columns are the same.
        counts: One row per true class; one column per predicted class, and one more for all others if `others`.
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
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal", xlabel="predicted", ylabel="true")
    names = [plain(matrix.class_names[index], longest=LONGEST_NAME) or "·" for index in drawn.classes]
    titles = [*names, "others"] if drawn.others else names
    axes.set_xticks(range(columns), titles, rotation=90 if max(map(len, titles)) > 2 else 0)
    axes.set_yticks(range(rows), names)
    if drawn.others:
        axes.axvline(rows - 0.5, color=LINE, linewidth=1)
    _draw_cells(axes, drawn.counts, shares)
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
