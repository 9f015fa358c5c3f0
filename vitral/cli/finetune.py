"""`vitral finetune`: from a folder of images to a classifier."""

import shlex
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.options import MORE, Positive, Verbose
from vitral.cli.process import importing
from vitral.cli.training_options import FinetuneOptions, Json
from vitral.cli.wording import flag


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
    options = options or FinetuneOptions()
    if runs is not None:
        _repeat(options, runs, json=json)
        return
    with importing():
        from vitral.cli.training import train_and_report
        from vitral.studies.finetune import finetune_request

    train_and_report(finetune_request, options.request(), json=json, verbose=verbose)


def _repeat(options: FinetuneOptions, runs: int, *, json: bool) -> None:
    """Repeat a fine-tuning and print its score with the standard deviation; a study continues in its folder by itself."""
    with importing():
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.studies.trainings import repeat

    options.refuse(f"{flag('runs')} repeats one training", "data_changed", "overwrite")
    with ConsoleListener() as listener:
        result = repeat(options.request(), runs, listener=listener)
    command = f"  vitral table {shlex.quote(str(result.folder))}"
    print_result(result, json=json, below=[f"Runs        {result.folder}", "Next:", command])
