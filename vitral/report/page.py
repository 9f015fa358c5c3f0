"""One self-contained page a run: everything inline, nothing fetched, nothing run."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitral.evaluation.metrics import Evaluation
from vitral.files import write_file
from vitral.outputs import check_file
from vitral.report.pictures import filter_sheet, inline
from vitral.report.plots import (
    comparison_plot,
    confusion_plot,
    curve_plot,
    distance_plot,
    position_plot,
    reliability_plot,
)
from vitral.report.results import Arm, CurveGroup, RunReport

__all__ = ["Arm", "RunReport", "render_report", "write_report"]

NO_VALUE = "–"
THIN_SPACE = "\u202f"  # unbroken, between a number and its percent sign
SURE_OF_HUNDREDTHS = 2000  # pictures, from which on a second decimal of an accuracy says something
OPEN_CLASSES = 20  # rows of the table of classes up to which it is shown unfolded
SHOWN_BAD_IMAGES = 20
LARGEST_SHEET, LARGEST_PICTURE = 1000, 260  # pixels of the longer side


def mark(kind: str) -> bytes:
    """Return what a page of a kind ("run", "scores", "check") says of itself: such a page may be replaced by its like."""
    return f'<meta name="generator" content="Vitral {kind}">'.encode()


def write_report(report: RunReport, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a report as one HTML file.

    Raises:
        StorageError: the file cannot be written, or would replace what is no report of this kind.
    """
    check_file(path, mark=mark(report.kind), overwrite=overwrite)
    # A file name of the user's need not be text; what cannot be written becomes a question mark.
    write_file(Path(path), render_report(report).encode("utf-8", "replace"))


def render_report(report: RunReport) -> str:
    """Return a report as HTML: no script, no address but `data:`, every text of the user escaped."""
    environment, style = page_environment()
    return environment.get_template("report.html").render(
        report=report,
        style=style,
        accuracy=partial(percent, digits=_digits(report.evaluation)),
        sheet=partial(inline, largest=LARGEST_SHEET),
        picture=partial(inline, largest=LARGEST_PICTURE),
        curve_plots=[(group.title, _curve_plots(group)) for group in report.curves],
        shown_bad_images=SHOWN_BAD_IMAGES,
        open_classes=OPEN_CLASSES,
        **_drawings(report),
    )


def page_environment() -> tuple[Environment, Markup]:
    """Return what renders the pages' templates, every text of the user escaped, and their style sheet."""
    environment = Environment(
        loader=PackageLoader("vitral.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["count"] = "{:,}".format
    style = Markup(environment.loader.get_source(environment, "report.css")[0]) if environment.loader else Markup()
    return environment, style


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage for people; a dash for what is not known."""
    if share is None or share != share:  # not a number
        return NO_VALUE
    return f"{100 * share:.{digits}f}{THIN_SPACE}%"


def _digits(evaluation: Evaluation | None) -> int:
    return 2 if evaluation is not None and evaluation.num_examples >= SURE_OF_HUNDREDTHS else 1


def _curve_plots(group: CurveGroup) -> list[Markup]:
    plots = [
        curve_plot(group.curves, "loss", label="loss"),
        curve_plot(group.curves, "accuracy", label="accuracy", percent=True),
    ]
    return [plot for plot in plots if plot is not None]


def _drawings(report: RunReport) -> dict[str, Any]:
    evaluation, similarity, filters = report.evaluation, report.position_similarity, report.patch_filters
    return {
        "comparison": _if_any(comparison_plot, report.comparison),
        "confusion": confusion_plot(evaluation) if evaluation else None,
        "reliability": reliability_plot(evaluation.reliability) if evaluation else None,
        "confused": confused_pairs(evaluation) if evaluation else [],
        "positions": position_plot(similarity) if similarity is not None else None,
        "filters": inline(filter_sheet(filters), largest=LARGEST_SHEET) if filters is not None else None,
        "distances": distance_plot(report.attention_distance) if report.attention_distance else None,
    }


def _if_any(draw: Callable[[Sequence[Arm]], Markup], arms: Sequence[Arm]) -> Markup | None:
    return draw(arms) if arms else None


def confused_pairs(evaluation: Evaluation, *, most: int = 8) -> list[tuple[str, str, int]]:
    """Return the pairs of true and predicted class that are mixed up most often, with their counts."""
    pairs = [
        (count, row, column)
        for row, counts in enumerate(evaluation.confusion)
        for column, count in enumerate(counts)
        if count and row != column
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    names = evaluation.class_names
    return [(names[row], names[column], count) for count, row, column in pairs[:most]]
