"""`vitral sweep`: the paper's learning rates tried, and the best one trained on all but the test split."""

from dataclasses import replace

from vitral.cli.options import Verbose
from vitral.cli.process import importing
from vitral.cli.training_options import FinetuneOptions, Json


def sweep(options: FinetuneOptions | None = None, *, verbose: Verbose = False, json: Json = False) -> None:
    """Try the paper's learning rates on the validation split, and train with the best on all but the test split.

    Args:
        options: The request.
        verbose: Say every decision with its reason.
        json: Print JSON for programs.
    """
    with importing():
        from vitral.cli.training import train_and_report
        from vitral.studies.finetune import finetune_request

    request = replace((options or FinetuneOptions()).request(), sweep=True)
    train_and_report(finetune_request, request, json=json, verbose=verbose)
