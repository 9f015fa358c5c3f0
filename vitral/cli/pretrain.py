"""`vitral pretrain`: from nothing to a model worth fine-tuning."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.cli.console import ConsoleListener
from vitral.cli.reporting import announce, show_plan, write_run_report
from vitral.cli.started import began
from vitral.data.classes import Reading
from vitral.torchrun import is_main
from vitral.training.plan import plan as make_plan
from vitral.training.pretrain import pretrain as train


def pretrain(
    *,
    data: str | None = None,
    model: str | None = None,
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
    plan: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Pre-train a model from random weights, on generated images or a large labelled dataset.

    Args:
        data: "visualatom" (an endless source of generated images; if left out), or what 'finetune' takes.
        model: a model's name ('vitral models' lists them); the recipe's if left out.
        out: the run folder; runs/NAME if left out.
        recipe: a recipe's name or a TOML file.
        overrides: KEY=VALUE changes to the recipe, such as optimizer.lr=0.001; may be repeated.
        image_size: pixels; the model's own if left out.
        time: a budget such as 10m, 90s or 8h for the whole command, from its start to the report.
        seed: for every random choice.
        classes: in nested folders, whether the innermost, the outermost or the whole path names the class; detected if
            left out.
        skip_bad_images: train without the images that cannot be read, and report them, instead of stopping.
        resume: continue with the run in --out, to the same bits; what it was asked first need not be said again.
        data_changed: continue although the data have changed since the run began, and note that.
        overwrite: start in --out although it holds a run, which is deleted, or other files; those of the same names are lost.
        plan: say what would be done, with every reason and the cost, and stop; nothing is written.
        json: print JSON for programs.
    """
    asked: dict[str, Any] = {
        "model": model,
        "out": out,
        "recipe": recipe,
        "overrides": overrides,
        "image_size": image_size,
        "time": time,
        "seed": seed,
        "classes": classes,
        "skip_bad_images": skip_bad_images,
        "resume": resume,
        "started": began(),
    }
    with ConsoleListener() as listener:
        if plan:
            show_plan(make_plan(data, kind="pre-train", listener=listener, **asked), json=json)
            return
        result = train(
            data,
            data_changed=data_changed,
            overwrite=overwrite,
            listener=listener,
            **asked,
        )
        if not is_main():
            return  # the main process of the job says it for all
        report = write_run_report(result, listener=listener)
    announce(result, report, json=json)
