"""Pre-training: from random weights to a network worth fine-tuning (paper section 3.2, appendix B.1)."""

from collections.abc import Sequence
from pathlib import Path

from vitral.data.classes import Reading
from vitral.events import Listener
from vitral.progress import show
from vitral.training.planning.request import ask
from vitral.training.records.start import opened
from vitral.training.result import RunResult
from vitral.training.run import run_once


def pretrain(
    data: str | Path | None = None,
    *,
    model: str | None = None,
    out: str | Path | None = None,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    image_size: int | None = None,
    time: str | float | None = None,
    budget_seconds: float | None = None,
    seed: int | None = None,
    classes: Reading | None = None,
    skip_bad_images: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    data_changed: bool = False,
    started: float | None = None,
    listener: Listener = show,
) -> RunResult:
    """Pre-train a network from random weights; the run folder holds everything that it made.

    Args:
        data: "visualatom", the endless source of generated images (taken if None), or what `open_data` takes: a folder
            with one sub-folder a class, an archive, a table, shards, ...
        model: a model's name; None for the recipe's.
        out: the run folder; runs/NAME if None.
        recipe: a recipe's name or a TOML file; "pretrain" if None.
        overrides: changes to the recipe, such as "optimizer.lr=0.001".
        image_size: pixels; None for the recipe's, or the model's own.
        time: a budget for the whole command, from `started` to the report: "10m", "8h", or a number of seconds; the run
            becomes shorter to keep it.
        budget_seconds: the older name of `time`.
        seed: of every random choice, the weights included; None for the recipe's.
        classes: of nested folders, which one names the class; see `open_data`.
        skip_bad_images: train without unreadable images, and list them, instead of an error.
        resume: continue with the run in `out`, to the same bits; what it was asked first need not be said again. One that is
            finished continues only with more `time`, or with other steps among the overrides.
        data_changed: go on though the data are not those that the run began with, and note that.
        overwrite: begin in `out` though it holds a run, which is deleted, or other files; those of the same names are lost.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: hears messages and progress; they are written to the screen if left out, and lost with `vitral.events.ignore`.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    asked = ask(
        "pre-train",
        data,
        model=model,
        recipe=recipe,
        overrides=overrides,
        image_size=image_size,
        time=time,
        budget_seconds=budget_seconds,
        seed=seed,
        classes=classes,
        skip_bad_images=skip_bad_images,
        baselines=False,
    )
    with opened(
        asked,
        out,
        resume=resume,
        overwrite=overwrite,
        data_changed=data_changed,
        started=started,
        listener=listener,
    ) as session:
        return run_once(session)
