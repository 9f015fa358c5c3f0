"""`vitral finetune`: from a folder of images to a classifier."""

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.options import MORE, Former, Positive, Verbose
from vitral.cli.process import importing
from vitral.cli.training_options import FinetuneOptions, Json


def finetune(
    options: FinetuneOptions | None = None,
    *,
    starts: Annotated[str | None, Former] = None,
    sweep: Annotated[bool, Former] = False,
    runs: Annotated[Positive | None, Parameter(group=MORE)] = None,
    plan: Annotated[bool, Former] = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Fine-tune a model on labelled images: classifier, scores and report in one run folder.

    Args:
        options: The request.
        starts: The former name of 'vitral starts', for this release.
        sweep: The former name of 'vitral sweep', for this release.
        runs: Repeat the training with so many seeds of one recipe, below --out: mean ± standard deviation.
        plan: The former name of 'vitral plan', for this release.
        verbose: Say every decision with its reason, as 'vitral plan' does.
        json: Print JSON for programs.
    """
    with importing():
        from vitral.cli.plan import print_plan
        from vitral.cli.repeated import repeat_runs
        from vitral.cli.starts import compare
        from vitral.cli.training import say_moved, train_and_report
        from vitral.studies.finetune import finetune_request

    options = replace(options or FinetuneOptions(), sweep=sweep)
    if runs is not None:
        repeat_runs(options, runs, beside={"plan": plan, "starts": starts is not None}, json=json)
    elif starts is not None:
        say_moved("--starts", "starts")
        compare(options, starts, beside={"plan": plan, "sweep": sweep}, json=json)
    elif plan:
        say_moved("--plan", "plan")
        print_plan(options.request(), json=json)
    else:
        if sweep:
            say_moved("--sweep", "sweep")
        train_and_report(finetune_request, options.request(), json=json, verbose=verbose)
