"""`vitral tune`: the most accurate setting that answers in time on this machine."""

from pathlib import Path

from vitral.cli.options import ValidationImages, settle
from vitral.cli.process import importing
from vitral.errors import ModelError
from vitral.paths import TUNING


def tune(
    classifier: str | None = None,
    images: ValidationImages | None = None,
    *,
    latency: str,
    write: bool = False,
    plot: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Find the most accurate setting of a classifier that answers within a time on this machine.

    Args:
        classifier: A classifier folder or run folder; without --write also a weights file, a name or a Hub id; the newest
            run in runs/ if left out.
        images: The images.
        latency: The time that the network may take for one image, such as 10ms or 0.5s.
        write: Keep the setting and a drawing in the classifier's folder; predict, evaluate, bench and export then compute by
            it.
        plot: An SVG file for the curve; if left out, tuning.svg in the classifier's folder with --write, or else none.
        overwrite: Let --plot replace any file that is there.
        json: Print JSON for programs.
    """
    classifier, given = settle(classifier, images or ValidationImages())
    with importing():
        from vitral.classifier.folder import folder_that_keeps
        from vitral.cli.chosen import name_of
        from vitral.cli.console import ConsoleListener, print_lines, print_result
        from vitral.deployment.tune import tune as find
        from vitral.report.speed_charts import TUNE_MARK, check_drawing, tuning_chart, write_chart

    with ConsoleListener() as listener:
        name = name_of(classifier, listener)
        if plot is not None:
            check_drawing(plot, TUNE_MARK, inputs=[name, given["data"]], overwrite=overwrite)
        folder = folder_that_keeps(name, "a setting") if write else None
        found = find(name, **given, latency=latency, write=write, listener=listener)
    written = folder is not None and found.setting is not None
    if written:
        note = f"Saved in {name}; --engine, --precision or --merge override it."
    else:
        note = "Nothing was written; --write saves the setting in the classifier's folder."
    print_result(found, json=json, below=[note])
    if folder is not None and written and plot is None:
        plot = folder / TUNING
    if plot is not None:  # last: a full disk must not cost the figures
        write_chart(tuning_chart(found), plot, TUNE_MARK)
        if not json:
            print_lines(f"Plot  {plot}")
    if found.setting is None:
        raise ModelError(found.failure())
