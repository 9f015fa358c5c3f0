"""A run's self-contained page: everything inline, images as compact `data:` addresses, nothing fetched, no scripts."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from markupsafe import Markup
from PIL import Image

from vitral.advice import printable
from vitral.events import shots_of
from vitral.files import write_file
from vitral.images.decode import Pixels
from vitral.outputs import check_file
from vitral.report.plots import (
    confusion_plot,
    curve_plot,
    distance_plot,
    light_colours,
    position_plot,
    reliability_plot,
    shown_confusion,
    standalone,
)
from vitral.report.results import CurveGroup, RunReport
from vitral.report.template import mark, page_style, render_page, scale
from vitral.tasks.shown import Drawing, ReliabilityDiagram, fitting_digits, percent, photos_of
from vitral.tasks.task import Result

LOSSLESS_BYTES = 60_000  # drawings and tiny images stay exact; photos would bloat the page
QUALITY = 82
PIXELATED = 64  # pixels of the longer side up to which an image is shown with its pixels as squares
WIDE_FROM = 12  # classes, from which a confusion matrix needs the page's full width
OPEN_ROWS = 20  # up to which a collapsible table is shown open
SHOWN_BAD_IMAGES = 20
# Pixels of the longer side of a drawing, an image and an example beside a table's row.
LARGEST_SHEET = 1000
LARGEST_IMAGE = 260
LARGEST_EXAMPLE = 96
LARGEST_MARKED = 480
FILTER_SIDE = 64  # pixels, to which a filter is enlarged
FILTER_COLUMNS = 7
CONFUSION = (
    "Confusion matrix: rows are the true classes, columns the predictions. Blue is right, red is wrong; the stronger "
    "the colour, the larger the fraction of the row."
)
RELIABILITY = (
    "Are the probabilities right? On the dashed line, of the photos that are predicted with a probability of 80%, "
    "80% are right. The larger a dot, the more photos it stands for."
)
TRUST = (
    "Trust a map to show when a background, a caption or a watermark decides; it is coarse, it does not say why, and it is no "
    "proof that an answer is right."
)


@dataclass(frozen=True)
class Inlined:
    """An image ready for a page: a `data:` address, its size, and whether its pixels are shown as squares."""

    uri: str
    width: int
    height: int
    pixelated: bool


def inline(content: Pixels | bytes, *, largest: int) -> Inlined:
    """Encode pixels or an encoded image for a page, its longer side at most `largest` pixels.

    PNG if that is small, otherwise JPEG.
    """
    image = Image.open(io.BytesIO(content)) if isinstance(content, bytes) else Image.fromarray(content)
    image = image.convert("RGB")
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    return Inlined(_uri(image), image.width, image.height, max(image.size) <= PIXELATED)


def _uri(image: Image.Image) -> str:
    content, kind = _encoded(image, "PNG"), "png"
    if len(content) > LOSSLESS_BYTES:
        content, kind = _encoded(image, "JPEG"), "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    # A PNG that is optimised is 2 to 6 % smaller, but takes five times as long: seconds of a report with 60 images.
    image.save(buffer, kind, **({"quality": QUALITY, "optimize": True} if kind == "JPEG" else {}))
    return buffer.getvalue()


def filter_sheet(
    filters: Float32[np.ndarray, "filters patch_height patch_width 3"],
) -> UInt8[np.ndarray, "height width 3"]:
    """Lay images of values 0 to 1 out in rows on mid-grey, each enlarged to about 64 pixels (figure 7, left)."""
    factor = max(1, FILTER_SIDE // max(filters.shape[1:3]))
    cells = np.rint(filters * 255).astype(np.uint8).repeat(factor, axis=1).repeat(factor, axis=2)
    height, width, gap = cells.shape[1], cells.shape[2], FILTER_SIDE // 8
    columns = min(FILTER_COLUMNS, len(cells))
    rows = -(-len(cells) // columns)
    cells = np.pad(cells, ((0, rows * columns - len(cells)), (gap, 0), (gap, 0), (0, 0)), constant_values=128)
    laid = cells.reshape(rows, columns, height + gap, width + gap, 3).swapaxes(1, 2)
    return np.pad(laid.reshape(rows * (height + gap), -1, 3), ((0, gap), (0, gap), (0, 0)), constant_values=128)


def write_report(report: RunReport, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a report as one HTML file.

    Raises:
        StorageError: The file cannot be written, or exists and is not a report of this kind.
    """
    check_file(path, mark=mark(report.kind), overwrite=overwrite)
    write_file(Path(path), render_report(report))


