"""What a training command would do: everything that it decides before its first step, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vitral.data.classes import Reading
from vitral.events import Listener
from vitral.progress import show
from vitral.training.planning.plan import Run
from vitral.training.planning.prepare import prepare
from vitral.training.planning.request import Kind, ask
from vitral.training.records.start import looked_at
from vitral.weights.named.reach import without_network

SWEPT = "This is one run: a sweep makes one for each learning rate that it tries and one with the best, which share the time."


def plan(
    data: str | Path | None = None,
    *,
    kind: Kind = "fine-tune",
    source: str | Path | None = None,
    model: str | None = None,
    out: str | Path | None = None,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    image_size: int | None = None,
    time: str | float | None = None,
    seed: int | None = None,
    classes: Reading | None = None,
    skip_bad_images: bool = False,
    sweep: bool = False,
    baselines: bool = True,
    quick: bool = False,
    resume: bool = False,
    offline: bool = False,
    started: float | None = None,
    listener: Listener = show,
) -> Run:
    """Return what `finetune` or `pretrain` would do with these arguments: network, size, recipe, length, cost, and why.

    The data are read, the weights loaded and a few steps of a copy of the network timed; nothing is written. Published weights
    that `finetune` would choose and fetch by itself are not fetched: a network of the same kind stands in for them; two that
    are on this machine are compared by their probes, as there.

    Printed, the result is a line a decision; `to_json` gives the figures, `recipe` the settings.

    Args:
        data: as of `finetune`; of pre-training "visualatom" if None.
        kind: "fine-tune" or "pre-train".
        source: of fine-tuning, where to start.
        model: of pre-training, the network's name.
        out: with `resume`, the folder of the run that would go on.
        recipe: a recipe's name or a TOML file.
        overrides: changes to the recipe.
        image_size: pixels.
        time: a budget for the whole command.
        seed: of every random choice.
        classes: of nested folders, which one names the class.
        skip_bad_images: pass over unreadable images, and list them, instead of an error.
        sweep: plan one of a sweep's runs, as if it had all of the time.
        baselines: whether a first classifier would be fitted, and delivered where training is no better.
        quick: plan a run that stops after the first classifier.
        resume: plan how the run in `out` would go on.
        offline: fetch nothing.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: receives messages and progress.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    asked = ask(
        kind,
        data,
        source=source,
        model=model,
        recipe=recipe,
        overrides=overrides,
        image_size=image_size,
        time=time,
        seed=seed,
        classes=classes,
        skip_bad_images=skip_bad_images,
        sweep=sweep,
        baselines=baselines,
        quick=quick,
    )
    with without_network(offline):
        run = prepare(looked_at(asked, out, resume=resume, started=started, listener=listener))
    if not sweep:
        return run
    return replace(run, plan=replace(run.plan, reasons=(*run.plan.reasons, SWEPT)))
