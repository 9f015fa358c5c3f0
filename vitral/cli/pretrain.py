"""`vitral pretrain`: from nothing to a model worth fine-tuning."""

from typing import Annotated

from vitral.cli.options import Usual, Verbose
from vitral.cli.plan import print_plan
from vitral.cli.process import importing
from vitral.cli.training_options import Json, PretrainOptions


def pretrain(
    options: PretrainOptions | None = None,
    *,
    plan: Annotated[bool, Usual] = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Pre-train a model from random weights, on generated images or a large labelled dataset.

    Args:
        options: The request.
        plan: say what would be done, with every reason and the cost, and stop; nothing is written.
        verbose: say every decision with its reason.
        json: print JSON for programs.
    """
    with importing():
        from vitral.cli.training import train_and_report
        from vitral.training.run import run_request

    request = (options or PretrainOptions()).request()
    if plan:
        print_plan(request, json=json)
    else:
        train_and_report(run_request, request, json=json, verbose=verbose)
