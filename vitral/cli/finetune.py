"""`vitral finetune`: from a folder of images to a classifier."""

from typing import Annotated

from cyclopts import Parameter

from vitral.cli.options import MORE, Positive, Verbose
from vitral.cli.process import importing
from vitral.cli.training_options import FinetuneOptions, Json


def finetune(
    options: FinetuneOptions | None = None,
    *,
    runs: Annotated[Positive | None, Parameter(group=MORE)] = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Fine-tune a model on labelled images: classifier, scores and report in one run folder.

    Args:
        options: The request.
        runs: Repeat the training with so many seeds of one recipe, below --out: mean ± standard deviation.
        verbose: Say every decision with its reason, as 'vitral plan' does.
        json: Print JSON for programs.
    """
    with importing():
        from vitral.cli.repeated import repeat_runs
        from vitral.cli.training import train_and_report
        from vitral.studies.finetune import finetune_request

    options = options or FinetuneOptions()
    if runs is not None:
        repeat_runs(options, runs, json=json)
    else:
        train_and_report(finetune_request, options.request(), json=json, verbose=verbose)
