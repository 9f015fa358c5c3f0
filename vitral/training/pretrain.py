"""Pre-training: from random weights to a network worth fine-tuning (paper section 3.2, appendix B.1)."""

from collections.abc import Sequence
from pathlib import Path

from vitral.data.classes import Reading
from vitral.events import Listener, show
from vitral.training.candidates.result import RunResult
from vitral.training.request import request_of
from vitral.training.run import run_request


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
    group: str | None = None,
    skip_bad_images: bool | None = None,
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
        model: A model's name; None for the recipe's.
        out: The run folder; runs/NAME if None.
        recipe: A recipe's name or a TOML file; "pretrain" if None.
        overrides: Changes to the recipe, such as "optimizer.lr=0.001".
        image_size: Pixels; None for the recipe's, or the model's own.
        time: A budget for the whole command, from `started` to the report: "10m", "8h", or a number of seconds; the run
            becomes shorter to keep it.
        budget_seconds: The older name of `time`.
        seed: The seed of every random choice, the weights included; None for the recipe's.
        classes: Which of nested folders names the class; see `open_data`.
        group: What tells images that belong together, a column or "folder" or "series"; see `open_data`.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        resume: Continue the run in `out`, to the same bits; what it was given first need not be repeated. A run that is
            finished continues only with more `time`, or with other steps among the overrides.
        data_changed: Continue although the data are not those that the run began with, and note that.
        overwrite: Begin in `out` although it holds a run, which is deleted, or other files; those of the same names are lost.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: Hears messages and progress; they are written to the screen if left out, and lost with `vitral.events.ignore`.

    Raises:
        VitralError: Bad input, by kind; one line that names the thing.
    """
    given = {name: value for name, value in locals().items() if name not in ("started", "listener")}
    return run_request(request_of("pre-train", baselines=False, **given), started=started, listener=listener)
