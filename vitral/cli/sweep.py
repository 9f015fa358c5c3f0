"""`vitral sweep`: the paper's learning rates tried, and the best one trained on all but the test split."""

from dataclasses import replace

from vitral.cli.training import FinetuneOptions, train_and_report
from vitral.studies.finetune import finetune_request


def sweep(*, options: FinetuneOptions | None = None, json: bool = False) -> None:
    """Try the paper's learning rates on the validation split, and train with the best on all but the test split.

    Args:
        options: The request.
        json: Print JSON for programs.
    """
    request = replace((options or FinetuneOptions()).request(), sweep=True)
    train_and_report(finetune_request, request, json=json)
