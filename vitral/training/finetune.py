"""Fine-tuning: from a dataset and any starting weights to a classifier (paper section 3.2)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from vitral.data.classes import Reading
from vitral.errors import TrainingError
from vitral.events import Listener
from vitral.progress import show
from vitral.training.planning.plan import Session
from vitral.training.planning.request import ask
from vitral.training.records.start import opened
from vitral.training.result import RunResult
from vitral.training.run import run_once
from vitral.weights.named.reach import without_network


def refuse_sweep(session: Session) -> NoReturn:
    """Refuse what is many runs.

    Raises:
        TrainingError: always.
    """
    raise TrainingError(
        f"The run in '{session.folder}' is a sweep, which is many runs; begin it, and go on with it, as one."
    )


def finetune(
    data: str | Path | None = None,
    *,
    source: str | Path | None = None,
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
    baselines: bool = True,
    quick: bool = False,
    sweep: bool = False,
    offline: bool = False,
    started: float | None = None,
    listener: Listener = show,
    sweeping: Callable[[Session], RunResult] = refuse_sweep,
) -> RunResult:
    """Fine-tune a network on labelled images; the run folder holds everything that it made.

    The head becomes a single linear layer, zero as in the paper or as the network's own source draws it, and the position
    embedding is interpolated to the new size. Before training the plan and simple classifiers on frozen features are told to
    the listener. Unless a recipe is named, the first of them is saved at once, and the better of it and the trained network,
    by the validation split, is what the run delivers.

    Under torchrun every process calls this; they share the work, and the main one writes.

    Args:
        data: what `vitral.data.open.open_data` takes: "digits", a folder with one sub-folder a class, an archive, a table, ...
        source: published weights by name, a weights file, classifier or run folder, Hub id, or a model's name for random
            weights; None takes the published weights that pay for the images, the hardware and the time, which are fetched if
            they are not here yet, and where none does, a model that fits, from random weights.
        out: the run folder; runs/NAME if None.
        recipe: a recipe's name or a TOML file; None picks one by the images, classes, network and hardware, and says why.
        overrides: changes to the recipe, such as "optimizer.lr=0.01".
        image_size: pixels; None for the recipe's, or the source's own.
        time: a budget for the whole command, from `started` to the report: "10m", "1h30m", or a number of seconds; the run
            becomes shorter to keep it.
        budget_seconds: the older name of `time`.
        seed: of every random choice; None for the recipe's.
        classes: of nested folders, which one names the class; see `open_data`.
        skip_bad_images: train without unreadable images, and list them, instead of an error.
        resume: continue with the run in `out`, to the same bits; what it was asked first need not be said again. One that is
            finished continues only with more `time`, or with other steps among the overrides.
        data_changed: go on though the data are not those that the run began with, and note that.
        overwrite: begin in `out` though it holds a run, which is deleted, or other files; those of the same names are lost.
        baselines: whether to fit simple classifiers first, among them the first classifier: a linear probe, or a linear model
            on pixels, which is delivered in place of the trained network unless that is better on the validation split.
        quick: stop after the first classifier; `resume` without it goes on with training.
        sweep: try the paper's learning rates, each in a run of its own, choose by the validation split, and train with
            the best on the training and validation images together (paper appendix B.1.1). Without a test split, which the
            result could be scored on, the choice is by training images held out, and the validation split is scored once.
        offline: fetch nothing: of published weights those count that are on this machine. The environment variable
            HF_HUB_OFFLINE means the same.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: hears messages and progress; they are written to the screen if left out, and lost with `vitral.events.ignore`.
        sweeping: carries out a request with `sweep`; `vitral.finetune` gives the study that does.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    asked = ask(
        "fine-tune",
        data,
        source=source,
        recipe=recipe,
        overrides=overrides,
        image_size=image_size,
        time=time,
        budget_seconds=budget_seconds,
        seed=seed,
        classes=classes,
        skip_bad_images=skip_bad_images,
        sweep=sweep,
        baselines=baselines,
        quick=quick,
    )
    with (
        without_network(offline),
        opened(
            asked,
            out,
            resume=resume,
            overwrite=overwrite,
            data_changed=data_changed,
            started=started,
            listener=listener,
        ) as session,
    ):
        return sweeping(session) if session.command.sweep else run_once(session)
