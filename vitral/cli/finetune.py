"""`vitral finetune`: from a folder of images to a classifier."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.cli.console import ConsoleListener
from vitral.cli.plan import print_plan
from vitral.cli.repeated import repeat_runs
from vitral.cli.reporting import announce, write_run_report
from vitral.cli.started import began
from vitral.cli.starts import compare
from vitral.cli.training_options import FinetuneOptions
from vitral.studies.finetune import finetune_request
from vitral.torchrun import is_main
from vitral.training.request import Request


def finetune(
    *,
    options: Annotated[FinetuneOptions | None, Parameter(name="*")] = None,
    starts: str | None = None,
    runs: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    plan: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Fine-tune a model on labelled images: classifier, scores and report in one run folder.

    Args:
        options: The request.
        starts: NAME,NAME or "auto": compare these starts by linear probes on the data, print the table, and stop.
        runs: repeat the training with so many seeds of one recipe, below --out: mean ± standard deviation.
        plan: say what would be done, with every reason and the cost, and stop; nothing is written.
        json: print JSON for programs.
    """
    options = options or FinetuneOptions()
    if runs is not None:
        repeat_runs(options, runs, plan=plan, starts=starts, json=json)
    elif starts is not None:
        compare(options, starts, plan=plan, json=json)
    elif plan:
        print_plan(options.request(), json=json)
    else:
        train(options.request(), json=json)


def train(request: Request, *, json: bool) -> None:
    """Train, write the report, and say what came out."""
    with ConsoleListener() as listener:
        result = finetune_request(request, started=began(), listener=listener)
        if not is_main():
            return  # the main process of the job says it for all
        report = write_run_report(result, listener=listener)
    announce(result, report, json=json)
