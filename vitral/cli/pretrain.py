"""`vitral pretrain`: from nothing to a model worth fine-tuning."""

from typing import Annotated

from cyclopts import Parameter

from vitral.cli.console import ConsoleListener
from vitral.cli.plan import print_plan
from vitral.cli.reporting import announce, write_run_report
from vitral.cli.started import began
from vitral.cli.training_options import PretrainOptions
from vitral.torchrun import is_main
from vitral.training.run import run_request


def pretrain(
    *,
    options: Annotated[PretrainOptions | None, Parameter(name="*")] = None,
    plan: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Pre-train a model from random weights, on generated images or a large labelled dataset.

    Args:
        options: The request.
        plan: say what would be done, with every reason and the cost, and stop; nothing is written.
        json: print JSON for programs.
    """
    request = (options or PretrainOptions()).request()
    if plan:
        print_plan(request, json=json)
        return
    with ConsoleListener() as listener:
        result = run_request(request, started=began(), listener=listener)
        if not is_main():
            return  # the main process of the job says it for all
        report = write_run_report(result, listener=listener)
    announce(result, report, json=json)