def render_report(report: RunReport) -> str:
    """Return a report as HTML: no script, no address but `data:`, every user text escaped."""
    evaluation, similarity, filters = report.evaluation, report.position_similarity, report.patch_filters
    digits = 1 if evaluation is None else fitting_digits(evaluation.num_examples)
    return render_page(
        "report.html",
        report.kind,
        report=report,
        accuracy=partial(percent, digits=digits),
        sheet=partial(inline, largest=LARGEST_SHEET),
        inlined=partial(inline, largest=LARGEST_IMAGE),
        marked=partial(inline, largest=LARGEST_MARKED),
        curve_plots=[(group.title, plots) for group in report.curves if (plots := _curve_plots(group))],
        shown_bad_images=SHOWN_BAD_IMAGES,
        open_rows=OPEN_ROWS,
        photos_of=photos_of,
        scale=scale(),
        trust=TRUST,
        positions=position_plot(similarity) if similarity is not None else None,
        filters=inline(filter_sheet(filters), largest=LARGEST_SHEET) if filters is not None else None,
        distances=distance_plot(report.attention_distance) if report.attention_distance else None,
        **(
            {"tiles": (), "outcome": None}
            if evaluation is None
            else _scores(evaluation, report.split, report.example_images)
        ),
    )


def drawing_file(drawing: Markup) -> str:
    """Return an inline drawing as an SVG file of its own, in the colours of a light page."""
    return printable(standalone(drawing, light_colours(page_style())), lines=True)


def _curve_plots(group: CurveGroup) -> list[Markup]:
    names = {name for curve in group.curves for row in curve.rows for name in row}
    few_shot = sorted((shots, name) for name in names if (shots := shots_of(name)) is not None)  # by images a class
    plots = [
        curve_plot(group.curves, "loss", label="loss"),
        curve_plot(group.curves, "accuracy", label="accuracy", percent=True),
        *(
            curve_plot(group.curves, name.removeprefix("validation/"), label=f"{shots}-shot accuracy", percent=True)
            for shots, name in few_shot
        ),
        curve_plot(group.curves, "learning_rate", label="learning rate"),
    ]
    return [plot for plot in plots if plot is not None]


def _scores(evaluation: Result, split: str, images: Mapping[int, Pixels]) -> dict[str, Any]:
    """Return what the page shows of the scores; next to a table's rows stand those of their images that are there."""
    tables = evaluation.tables()
    examples = [
        [[inline(images[index], largest=LARGEST_EXAMPLE) for index in row if index in images] for row in table.examples]
        for table in tables
    ]
    return {
        "tiles": evaluation.tiles(split),
        "outcome": evaluation.answer_counts(),
        "scored": photos_of(split, evaluation.num_examples),
        "lead": evaluation.lead(split),
        "score_drawings": [drawn for drawing in evaluation.drawings() if (drawn := _drawn(drawing))],
        "tables": list(zip(tables, examples, strict=True)),
    }


@dataclass(frozen=True)
class Drawn:
    """A drawing of the scores, what it shows, and whether it needs the page's full width."""

    svg: Markup
    caption: str
    wide: bool = False


def _drawn(drawing: Drawing) -> Drawn | None:
    """Return a result's drawing for the page; None where there is nothing to see."""
    if isinstance(drawing, ReliabilityDiagram):
        diagram = reliability_plot(drawing.bins)
        return None if diagram is None else Drawn(diagram, RELIABILITY)
    svg = confusion_plot(drawing)
    if svg is None:
        return None
    confusion = shown_confusion(drawing)
    part = (
        f" Of the {len(drawing.class_names):,} classes, these {len(confusion.classes)} are confused most often, the worst "
        "first; the last column counts all other predictions."
    )
    return Drawn(svg, CONFUSION + (part if confusion.others else ""), wide=len(confusion.classes) > WIDE_FROM)
