"""`vitral tune`: the most accurate setting that answers in time on this machine."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitral.classifier.folder import folder_that_keeps
from vitral.cli.chosen import name_of
from vitral.cli.console import ConsoleListener, print_line, print_result
from vitral.data.classes import Reading
from vitral.deployment.tune import tune as find
from vitral.errors import ModelError, VitralError
from vitral.layout import TUNING
from vitral.outputs import check_file
from vitral.report.tuning_plot import MARK, write_tuning


def tune(
    classifier: str | None = None,
    /,
    *,
    data: str,
    latency: str,
    no_write: Annotated[bool, Parameter(negative="")] = False,
    plot: Path | None = None,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Find the most accurate setting of a classifier that answers within a time on this machine.

    Args:
        classifier: a classifier folder or run folder; with --no-write also a weights file, a name or a Hub id; the newest
            run in runs/ if left out.
        data: what the classifier was trained on, or any data with a validation split, as 'finetune' takes them.
        latency: that the network may take for one image, such as 10ms or 0.5s.
        no_write: show the curve and leave the classifier's folder as it is; otherwise it keeps the setting and a drawing, and
            predict, evaluate, bench and export compute by it.
        plot: an SVG file for the curve; if left out, tuning.svg in the classifier's folder, or none with --no-write.
        classes: in nested folders, which names the class: innermost, outermost, whole path; the one that fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, instead of stopping.
        overwrite: let --plot replace any file that is there.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        name = name_of(classifier, listener)
        if plot is not None:
            if plot.suffix.lower() != ".svg":
                raise VitralError(f"'{plot}' is no name for a drawing; let it end in .svg.")
            check_file(plot, inputs=[name, data], mark=MARK, overwrite=overwrite)
        folder = None if no_write else folder_that_keeps(name, "a setting")
        found = find(
            name,
            data,
            latency=latency,
            write=not no_write,
            classes=classes,
            skip_bad_images=skip_bad_images,
            listener=listener,
        )
    if folder is not None and found.setting is not None:
        kept = f"Kept in {name}; any of --engine, --precision and --merge leaves it aside."
    else:
        kept = "Nothing was written; without --no-write the classifier's folder keeps the setting."
    print_result(found, json=json, below=[kept])
    if folder is not None and found.setting is not None and plot is None:
        plot = folder / TUNING
    if plot is not None:  # last: a full disk must not cost the figures
        write_tuning(found, plot)
        if not json:
            print_line(f"Plot  {plot}")
    if found.setting is None:
        raise ModelError(found.failure())
