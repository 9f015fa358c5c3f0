"""`vitral finetune`: from a folder of images to a classifier."""

from dataclasses import replace

from vitral.cli.options import Positive
from vitral.cli.plan import print_plan
from vitral.cli.repeated import repeat_runs
from vitral.cli.starts import compare
from vitral.cli.training import FinetuneOptions, say_moved, train_and_report
from vitral.studies.finetune import finetune_request


def finetune(
    *,
    options: FinetuneOptions | None = None,
    starts: str | None = None,
    sweep: bool = False,
    runs: Positive | None = None,
    plan: bool = False,
    json: bool = False,
) -> None:
    """Fine-tune a model on labelled images: classifier, scores and report in one run folder.

    Args:
        options: The request.
        starts: The former name of 'vitral starts', for this release.
        sweep: The former name of 'vitral sweep', for this release.
        runs: Repeat the training with so many seeds of one recipe, below --out: mean ± standard deviation.
        plan: The former name of 'vitral plan', for this release.
        json: Print JSON for programs.
    """
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
        train_and_report(finetune_request, options.request(), json=json)
