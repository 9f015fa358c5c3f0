"""One self-contained page a run: everything inline, nothing fetched, nothing run."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitral.evaluation.metrics import Confusion, Evaluation
from vitral.explanation.scale import colour_scale
from vitral.files import write_file
from vitral.outputs import check_file
from vitral.printable import printable
from vitral.report.confusion import confusion_plot, shown_confusion
from vitral.report.images import Inlined, filter_sheet, inline
from vitral.report.plots import comparison_plot, curve_plot, distance_plot, position_plot, reliability_plot
from vitral.report.results import Arm, CurveGroup, RunReport

__all__ = ["Arm", "RunReport", "render_report", "write_report"]

NO_VALUE = "–"
THIN_SPACE = "\u202f"  # unbroken, between a number and its percent sign
SURE_OF_HUNDREDTHS = 2000  # images, from which on a second decimal of an accuracy says something
OPEN_CLASSES = 20  # rows of the table of classes up to which it is shown unfolded
MOST_CLASSES = 300  # rows of that table: all of thousands would swell the page, and the worst come first
MOST_CONFUSED = 12  # pairs of classes
SHOWN_BAD_IMAGES = 20
LARGEST_SHEET, LARGEST_IMAGE, LARGEST_EXAMPLE = 1000, 260, 96  # pixels of the longer side


def mark(kind: str) -> bytes:
    """Return what a page of a kind ("run", "scores", "check") says of itself: such a page may be replaced by its like."""
    return f'<meta name="generator" content="Vitral {kind}">'.encode()


def write_report(report: RunReport, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a report as one HTML file.

    Raises:
        StorageError: the file cannot be written, or would replace what is no report of this kind.
    """
    check_file(path, mark=mark(report.kind), overwrite=overwrite)
    write_file(Path(path), printable(render_report(report), lines=True))


def render_report(report: RunReport) -> str:
    """Return a report as HTML: no script, no address but `data:`, every text of the user escaped."""
    environment, style = page_environment()
    return environment.get_template("report.html").render(
        report=report,
        style=style,
        accuracy=partial(percent, digits=_digits(report.evaluation)),
        sheet=partial(inline, largest=LARGEST_SHEET),
        inlined=partial(inline, largest=LARGEST_IMAGE),
        curve_plots=[(group.title, _curve_plots(group)) for group in report.curves],
        shown_bad_images=SHOWN_BAD_IMAGES,
        open_classes=OPEN_CLASSES,
        scale=_scale(),
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
        curve_plot(group.curves, "learning_rate", label="learning rate"),
    ]
    return [plot for plot in plots if plot is not None]


def _drawings(report: RunReport) -> dict[str, Any]:
    evaluation, labels = report.evaluation, report.multi_label
    similarity, filters = report.position_similarity, report.patch_filters
    return {
        "comparison": _if_any(comparison_plot, report.comparison),
        "confusion": confusion_plot(evaluation) if evaluation else None,
        "confusion_part": shown_confusion(evaluation) if evaluation else None,
        "reliability": reliability_plot(evaluation.reliability) if evaluation else None,
        "confused": _confused(report),
        "classes": worst_first(evaluation.recall, evaluation.support) if evaluation else [],
        "labels_shown": worst_first(labels.average_precision, labels.support) if labels else [],
        "positions": position_plot(similarity) if similarity is not None else None,
        "filters": inline(filter_sheet(filters), largest=LARGEST_SHEET) if filters is not None else None,
        "distances": distance_plot(report.attention_distance) if report.attention_distance else None,
    }


def _if_any(draw: Callable[[Sequence[Arm]], Markup], arms: Sequence[Arm]) -> Markup | None:
    return draw(arms) if arms else None


def worst_first(scores: Sequence[float | None], support: Sequence[int]) -> list[int]:
    """Return the places of the classes to list: the lowest score first, of equal ones the largest class, at most 300.

    Classes without images, which have no score, come last.
    """
    places = sorted(range(len(scores)), key=lambda place: (_or_last(scores[place]), -support[place], place))
    return places[:MOST_CLASSES]


def _or_last(score: float | None) -> float:
    return 2.0 if score is None else score


def _confused(report: RunReport) -> list[tuple[Confusion, list[Inlined]]]:
    """Return the pairs of classes that are mixed up most, each with the images that are at hand."""
    pairs = report.evaluation.confused[:MOST_CONFUSED] if report.evaluation else ()
    images = report.confused_images
    return [
        (pair, [inline(images[index], largest=LARGEST_EXAMPLE) for index in pair.examples if index in images])
        for pair in pairs
    ]


def _scale() -> str:
    """Return the colours of the maps as the stops of a CSS gradient."""
    return ", ".join(f"rgb({red} {green} {blue})" for red, green, blue in colour_scale()[::15].tolist())
