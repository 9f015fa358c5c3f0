"""`vitral finetune`: from a folder of images to a classifier, or to the start that suits them best."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.cli.console import ConsoleListener
from vitral.cli.repeated import repeat_runs
from vitral.cli.reporting import announce, show_plan, write_run_report
from vitral.cli.started import began
from vitral.cli.starts import compare
from vitral.data.classes import Reading
from vitral.studies.sweep import finetune as train
from vitral.torchrun import is_main
from vitral.training.plan import plan as make_plan


def finetune(
    *,
    data: str | None = None,
    source: Annotated[str | None, Parameter(("--from", "--source"))] = None,
    starts: str | None = None,
    out: Path | None = None,
    recipe: str | None = None,
    overrides: Annotated[tuple[str, ...], Parameter("--set", negative="")] = (),
    image_size: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    time: str | None = None,
    seed: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    resume: Annotated[bool, Parameter(negative="")] = False,
    data_changed: Annotated[bool, Parameter(negative="")] = False,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    sweep: Annotated[bool, Parameter(negative="")] = False,
    runs: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    no_baselines: Annotated[bool, Parameter(negative="")] = False,
    quick: Annotated[bool, Parameter(negative="")] = False,
    offline: Annotated[bool, Parameter(negative="")] = False,
    plan: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Fine-tune a model on labelled images: classifier, scores and report in one run folder.

    Args:
        data: class folders (in train/ val/ test/ or not), .zip, .tar, .csv, .parquet, shards, hf:OWNER/NAME, "digits";
            part:10%:SOURCE is a share of the training images of any of these.
        source: where to start: published weights (MODEL@TRAINING), a weights file, classifier or run folder, Hub id; a
            model's name alone means random weights. If left out, the published weights that pay for these images, this
            machine and the time, or none.
        starts: NAME,NAME or "auto": compare these starts by linear probes on the data, print the table, and stop.
        out: the run folder; runs/NAME if left out.
        recipe: a recipe's name or a TOML file; if left out, one that fits images, classes and machine.
        overrides: KEY=VALUE changes to the recipe, such as optimizer.lr=0.01; may be repeated.
        image_size: pixels; if left out, what suits images, weights, machine and time.
        time: a budget such as 10m, 90s or 1h30m for the whole command, from its start to the report; if left out, what pays:
            without trained weights up to about 25 minutes of training, with them an hour.
        seed: for every random choice.
        classes: in nested folders, whether the innermost, the outermost or the whole path names the class; detected if
            left out.
        skip_bad_images: train without the images that cannot be read, and report them, instead of stopping.
        resume: continue with the run in --out, to the same bits; what it was asked first need not be said again.
        data_changed: continue although the data have changed since the run began, and note that.
        overwrite: start in --out although it holds a run, which is deleted, or other files; those of the same names are lost.
        sweep: try the paper's learning rates on the validation split, and train with the best on all but the test split.
        runs: repeat the training with so many seeds of one recipe, below --out: mean ± standard deviation.
        no_baselines: skip the simple classifiers before training, and deliver the trained network however good they are.
        quick: stop after the first classifier, a linear layer in closed form; --resume without it goes on with training.
        offline: fetch no weights: only those count that are on this machine.
        plan: say what would be done, with every reason and the cost, and stop; nothing is written.
        json: print JSON for programs.
    """
    asked: dict[str, Any] = {
        "source": source,
        "out": out,
        "recipe": recipe,
        "overrides": overrides,
        "image_size": image_size,
        "time": time,
        "seed": seed,
        "classes": classes,
        "skip_bad_images": skip_bad_images,
        "resume": resume,
        "sweep": sweep,
        "quick": quick,
        "offline": offline,
        "started": began(),
    }
    baselines = not no_baselines
    switches = {"data_changed": data_changed, "no_baselines": no_baselines, "plan": plan}
    if runs is not None:
        repeat_runs(data, runs, asked, {**switches, "starts": starts, "overwrite": overwrite}, json=json)
    elif starts is not None:
        compare(data, starts, {**asked, **switches}, overwrite=overwrite, json=json)
    elif plan:
        with ConsoleListener() as listener:
            run = make_plan(data, kind="fine-tune", baselines=baselines, listener=listener, **asked)
            show_plan(run, json=json)
    else:
        _train(data, asked, data_changed=data_changed, overwrite=overwrite, baselines=baselines, json=json)


def _train(
    data: str | None, asked: dict[str, Any], *, data_changed: bool, overwrite: bool, baselines: bool, json: bool
) -> None:
    """Train, write the report, and say what came out."""
    with ConsoleListener() as listener:
        result = train(
            data,
            data_changed=data_changed,
            overwrite=overwrite,
            baselines=baselines,
            listener=listener,
            **asked,
        )
        if not is_main():
            return  # the main process of the job says it for all
        report = write_run_report(result, listener=listener)
    announce(result, report, json=json)
