"""Fine-tuning: from a dataset and any starting weights to a classifier (paper section 3.2)."""

from collections.abc import Sequence
from pathlib import Path

from vitral.data.classes import Reading
from vitral.events import Listener, show
from vitral.training.candidates.result import RunResult
from vitral.training.request import Request, request_of
from vitral.training.run import carry_out
from vitral.training.starting.opening import opened
from vitral.weights.named.table import without_network


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
    group: str | None = None,
    skip_bad_images: bool | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_changed: bool = False,
    baselines: bool = True,
    quick: bool = False,
    sweep: bool = False,
    offline: bool = False,
    started: float | None = None,
    listener: Listener = show,
) -> RunResult:
    """Fine-tune a network on labelled images; the run folder holds everything that it made.

    The head becomes a single linear layer, zero as in the paper or as the network's own source draws it, and the position
    embedding is interpolated to the new size. Before training the listener hears the plan and simple classifiers on frozen
    features. Unless a recipe is named, the first of them is saved at once, and the better of it and the trained network, by
    the validation split, is what the run delivers.

    Under torchrun every process calls this; they share the work, and the main one writes.

    Args:
        data: What `vitral.data.open.open_data` takes: "digits", a folder with one sub-folder a class, an archive, a table, ...
        source: Published weights by name, a weights file, classifier or run folder, Hub id, or a model's name for random
            weights; None takes the published weights that pay for the images, the hardware and the time, which are fetched if
            they are not here yet, and where none does, a model that fits, from random weights.
        out: The run folder; runs/NAME if None.
        recipe: A recipe's name or a TOML file; None picks one by the images, classes, network and hardware, and says why.
        overrides: Changes to the recipe, such as "optimizer.lr=0.01".
        image_size: Pixels; None for the recipe's, or the source's own.
        time: A budget for the whole command, from `started` to the report: "10m", "1h30m", or a number of seconds; the run
            becomes shorter to keep it.
        budget_seconds: The older name of `time`.
        seed: The seed of every random choice; None for the recipe's.
        classes: Which of nested folders names the class; see `open_data`.
        group: What tells images that belong together, a column or "folder" or "series"; see `open_data`.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        resume: Continue the run in `out`, to the same bits; what it was given first need not be repeated. A run that is
            finished continues only with more `time`, or with other steps among the overrides.
        data_changed: Continue although the data are not those that the run began with, and note that.
        overwrite: Begin in `out` although it holds a run, which is deleted, or other files; those of the same names are lost.
        baselines: Fit simple classifiers first, among them the first classifier: a linear probe, or a linear model on pixels,
            which is delivered in place of the trained network unless that is better on the validation split.
        quick: Stop after the first classifier; `resume` without it continues with training.
        sweep: Try the paper's learning rates, each in a run of its own, choose by the validation split, and train with
            the best on the training and validation images together (paper appendix B.1.1). Without a test split, on which the
            result could be scored, the choice is by training images held out, and the validation split is scored once.
        offline: Fetch nothing: of published weights those count that are on this machine. The environment variable
            HF_HUB_OFFLINE means the same.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: Hears messages and progress; they are written to the screen if left out, and lost with `vitral.events.ignore`.

    Raises:
        VitralError: Bad input, by kind; one line that names the thing.
    """
    given = {name: value for name, value in locals().items() if name not in ("started", "listener")}
    return finetune_request(request_of("fine-tune", **given), started=started, listener=listener)


def finetune_request(request: Request, *, started: float | None = None, listener: Listener = show) -> RunResult:
    """Fine-tune as a request says; see `finetune`."""
    with without_network(request.offline), opened(request, started=started, listener=listener) as session:
        if not session.request.sweep:
            return carry_out(session)
        from vitral.studies.sweep import sweep  # half a second of start-up, for its page, which one run does without

        return sweep(session)
